// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.util.concurrent.TimeUnit;

/**
 * Absolute deadlines on the clock of {@link System#nanoTime}, which HotSpot on Linux reads from
 * {@code CLOCK_MONOTONIC}, the clock of the futex.
 */
public final class Deadline {
    /** No deadline. */
    public static final long NEVER = Long.MAX_VALUE;

    private Deadline() {
    }

    /** The deadline that lies a time-out ahead; {@link #NEVER} where the sum overflows. */
    public static long after(long timeout, TimeUnit unit) {
        long nanos = unit.toNanos(timeout); // saturates
        long now = System.nanoTime();
        return nanos <= 0 ? now : now > NEVER - nanos ? NEVER : now + nanos;
    }

    /** The deadline, or the point of time that lies {@code nanos} ahead if that comes first. */
    public static long earlier(long deadline, long nanos) {
        long now = System.nanoTime();
        return deadline == NEVER || deadline - now > nanos ? now + nanos : deadline;
    }

    /** Which of two comes first. */
    public static long first(long one, long other) {
        return one == NEVER ? other : other == NEVER ? one : one - other < 0 ? one : other;
    }

    /** Whether the deadline has come. */
    public static boolean passed(long deadline) {
        return deadline != NEVER && System.nanoTime() - deadline >= 0;
    }
}
