// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import dev.fermata.DamagedMappingException;
import dev.fermata.InvalidWordException;
import dev.fermata.internal.Deadline;
import dev.fermata.internal.Futex;
import dev.fermata.internal.Spin;
import dev.fermata.internal.Word;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.TimeUnit;

/**
 * A test-and-set flag that can be waited for, as {@code atomic_flag} of C and C++.
 *
 * <p>One-shot use: parties {@link #awaitSet()}, one calls {@link #testAndSet}; {@link #reset} before the next round. A
 * state that lasts only a moment may be missed by a waiter, which then goes on waiting.
 *
 * <p>A change of the state costs one system call (some 0.3 µs), since the word holds no trace of its waiters; setting a
 * flag that is set costs none. All sleepers are woken; there is no order among them.
 *
 * <p>Every method throws {@link DamagedMappingException} where the page of the word is gone, or the word holds
 * something else than 0 or 1. For the memory contract, late errors and a process's death see the package's page.
 *
 * <pre>
 * value 0 CLEAR
 *       1 SET
 * </pre>
 */
public final class AtomicFlag {
    private static final int CLEAR = 0;
    private static final int SET = 1;

    private final Word word;
    private final Futex futex;

    AtomicFlag(Word word, Futex futex) {
        this.word = word;
        this.futex = futex;
    }

    /**
     * The flag at an offset. Nothing is written: memory that is all zero holds a clear flag.
     *
     * @param segment native or mapped, writable memory
     * @param offset where the word lies, in bytes; its address must be a multiple of 4
     * @return the flag
     * @throws InvalidWordException if there can be no word at that place
     */
    public static AtomicFlag at(MemorySegment segment, long offset) {
        return new AtomicFlag(Word.at(segment, offset), Futex.SYSTEM);
    }

    /**
     * Whether the flag is set. Acquire: what was written before it was set is seen.
     *
     * @return whether it is set
     */
    public boolean isSet() {
        try {
            return look() == SET;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Sets the flag and wakes everybody who waits for that. Acquire and release.
     *
     * @return whether it was set before: {@code false} for exactly one of many callers that compete
     */
    public boolean testAndSet() {
        try {
            return look() == SET || swap(SET) == SET;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Clears the flag and wakes everybody who waits for that. Acquire and release.
     *
     * @return whether it was set before
     */
    public boolean clear() {
        try {
            return look() == SET && swap(CLEAR) == SET;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /** Clears the flag for the next round of one-shot use; the same as {@link #clear}. */
    public void reset() {
        clear();
    }

    /** Waits until the flag is set. Acquire. */
    public void awaitSet() {
        await(SET, Deadline.NEVER);
    }

    /**
     * Waits until the flag is set, for at most the given time. Acquire.
     *
     * @param timeout how long; 0 or less looks once, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it is set
     */
    public boolean awaitSet(long timeout, TimeUnit unit) {
        return await(SET, Deadline.after(timeout, unit));
    }

    /** Waits until the flag is clear. Acquire. */
    public void awaitCleared() {
        await(CLEAR, Deadline.NEVER);
    }

    /**
     * Waits until the flag is clear, for at most the given time. Acquire.
     *
     * @param timeout how long; 0 or less looks once, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it is clear
     */
    public boolean awaitCleared(long timeout, TimeUnit unit) {
        return await(CLEAR, Deadline.after(timeout, unit));
    }

    private boolean await(int wanted, long deadline) {
        try {
            while (true) {
                // Acquire: pairs with the swap; what was written before the change is seen.
                for (int i = 0; i < Spin.LIMIT && look() != wanted; i++) {
                    Spin.pause();
                }
                if (look() == wanted) {
                    return true;
                }
                if (Deadline.passed(deadline)) {
                    return false;
                }
                futex.sleep(word, SET + CLEAR - wanted, deadline);
            }
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private int look() {
        int v = word.loadAcquire();
        if (v != CLEAR && v != SET) {
            throw word.impossible(v, "0 (clear) or 1 (set)");
        }
        return v;
    }

    /** The state before. Wakes if, and only if, the state changed. */
    private int swap(int state) {
        int before = word.swap(state);
        if (before != state) {
            futex.wake(word, Futex.ALL);
        }
        return before;
    }

    @Override
    public String toString() {
        return "AtomicFlag[%s, %s]".formatted(word, isSet() ? "set" : "clear");
    }
}
