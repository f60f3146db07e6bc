// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The state of a stress test: a word at offset 0 of a zeroed cell of native memory, and what the word guards, once in
 * the cell and once on the heap, with plain accesses only.
 *
 * <p>States are created by the million, so the cells come from one slab, in turn, and are used again. A state lives no
 * longer than a pass over all states that follows the one it was created in: fewer than 2 * strideCount * strideSize
 * states, 20,480 by default, are created meanwhile. There are three times as many cells.
 */
class Guarded {
    private static final int CELL = 64; // a cache line
    private static final int CELLS = 1 << 16;
    private static final MemorySegment SLAB = Arena.global().allocate(CELLS * CELL, CELL);
    private static final AtomicInteger NEXT = new AtomicInteger();

    private static final long NATIVE = 32;

    /** A pass over all states takes far less. */
    private static final long STALLED_SECONDS = 20;

    static {
        Thread watchdog = new Thread(Guarded::watch, "watchdog");
        watchdog.setDaemon(true);
        watchdog.start();
    }

    /** Ends the JVM, which is a failure of the test, when an actor sleeps for ever. */
    private static void watch() {
        int seen;
        do {
            seen = NEXT.get();
            try {
                Thread.sleep(Duration.ofSeconds(STALLED_SECONDS));
            } catch (InterruptedException impossible) {
                throw new AssertionError(impossible);
            }
        } while (NEXT.get() != seen);
        System.err.println("no new state for " + STALLED_SECONDS + " s: an actor was not woken");
        Runtime.getRuntime().halt(1);
    }

    final MemorySegment cell = take();
    private long heap;

    private static MemorySegment take() {
        int i = NEXT.getAndIncrement() & CELLS - 1;
        return SLAB.asSlice((long) i * CELL, CELL).fill((byte) 0);
    }

    final void write(long value) {
        cell.set(JAVA_LONG, NATIVE, value);
        heap = value;
    }

    final void increment() {
        cell.set(JAVA_LONG, NATIVE, cell.get(JAVA_LONG, NATIVE) + 1);
        heap++;
    }

    /** Both halves as one number with two equal digits, or with different ones where the pair is torn. */
    final int read() {
        long onHeap = heap; // in the order opposite to write
        return (int) (10 * cell.get(JAVA_LONG, NATIVE) + onHeap);
    }
}
