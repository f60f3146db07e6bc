// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import dev.fermata.DamagedMappingException;
import dev.fermata.InvalidWordException;
import dev.fermata.internal.Deadline;
import dev.fermata.internal.Futex;
import dev.fermata.internal.Spin;
import dev.fermata.internal.Word;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/**
 * A lock of two states that is spun on with PAUSE for a number of tries and then slept on.
 *
 * <p>Not re-entrant, not owned: it does not know who holds it, so any thread of any process may release it. No
 * fairness: whoever comes first after a release takes it, sleepers are woken one at a time. The word does not tell
 * whether anybody sleeps, so every release pays a system call; where all parties are free to choose, {@link WordMutex}
 * is the better one.
 *
 * <p>Every method throws {@link DamagedMappingException} where the page of the word is gone, or the word holds
 * something else than 0 or 1. For the memory contract, late errors and a process's death see the package's page.
 *
 * <pre>
 * value 0 FREE
 *       1 LOCKED  held; there may be sleepers
 * </pre>
 */
public final class SpinLock {
    /** The number of tries before a waiter sleeps, unless another is chosen. */
    public static final int DEFAULT_SPIN_LIMIT = 100;

    private static final int FREE = 0;
    private static final int LOCKED = 1;

    private final Word word;
    private final Futex futex;
    private final int spinLimit;

    SpinLock(Word word, Futex futex, int spinLimit) {
        if (spinLimit < 0) {
            throw new IllegalArgumentException("spinLimit must be 0 or more, found " + spinLimit);
        }
        this.word = word;
        this.futex = futex;
        this.spinLimit = Spin.LIMIT == 0 ? 0 : spinLimit; // nobody spins on a single CPU
    }

    /**
     * The lock at an offset, with the default spin limit. Nothing is written: memory that is all zero holds a free
     * lock.
     *
     * @param segment native or mapped, writable memory
     * @param offset where the word lies, in bytes; its address must be a multiple of 4
     * @return the lock
     * @throws InvalidWordException if there can be no word at that place
     */
    public static SpinLock at(MemorySegment segment, long offset) {
        return at(segment, offset, DEFAULT_SPIN_LIMIT);
    }

    /**
     * The lock at an offset. The spin limit concerns this object only; other users of the word may have another one.
     *
     * @param segment native or mapped, writable memory
     * @param offset where the word lies, in bytes; its address must be a multiple of 4
     * @param spinLimit tries before a waiter sleeps, 20 to 50 ns each
     * @return the lock
     * @throws InvalidWordException if there can be no word at that place
     * @throws IllegalArgumentException if the limit is negative
     */
    public static SpinLock at(MemorySegment segment, long offset, int spinLimit) {
        return new SpinLock(Word.at(segment, offset), Futex.SYSTEM, spinLimit);
    }

    /**
     * Takes the lock if it is free. Acquire if taken.
     *
     * @return whether it was taken
     */
    public boolean tryLock() {
        try {
            // Acquire: pairs with the release in unlock; makes the critical section before this one visible.
            return look() == FREE && word.casAcquire(FREE, LOCKED) && acquired();
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /** Takes the lock, waiting for as long as it takes. Acquire. */
    public void lock() {
        try {
            if (!tryLock()) {
                lockContended(Deadline.NEVER);
            }
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Takes the lock, waiting for at most the given time. Acquire if taken.
     *
     * @param timeout how long; 0 or less makes one attempt, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it was taken
     */
    public boolean tryLock(long timeout, TimeUnit unit) {
        Objects.requireNonNull(unit, "unit");
        return tryLock() || timeout > 0 && lockContended(Deadline.after(timeout, unit));
    }

    private boolean lockContended(long deadline) {
        try {
            while (true) {
                for (int i = 0; i < spinLimit; i++) {
                    if (tryLock()) {
                        return true;
                    }
                    Spin.pause();
                }
                // One who was woken tries before it looks at the clock: if that fails, the new holder wakes the next.
                if (tryLock()) {
                    return true;
                }
                if (Deadline.passed(deadline)) {
                    return false;
                }
                futex.sleep(word, LOCKED, deadline);
            }
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private boolean acquired() {
        // On a page that is gone, compiled code skips the compare-and-set and may take it for a success.
        if (look() == FREE) {
            throw word.impossible(FREE, "1, having just been locked");
        }
        return true;
    }

    /**
     * Releases the lock and wakes one sleeper. Release.
     *
     * @throws IllegalMonitorStateException if it is free; nothing has been changed
     */
    public void unlock() {
        try {
            // Release: pairs with the acquire in tryLock; publishes the critical section.
            if (look() == FREE || word.swapRelease(FREE) == FREE) {
                throw new IllegalMonitorStateException(this + " is not locked");
            }
            futex.wake(word, 1);
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Whether anybody holds the lock; out of date at once.
     *
     * @return whether it is held
     */
    public boolean isLocked() {
        return look() == LOCKED;
    }

    private int look() {
        try {
            int v = word.loadRelaxed();
            if (v != FREE && v != LOCKED) {
                throw word.impossible(v, "0 (free) or 1 (locked)");
            }
            return v;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    @Override
    public String toString() {
        return "SpinLock[%s, %s]".formatted(word, isLocked() ? "locked" : "free");
    }
}
