// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

/**
 * The lifeline of a participant that was alive when it was looked at, to be waited on.
 *
 * @param word the copy of its lifeline that waiters sleep on
 * @param alive what it holds as long as the participant lives
 */
public record Lifeline(Word word, int alive) {
}
