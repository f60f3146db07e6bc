// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.InvalidWordException;
import dev.fermata.internal.Spin;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What {@link LockContract} does not say about {@link WordMutex}. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class WordMutexTest {
    private static final long WORD = 0;
    private static final long COUNTER = 4;
    private static final long OWNER = 8;

    private SharedFile file;
    private MemorySegment segment;
    private WordMutex mutex;

    @BeforeEach
    void map() throws Exception {
        file = SharedFile.create();
        segment = file.segment();
        mutex = WordMutex.at(segment, WORD);
    }

    @AfterEach
    void unmap() throws Exception {
        file.close();
    }

    private void lockSlowly(WordMutex other) throws Exception {
        mutex.lock();
        Waiter<Void> waiter = Waiter.run(other::lock).awaitAsleepOn(segment, WORD);
        mutex.unlock();
        waiter.result();
    }

    @Test
    void theCounterCountsAcquisitionsThatHadToWaitAndNoOthers() throws Exception {
        WordMutex counted = mutex.withSlowPathCounter(COUNTER);
        counted.lock();
        assertFalse(counted.tryLock(1, MILLISECONDS));
        counted.unlock();
        assertTrue(counted.tryLock());
        counted.unlock();
        assertEquals(0, counted.slowPathAcquisitions());
        lockSlowly(counted);
        assertEquals(1, counted.slowPathAcquisitions());
        assertEquals(1, segment.get(JAVA_INT, COUNTER));
    }

    @Test
    void oneWhoGetsTheMutexWhileItSpinsIsCounted() throws Exception {
        assumeTrue(Spin.LIMIT > 0, "nobody spins on a single processor");
        WordMutex counted = mutex.withSlowPathCounter(COUNTER);
        AtomicInteger round = new AtomicInteger();
        AtomicInteger answered = new AtomicInteger();
        AtomicBoolean seen = new AtomicBoolean();
        Waiter<Void> waiter = Waiter.run(() -> {
            for (int n = 1; !seen.get(); n++) {
                for (int i = 0; round.get() < n; i++) {
                    pauseOrYield(i);
                }
                long before = counted.slowPathAcquisitions();
                counted.lock();
                boolean slept = segment.get(JAVA_INT, WORD) != 1; // it would be "locked, with waiters"
                seen.set(!slept && counted.slowPathAcquisitions() > before);
                counted.unlock();
                answered.set(n);
            }
        });
        for (int n = 1; !seen.get(); n++) {
            mutex.lock();
            round.set(n);
            for (int i = n % 100; i > 0; i--) {
                Spin.pause();
            }
            mutex.unlock();
            for (int i = 0; answered.get() < n; i++) {
                pauseOrYield(i);
            }
        }
        waiter.result();
    }

    private static void pauseOrYield(int i) {
        if (i < 1000) {
            Thread.onSpinWait();
        } else {
            Thread.yield();
        }
    }

    @Test
    void theCounterIsUnsignedAndWraps() throws Exception {
        segment.set(JAVA_INT, COUNTER, -1);
        WordMutex counted = mutex.withSlowPathCounter(COUNTER);
        assertEquals(0xffff_ffffL, counted.slowPathAcquisitions());
        lockSlowly(counted);
        assertEquals(0, counted.slowPathAcquisitions());
    }

    @Test
    void withoutFurtherWordsThereIsNoCountAndNoOwner() {
        mutex.lock();
        assertEquals(-1, mutex.slowPathAcquisitions());
        assertEquals(0, mutex.owner());
        for (long offset = COUNTER; offset < SharedFile.SIZE; offset += 4) {
            assertEquals(0, segment.get(JAVA_INT, offset));
        }
    }

    @Test
    void theOwnerWordHoldsTheIdWhileTheMutexIsHeldAndOnlyThen() throws Exception {
        WordMutex owned = mutex.withOwnerWord(OWNER, 77);
        owned.lock();
        assertEquals(77, owned.owner());
        owned.unlock();
        assertEquals(0, owned.owner());
        assertTrue(owned.tryLock());
        assertEquals(77, segment.get(JAVA_INT, OWNER));
        owned.unlock();
        lockSlowly(owned);
        assertEquals(77, owned.owner());
    }

    @Test
    void theOwnerIsThisProcessUnlessAnotherIdIsChosen() {
        WordMutex owned = mutex.withOwnerWord(OWNER);
        owned.lock();
        assertEquals(ProcessHandle.current().pid(), owned.owner());
    }

    @Test
    void aTryThatFailsLeavesTheOwnerAndTheCounterAlone() {
        WordMutex holder = mutex.withSlowPathCounter(COUNTER).withOwnerWord(OWNER, 1);
        WordMutex other = mutex.withSlowPathCounter(COUNTER).withOwnerWord(OWNER, 2);
        holder.lock();
        assertFalse(other.tryLock());
        assertFalse(other.tryLock(1, MILLISECONDS));
        assertEquals(1, holder.owner());
        assertEquals(0, holder.slowPathAcquisitions());
    }

    @Test
    void unlockingAFreeMutexLeavesTheOwnerWordAlone() {
        segment.set(JAVA_INT, OWNER, 5);
        assertThrows(IllegalMonitorStateException.class, mutex.withOwnerWord(OWNER)::unlock);
        assertEquals(5, segment.get(JAVA_INT, OWNER));
    }

    @Test
    void anOwnerIdOfZeroIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> mutex.withOwnerWord(OWNER, 0));
    }

    @Test
    void noWordIsUsedTwice() {
        assertThrows(InvalidWordException.class, () -> mutex.withOwnerWord(WORD, 1));
        assertThrows(InvalidWordException.class, () -> mutex.withSlowPathCounter(WORD));
        assertThrows(InvalidWordException.class,
                () -> mutex.withSlowPathCounter(COUNTER).withOwnerWord(COUNTER, 1));
        assertThrows(InvalidWordException.class,
                () -> mutex.withOwnerWord(OWNER, 1).withSlowPathCounter(OWNER));
        assertThrows(InvalidWordException.class, () -> mutex.withOwnerWord(OWNER + 1));
    }

    @Test
    void itTellsItsState() throws Exception {
        WordMutex owned = mutex.withOwnerWord(OWNER, 7);
        assertFalse(owned.isLocked());
        assertEquals("WordMutex[word at offset 0, free]", owned.toString());
        owned.lock();
        assertTrue(owned.isLocked());
        assertEquals("WordMutex[word at offset 0, locked, owner 7]", owned.toString());
        Waiter<Void> waiter = Waiter.run(mutex::lock).awaitAsleepOn(segment, WORD);
        assertEquals("WordMutex[word at offset 0, locked, with waiters]", mutex.toString());
        assertTrue(mutex.isLocked());
        owned.unlock();
        waiter.result();
    }
}
