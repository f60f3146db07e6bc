// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.util.function.IntSupplier;

/**
 * For how long those who wait for one lock look at it before they sleep. In time, not in looks: a look takes 40 ns where
 * it is compiled, and a hundred times as long before.
 *
 * <p>At most as long as a sleep and wake takes ({@link Calibration}; within 1 and 20 µs): then nobody wastes more on
 * spinning than the sleep would have cost. Within that, as long as has helped lately, after glibc's adaptive mutex
 * (PTHREAD_MUTEX_ADAPTIVE_NP): twice the running mean of what the spins before have taken, and a little more. glibc's
 * mean grows with each spin that fails. Here a failed one counts as 0: it has achieved nothing, however long it was. So
 * spinning goes on as long as about every second spin succeeds, and otherwise comes down to that little, 0.4 µs, within
 * some dozens of waits. Every 64th wait goes to the limit all the same, and if only that had success, the mean is at once
 * what it took: sections may have become shorter.
 *
 * <p>The fields are plain, and written by waiters only. What one of them overwrites of another's is one sample.
 */
public final class SpinBudget {
    /** As long as a sleep and wake takes, within limits. The default. */
    public static final long MEASURED = -1;
    /** The longest that can be asked for, in ns: who has waited for that long is next in line. */
    public static final long MAX = 1_000_000;

    private static final int SHORTEST = 1_000;
    private static final int LONGEST = 20_000;
    private static final int LITTLE = 400;
    private static final int RETRY = 64;

    private final long fixed;
    private final IntSupplier sleep;
    private int mean = 8 * SHORTEST; // times 8, so that it comes down to 0; at first good for what is assumed
    private int waits;

    /** For one lock; in ns, or {@link #MEASURED}. Another time than that is kept to and does not adapt. */
    public SpinBudget(long spin) {
        this(spin, Spin.LIMIT > 0, Calibration::sleep);
    }

    SpinBudget(long spin, boolean severalProcessors, IntSupplier sleep) {
        this.fixed = severalProcessors ? spin : 0;
        this.sleep = sleep;
    }

    /** When a spin that begins now has to end, in ns; at the deadline at the latest. No later than now: not at all. */
    public long until(long now, long deadline) {
        return Math.min(now + allowed(), deadline);
    }

    /** In ns, for the next spin. */
    int allowed() {
        if (fixed != MEASURED) {
            return (int) fixed;
        }
        int limit = Math.clamp(sleep.getAsInt(), SHORTEST, LONGEST);
        return ++waits % RETRY == 0 ? limit : Math.min(limit, usual(mean));
    }

    private static int usual(int mean) {
        return mean / 8 * 2 + LITTLE;
    }

    /** A spin has got what it was for, after so many ns. */
    public void succeeded(long took) {
        int before = mean;
        mean = took > usual(before) ? (int) Math.min(took, MAX) * 8 : before - before / 8 + (int) took;
    }

    /** A spin has ended without. */
    public void failed() {
        mean -= mean / 8;
    }
}
