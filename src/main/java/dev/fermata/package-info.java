// SPDX-License-Identifier: Apache-2.0

/**
 * What is common to all locks: the errors, and {@link dev.fermata.Fermata#about() what runs here}.
 *
 * <p>The primitives over a single word are in {@link dev.fermata.word}; read that package's page first.
 */
package dev.fermata;
