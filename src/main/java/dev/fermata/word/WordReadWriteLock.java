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
 * A shared/exclusive lock in one word: bit 30 says exclusive, bits 0 to 29 count the shared holders.
 *
 * <p>Not re-entrant, not owned: it does not know who holds it. A waiting exclusive claim keeps newcomers out, so shared
 * holders do not starve it; among claimants there is no order, and endless claimants can starve shared ones.
 *
 * <p>Every method throws {@link DamagedMappingException} where the page of the word is gone, or bit 31 of the word is
 * set. For the memory contract, late errors and a process's death see the package's page: what a dead process held stays held, also
 * its shared count.
 *
 * <pre>
 *  31   30    29 .......... 0
 * +---+------+---------------+
 * | 0 | EXCL | COUNT         |
 * +---+------+---------------+
 * 0         free
 * n         n shared holders
 * EXCL      one exclusive holder
 * EXCL | n  one claimant, waiting for n shared holders to leave
 *
 * lockShared       EXCL clear: v -&gt; v + 1
 * unlockShared     v -&gt; v - 1; now exactly EXCL: wake all
 * lockExclusive    claim: EXCL clear: v -&gt; v | EXCL; then drain: wait for exactly EXCL
 * unlockExclusive  EXCL -&gt; 0; wake all
 * </pre>
 *
 * <p>There is one claimant at most, since only a compare-and-set from a value without EXCL makes one. Everybody sleeps
 * on the whole word with the value seen, so no change goes unnoticed; and because different kinds of waiters share the
 * word, every wake is one of all.
 */
public final class WordReadWriteLock {
    private static final int FREE = 0;
    private static final int EXCL = 1 << 30;
    private static final int COUNT = EXCL - 1;

    private final Word word;
    private final Futex futex;

    WordReadWriteLock(Word word, Futex futex) {
        this.word = word;
        this.futex = futex;
    }

    /**
     * The lock at an offset. Nothing is written: memory that is all zero holds a free lock.
     *
     * @param segment native or mapped, writable memory
     * @param offset where the word lies, in bytes; its address must be a multiple of 4
     * @return the lock
     * @throws InvalidWordException if there can be no word at that place
     */
    public static WordReadWriteLock at(MemorySegment segment, long offset) {
        return new WordReadWriteLock(Word.at(segment, offset), Futex.SYSTEM);
    }

    private static boolean isClaimed(int v) {
        return (v & EXCL) != 0;
    }

    private static int shared(int v) {
        return v & COUNT;
    }

    /**
     * Shares the lock if no one holds or claims it exclusively. Acquire if taken.
     *
     * @return whether it was taken
     * @throws Error if 2³⁰−1 holders share it already; nothing has been changed
     */
    public boolean tryLockShared() {
        try {
            int v = look();
            while (!isClaimed(v)) {
                if (shared(v) == COUNT) {
                    throw new Error("Maximum lock count exceeded: %s has %d shared holders".formatted(word, shared(v)));
                }
                // Acquire: pairs with the release in unlockExclusive.
                if (word.casAcquire(v, v + 1)) {
                    return acquired(shared(look()) != 0);
                }
                v = look();
            }
            return false;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Shares the lock, waiting for as long as it takes. Acquire.
     *
     * @throws Error if 2³⁰−1 holders share it already; nothing has been changed
     */
    public void lockShared() {
        lockShared(Deadline.NEVER);
    }

    /**
     * Shares the lock, waiting for at most the given time. Acquire if taken.
     *
     * @param timeout how long; 0 or less makes one attempt, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it was taken
     * @throws Error if 2³⁰−1 holders share it already; nothing has been changed
     */
    public boolean tryLockShared(long timeout, TimeUnit unit) {
        Objects.requireNonNull(unit, "unit");
        return tryLockShared() || timeout > 0 && lockShared(Deadline.after(timeout, unit));
    }

    private boolean lockShared(long deadline) {
        try {
            while (!tryLockShared()) {
                if (!awaitUnclaimed(deadline)) {
                    return false;
                }
            }
            return true;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Gives up one share. The last one to leave wakes a waiting claimant. Release.
     *
     * @throws IllegalMonitorStateException if no one shares the lock; nothing has been changed
     */
    public void unlockShared() {
        try {
            int v;
            do {
                v = look();
                if (shared(v) == 0) {
                    throw new IllegalMonitorStateException(this + " has no shared holder");
                }
                // Release: pairs with the acquire in drain; what was read here was read before a writer's change.
            } while (!word.casRelease(v, v - 1));
            if (v - 1 == EXCL) {
                wake();
            }
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * Takes the lock exclusively if it is free. Acquire if taken. Never keeps others out when it fails.
     *
     * @return whether it was taken
     */
    public boolean tryLockExclusive() {
        try {
            return look() == FREE && word.casAcquire(FREE, EXCL) && acquired(look() == EXCL);
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /** Takes the lock exclusively, waiting for as long as it takes. Acquire. */
    public void lockExclusive() {
        lockExclusive(Deadline.NEVER);
    }

    /**
     * Takes the lock exclusively, waiting for at most the given time. Acquire if taken. While it waits for shared
     * holders to leave, newcomers wait too; when its time is up, they are let in again.
     *
     * @param timeout how long; 0 or less makes one attempt, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it was taken
     */
    public boolean tryLockExclusive(long timeout, TimeUnit unit) {
        Objects.requireNonNull(unit, "unit");
        return tryLockExclusive() || timeout > 0 && lockExclusive(Deadline.after(timeout, unit));
    }

    private boolean lockExclusive(long deadline) {
        try {
            return claim(deadline) && drain(deadline);
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private boolean claim(long deadline) {
        while (true) {
            int v = look();
            if (isClaimed(v)) {
                if (!awaitUnclaimed(deadline)) {
                    return false;
                }
            } else if (word.casAcquire(v, v | EXCL)) { // Acquire: pairs with the release in unlockExclusive.
                return true;
            }
        }
    }

    private boolean drain(long deadline) {
        while (true) {
            int v = lookClaimed();
            for (int i = 0; shared(v) != 0 && i < Spin.LIMIT; i++) {
                Spin.pause();
                v = lookClaimed();
            }
            if (v == EXCL) {
                return true;
            }
            if (Deadline.passed(deadline)) {
                return !withdraw();
            }
            futex.sleep(word, v, deadline);
        }
    }

    /** Takes the claim back; {@code false} if the last shared holder left meanwhile and the lock is ours. */
    private boolean withdraw() {
        int v;
        do {
            v = lookClaimed();
            if (v == EXCL) {
                return false;
            }
        } while (!word.casRelease(v, v & ~EXCL));
        wake();
        return true;
    }

    /**
     * Releases the exclusive lock and wakes everybody who waits. Release.
     *
     * @throws IllegalMonitorStateException if it is not held exclusively; nothing has been changed
     */
    public void unlockExclusive() {
        leaveExclusive(FREE);
    }

    /**
     * Turns the exclusive lock into a shared one, without a moment in which it is free. Release.
     *
     * @throws IllegalMonitorStateException if it is not held exclusively; nothing has been changed
     */
    public void downgrade() {
        leaveExclusive(1);
    }

    private void leaveExclusive(int next) {
        try {
            // Release: pairs with the acquires in tryLockShared and claim; publishes the critical section.
            if (look() != EXCL || !word.casRelease(EXCL, next)) {
                throw new IllegalMonitorStateException(this + " is not held exclusively");
            }
            wake();
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private void wake() {
        futex.wake(word, Futex.ALL);
    }

    /** Waits until nobody holds or claims the lock exclusively, or at least looks so for a moment. */
    private boolean awaitUnclaimed(long deadline) {
        int v = look();
        for (int i = 0; isClaimed(v) && i < Spin.LIMIT; i++) {
            Spin.pause();
            v = look();
        }
        if (!isClaimed(v)) {
            return true;
        }
        if (Deadline.passed(deadline)) {
            return false;
        }
        futex.sleep(word, v, deadline);
        return true;
    }

    /**
     * Whether the lock is held or claimed exclusively; out of date at once.
     *
     * @return whether newcomers have to wait
     */
    public boolean isExclusive() {
        return isClaimed(look());
    }

    /**
     * How many share the lock; out of date at once.
     *
     * @return the count
     */
    public int sharedCount() {
        return shared(look());
    }

    /** On a page that is gone, compiled code skips the compare-and-set and may take it for a success. */
    private boolean acquired(boolean confirmed) {
        if (!confirmed) {
            throw word.impossible(look(), "the lock to be held, having just been taken");
        }
        return true;
    }

    private int look() {
        try {
            return checked(word.loadRelaxed());
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /** The claimant's look. Acquire: pairs with the release in unlockShared. */
    private int lookClaimed() {
        int v = checked(word.loadAcquire());
        if (!isClaimed(v)) {
            throw word.impossible(v, "bit 30 set, having just been claimed");
        }
        return v;
    }

    private int checked(int v) {
        if (v < 0) {
            throw word.impossible(v, "bit 31 clear");
        }
        return v;
    }

    @Override
    public String toString() {
        int v = look();
        return "WordReadWriteLock[%s, %s%d shared]".formatted(word, isClaimed(v) ? "exclusive, " : "", shared(v));
    }
}
