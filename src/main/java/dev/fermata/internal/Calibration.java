// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * What it costs here to fall asleep and be woken, measured once in a process: two threads wake each other in turn, for a
 * few ms, over words that nobody else has. Nobody waits for them; without a result the cost is assumed to be 2 µs.
 */
public final class Calibration {
    /** The name of both threads. */
    static final String NAME = "fermata-calibration";

    static final int ASSUMED = 2_000;

    private static final int TURNS = 64;
    /** So many turns have to do where the machine is busy. */
    private static final int ENOUGH = 8;
    /** After how long it is over, in ns. */
    private static final long PATIENCE = 1_000_000_000;
    private static final AtomicBoolean BEGUN = new AtomicBoolean();

    private static volatile int sleep = ASSUMED;

    private final long deadline = Deadline.after(PATIENCE, TimeUnit.NANOSECONDS);
    private final Word ping;
    private final Word pong;

    private Calibration() {
        // Never freed, so that no thread can be late; and of the kind that lock files are made of, see Word.
        MemorySegment words = Arena.global().allocate(2 * Layout.LINE, Layout.LINE);
        ping = Word.at(words, 0);
        pong = Word.at(words, Layout.LINE);
    }

    /** The cost of one sleep and wake, in ns: as measured, or as assumed until then. */
    public static int sleep() {
        return sleep;
    }

    /** Begins to measure, the first time. */
    static void begin() {
        if (Spin.LIMIT > 0 && BEGUN.compareAndSet(false, true)) {
            start(() -> sleep = new Calibration().measure());
        }
    }

    /** What goes wrong there is no concern of anybody's: the cost stays as it is assumed. */
    private static void start(Runnable part) {
        try {
            Thread.ofPlatform().daemon().name(NAME).inheritInheritableThreadLocals(false).start(() -> {
                try {
                    part.run();
                } catch (RuntimeException | Error refused) {
                    // By the kernel, say.
                }
            });
        } catch (OutOfMemoryError noThread) {
            // Nor is that.
        }
    }

    private int measure() {
        start(this::answer);
        long[] rounds = new long[TURNS];
        int turns = 0;
        while (turns < TURNS) {
            long start = System.nanoTime();
            turn(ping, turns + 1);
            if (!isAwaited(pong, turns + 1)) {
                break;
            }
            rounds[turns++] = System.nanoTime() - start;
        }
        Arrays.sort(rounds, 0, turns);
        return turns < ENOUGH ? ASSUMED : (int) rounds[turns / 2] / 2; // there and back
    }

    private void answer() {
        for (int turn = 1; turn <= TURNS && isAwaited(ping, turn); turn++) {
            turn(pong, turn);
        }
    }

    private static void turn(Word word, int turn) {
        word.swapRelease(turn);
        Futex.SYSTEM.wake(word, 1);
    }

    /** Waits for the other thread's turn; false where it does not come. */
    private boolean isAwaited(Word word, int turn) {
        int seen;
        while ((seen = word.loadAcquire()) != turn) {
            if (Deadline.passed(deadline)) {
                return false;
            }
            Futex.SYSTEM.sleep(word, seen, deadline);
        }
        return true;
    }
}
