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
 * The three-state mutex in one word: free, locked, locked with waiters. Taking and releasing it makes no system call
 * unless somebody has to wait.
 *
 * <p>Not re-entrant, not owned: it does not know who holds it, so any thread of any process may release it. No
 * fairness: whoever comes first after a release takes it, sleepers are woken one at a time.
 *
 * <p>Two further words can be added by those who lay out the memory: a {@linkplain #withSlowPathCounter counter} of the
 * acquisitions that had to wait, and an {@linkplain #withOwnerWord owner word} that says to people who holds the lock.
 *
 * <p>Every method throws {@link DamagedMappingException} where the page of the word is gone, or the word holds
 * something else than 0, 1 or 2. For the memory contract, late errors and a process's death see the package's page.
 *
 * <p>The algorithm is the second mutex of U. Drepper, <i>Futexes Are Tricky</i>, in its form with exchange. The word:
 *
 * <pre>
 * value 0 FREE
 *       1 LOCKED     held, nobody sleeps
 *       2 CONTENDED  held, somebody may sleep; without a sleeper it costs one needless wake
 *
 * lock    FREE -&gt; LOCKED; a waiter: any -&gt; CONTENDED, and it holds the lock if that was FREE
 * unlock  any -&gt; FREE; CONTENDED: wake one
 * </pre>
 *
 * <p>LOCKED with a sleeper would be fatal, the sleeper is lost. It cannot be: a sleeper has written CONTENDED, and only
 * FREE follows that. From FREE one sleeper is woken and writes CONTENDED again before it does anything else, even
 * before it finds that its time is up.
 */
public final class WordMutex {
    private static final int FREE = 0;
    private static final int LOCKED = 1;
    private static final int CONTENDED = 2;

    private final MemorySegment segment;
    private final Word word;
    private final Futex futex;
    private final Word slowPaths; // or null
    private final Word owner; // or null
    private final int ownerId;

    WordMutex(MemorySegment segment, Word word, Futex futex, Word slowPaths, Word owner, int ownerId) {
        this.segment = segment;
        this.word = word;
        this.futex = futex;
        this.slowPaths = slowPaths;
        this.owner = owner;
        this.ownerId = ownerId;
    }

    private static boolean isHeld(int v) {
        return v == LOCKED || v == CONTENDED;
    }

    /**
     * The mutex at an offset. Nothing is written: memory that is all zero holds a free mutex.
     *
     * @param segment native or mapped, writable memory
     * @param offset where the word lies, in bytes; its address must be a multiple of 4
     * @return the mutex
     * @throws InvalidWordException if there can be no word at that place
     */
    public static WordMutex at(MemorySegment segment, long offset) {
        return new WordMutex(segment, Word.at(segment, offset), Futex.SYSTEM, null, null, 0);
    }

    /**
     * The same mutex with a counter of slow-path acquisitions in another word of the segment. It wraps at 2³².
     *
     * @param offset where the counter lies, in bytes; its address must be a multiple of 4
     * @return a mutex over the same word
     * @throws InvalidWordException if there can be no word at that place
     */
    public WordMutex withSlowPathCounter(long offset) {
        return new WordMutex(segment, word, futex, companion(offset), owner, ownerId);
    }

    /**
     * The same mutex with an owner word that holds this process's id while this process holds the mutex.
     *
     * @param offset where the owner word lies, in bytes; its address must be a multiple of 4
     * @return a mutex over the same word
     * @throws InvalidWordException if there can be no word at that place
     */
    public WordMutex withOwnerWord(long offset) {
        return withOwnerWord(offset, (int) ProcessHandle.current().pid());
    }

    /**
     * The same mutex with an owner word. It is for people only, nothing is decided from it: it is written just after
     * the mutex was taken and zeroed just before it is released, and a process may die in between.
     *
     * @param offset where the owner word lies, in bytes; its address must be a multiple of 4
     * @param id what to write there while this object's user holds the mutex; not 0
     * @return a mutex over the same word
     * @throws InvalidWordException if there can be no word at that place
     * @throws IllegalArgumentException if the id is 0, which says "nobody"
     */
    public WordMutex withOwnerWord(long offset, int id) {
        if (id == 0) {
            throw new IllegalArgumentException("an owner id of 0 says \"nobody\"; choose another");
        }
        return new WordMutex(segment, word, futex, slowPaths, companion(offset), id);
    }

    private Word companion(long offset) {
        Word companion = Word.at(segment, offset);
        for (Word other : new Word[] {word, slowPaths, owner}) {
            if (other != null && other.isAt(companion)) {
                throw new InvalidWordException(segment, offset, "this mutex uses that word already; choose another");
            }
        }
        return companion;
    }

    /**
     * Takes the mutex if it is free. Acquire if taken.
     *
     * @return whether it was taken
     */
    public boolean tryLock() {
        try {
            if (Word.INTERPRETED) {
                look(); // finds a lost page, which the compare-and-set would not survive there
            }
            return take() || look() == FREE && take();
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /** Takes the mutex, waiting for as long as it takes. Acquire. */
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
     * Takes the mutex, waiting for at most the given time. Acquire if taken.
     *
     * @param timeout how long; 0 or less makes one attempt, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it was taken
     */
    public boolean tryLock(long timeout, TimeUnit unit) {
        Objects.requireNonNull(unit, "unit");
        return tryLock() || timeout > 0 && lockContended(Deadline.after(timeout, unit));
    }

    private boolean take() {
        // Acquire: pairs with the release in unlock; makes the critical section before this one visible.
        return word.casAcquire(FREE, LOCKED) && acquired();
    }

    private boolean lockContended(long deadline) {
        try {
            int v = spin();
            if (v == FREE && word.casAcquire(FREE, LOCKED)) {
                return acquiredSlowly();
            }
            while (true) {
                // Before the clock: one who was woken and leaves must leave CONTENDED for the sleepers that remain.
                if (v != CONTENDED && word.swapAcquire(CONTENDED) == FREE) {
                    return acquiredSlowly();
                }
                if (Deadline.passed(deadline)) {
                    return false;
                }
                futex.sleep(word, CONTENDED, deadline);
                v = spin();
            }
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /** Looks for a while whether the mutex becomes free; pointless where others sleep already. */
    private int spin() {
        int v = look();
        for (int i = 0; v == LOCKED && i < Spin.LIMIT; i++) {
            Spin.pause();
            v = look();
        }
        return v;
    }

    private boolean acquiredSlowly() {
        if (slowPaths != null) {
            slowPaths.addRelaxed(1);
        }
        return acquired();
    }

    private boolean acquired() {
        if (owner != null) {
            owner.storeRelaxed(ownerId);
        }
        // On a page that is gone, compiled code skips the compare-and-set and may take it for a success.
        int v = word.loadPlain();
        if (!isHeld(v)) {
            throw word.impossible(v, "1 or 2, having just been locked");
        }
        return true;
    }

    /**
     * Releases the mutex, and wakes one sleeper if there may be any. Release.
     *
     * @throws IllegalMonitorStateException if it is free; nothing has been changed, but that the owner word may have
     *     been zeroed if two released the mutex at once
     */
    public void unlock() {
        try {
            if (!isHeld(word.loadPlain()) && look() == FREE) {
                throw notLocked();
            }
            if (owner != null) {
                owner.storeRelaxed(0);
            }
            // Release: pairs with the acquire in lock; publishes the critical section.
            switch (word.swapRelease(FREE)) {
                case FREE -> throw notLocked();
                case CONTENDED -> wake();
                default -> { }
            }
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private void wake() {
        futex.wake(word, 1);
    }

    /**
     * Whether anybody holds the mutex; out of date at once.
     *
     * @return whether it is held
     */
    public boolean isLocked() {
        return look() != FREE;
    }

    /**
     * How many acquisitions had to take the slow path, by all users that share the counter, modulo 2³².
     *
     * @return the count, or -1 where there is no counter
     */
    public long slowPathAcquisitions() {
        try {
            return slowPaths == null ? -1 : Integer.toUnsignedLong(slowPaths.loadRelaxed());
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    /**
     * What the owner word says; out of date at once, and for people only.
     *
     * @return the holder's id, or 0 for nobody and where there is no owner word
     */
    public int owner() {
        try {
            return owner == null ? 0 : owner.loadRelaxed();
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private int look() {
        try {
            int v = word.loadRelaxed();
            if (v != FREE && !isHeld(v)) {
                throw word.impossible(v, "0 (free), 1 (locked) or 2 (locked, with waiters)");
            }
            return v;
        } catch (InternalError e) {
            throw DamagedMappingException.of(e);
        }
    }

    private IllegalMonitorStateException notLocked() {
        return new IllegalMonitorStateException(this + " is not locked");
    }

    @Override
    public String toString() {
        String state = switch (look()) {
            case FREE -> "free";
            case LOCKED -> "locked";
            default -> "locked, with waiters";
        };
        return "WordMutex[%s, %s%s]".formatted(word, state, owner() == 0 ? "" : ", owner " + owner());
    }
}
