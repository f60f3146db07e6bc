// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

/** Turns of benchmarks that time several things in one JVM, one after the other. */
final class Turn {
    private Turn() {
    }

    /** The best so far, or 0 before the first, and a further turn of so many operations: ns for one. */
    static double best(double before, long nanos, int operations) {
        double now = (double) nanos / operations;
        return before == 0 ? now : Math.min(before, now);
    }
}
