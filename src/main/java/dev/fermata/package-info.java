// SPDX-License-Identifier: Apache-2.0

/**
 * Locks that processes share through a file: {@link dev.fermata.LockFile} hands out {@link dev.fermata.SharedMutex} by name,
 * which survives the death of its holder.
 *
 * <p>Reading order: {@link dev.fermata.LockFile}, {@link dev.fermata.SharedMutex}, {@link dev.fermata.OwnerDeath}; then
 * what is there to look at, {@link dev.fermata.LockInfo} and {@link dev.fermata.Participant}. The primitives over a
 * single word, without names and without crash detection, are in {@link dev.fermata.word}.
 */
package dev.fermata;
