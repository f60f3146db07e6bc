// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertThrowsExactly;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.DamagedMappingException;
import dev.fermata.InvalidWordException;
import dev.fermata.internal.Futex;
import dev.fermata.internal.Word;
import dev.fermata.testing.ContractLock;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.SignalStorm;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What every lock in a word does. A mode that is not exclusive tells how it can be kept out. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
abstract class LockContract {
    static final long OFFSET = 64;

    SharedFile file;
    MemorySegment segment;
    ContractLock lock;
    /** Keeps {@link #lock} out while it is held; the same mode where that is exclusive. */
    ContractLock other;

    /** The lock in the word at that offset; further words, if any, in the 60 bytes behind. */
    abstract ContractLock lockAt(MemorySegment segment, long offset);

    /** Something that excludes the lock in the word at that offset. */
    ContractLock otherAt(MemorySegment segment, long offset) {
        return lockAt(segment, offset);
    }

    /** Values that the protocol never writes. */
    abstract int[] impossibleValues();

    @BeforeEach
    void map() throws Exception {
        file = SharedFile.create();
        segment = file.segment();
        lock = lockAt(segment, OFFSET);
        other = otherAt(segment, OFFSET);
    }

    @AfterEach
    void unmap() throws Exception {
        file.close();
    }

    private int word() {
        return segment.get(JAVA_INT, OFFSET);
    }

    private void assertChangesNothing(Executable action) throws Exception {
        byte[] before = file.bytes();
        try {
            action.execute();
        } catch (Exception | Error e) {
            throw e;
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
        assertArrayEquals(before, file.bytes());
    }

    private Waiter<Void> lockAsleep() throws Exception {
        return Waiter.run(lock::lock).awaitAsleepOn(segment, OFFSET);
    }

    @Test
    void makingALockWritesNothing() throws Exception {
        assertChangesNothing(() -> lockAt(segment, 2 * OFFSET));
        segment.fill((byte) 0x5a);
        assertChangesNothing(() -> lockAt(segment, 2 * OFFSET));
    }

    @Test
    void aWordThatIsAllZeroIsAFreeLockAndAgainAfterUse() throws Exception {
        assertTrue(lock.tryLock());
        lock.unlock();
        assertEquals(0, word());
        lock.lock();
        lock.unlock();
        assertEquals(0, word());
        assertTrue(lock.tryLock(0, MILLISECONDS));
        lock.unlock();
        assertEquals(0, word());
    }

    @Test
    void aLockCannotBeMadeWhereThereIsNoWord() throws Exception {
        assertThrows(InvalidWordException.class, () -> lockAt(segment, 2));
        assertThrows(InvalidWordException.class, () -> lockAt(segment, -4));
        assertThrows(InvalidWordException.class, () -> lockAt(segment, SharedFile.SIZE));
        assertThrows(InvalidWordException.class, () -> lockAt(segment.asReadOnly(), OFFSET));
        assertThrows(InvalidWordException.class, () -> lockAt(MemorySegment.ofArray(new int[1024]), OFFSET));
        assertThrows(NullPointerException.class, () -> lockAt(null, OFFSET));
    }

    @Test
    void aTryOnAHeldLockFailsAndChangesNothing() throws Exception {
        other.lock();
        assertChangesNothing(() -> assertFalse(lock.tryLock()));
        other.unlock();
        assertTrue(lock.tryLock());
        assertChangesNothing(() -> assertFalse(other.tryLock()));
    }

    @Test
    void neighboringBytesAreNotTouched() {
        segment.set(JAVA_INT, OFFSET - 4, -1);
        segment.set(JAVA_INT, OFFSET + 60, -1);
        lock.lock();
        lock.unlock();
        assertEquals(-1, segment.get(JAVA_INT, OFFSET - 4));
        assertEquals(-1, segment.get(JAVA_INT, OFFSET + 60));
    }

    @Test
    void aTimedTryOnAHeldLockWaitsForItsTimeAndFails() {
        other.lock();
        long start = System.nanoTime();
        assertFalse(lock.tryLock(50, MILLISECONDS));
        assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(50));
        other.unlock();
        assertTrue(lock.tryLock());
    }

    @Test
    void aTimedTryTakesALockThatIsReleasedInTime() throws Exception {
        other.lock();
        Waiter<Boolean> waiter = Waiter.call(() -> lock.tryLock(1, TimeUnit.HOURS)).awaitAsleepOn(segment, OFFSET);
        other.unlock();
        assertTrue(waiter.result());
        assertFalse(other.tryLock());
    }

    @Test
    void aTimedTryKeepsItsTimeUnderSignals() throws Exception {
        other.lock();
        long start = System.nanoTime();
        Waiter<Boolean> waiter = Waiter.call(() -> lock.tryLock(100, MILLISECONDS));
        try (SignalStorm<Boolean> storm = SignalStorm.on(waiter)) {
            assertFalse(storm.result());
        }
        assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(100));
    }

    @Test
    void aTimeoutWithoutAUnitIsRefusedBeforeAnythingElse() throws Exception {
        assertChangesNothing(() -> assertThrows(NullPointerException.class, () -> lock.tryLock(1, null)));
        assertChangesNothing(() -> assertThrows(NullPointerException.class, () -> lock.tryLock(0, null)));
    }

    @ParameterizedTest
    @EnumSource
    void aTimeoutOfZeroOrLessMakesOneAttempt(TimeUnit unit) throws Exception {
        for (long timeout : new long[] {0, -1, Long.MIN_VALUE}) {
            assertTrue(lock.tryLock(timeout, unit));
            lock.unlock();
            other.lock();
            assertChangesNothing(() -> assertFalse(lock.tryLock(timeout, unit)));
            other.unlock();
        }
    }

    @ParameterizedTest
    @EnumSource
    void theLargestTimeoutWaitsForEver(TimeUnit unit) throws Exception {
        other.lock();
        Waiter<Boolean> waiter = Waiter.call(() -> lock.tryLock(Long.MAX_VALUE, unit)).awaitAsleepOn(segment, OFFSET);
        other.unlock();
        assertTrue(waiter.result());
    }

    @Test
    void unlockingAFreeLockIsRefusedAndChangesNothing() throws Exception {
        assertChangesNothing(() -> assertThrowsExactly(IllegalMonitorStateException.class, lock::unlock));
        lock.lock();
        lock.unlock();
        assertChangesNothing(() -> assertThrowsExactly(IllegalMonitorStateException.class, lock::unlock));
        assertTrue(other.tryLock());
    }

    @Test
    void ofTwoWhoUnlockAtOnceExactlyOneIsRefused() throws Exception {
        int over = Integer.MAX_VALUE;
        AtomicInteger round = new AtomicInteger();
        AtomicInteger answered = new AtomicInteger();
        Waiter<Integer> other = Waiter.call(() -> {
            int refused = 0;
            for (int n = 1; awaitAtLeast(n, round) != over; n++) {
                refused += unlocks() ? 0 : 1;
                answered.set(n);
            }
            return refused;
        });
        int refused = 0;
        int rounds = 0;
        long start = System.nanoTime();
        while (rounds < 5_000 && System.nanoTime() - start < MILLISECONDS.toNanos(500)) {
            rounds++;
            lock.lock();
            round.set(rounds);
            refused += unlocks() ? 0 : 1;
            awaitAtLeast(rounds, answered);
        }
        round.set(over);
        assertEquals(rounds, refused + other.result());
    }

    private boolean unlocks() {
        try {
            lock.unlock();
            return true;
        } catch (IllegalMonitorStateException refused) {
            return false;
        }
    }

    private static int awaitAtLeast(int n, AtomicInteger counter) {
        for (int i = 0; counter.get() < n; i++) {
            if (i < 1000) {
                Thread.onSpinWait();
            } else {
                Thread.yield();
            }
        }
        return counter.get();
    }

    @Test
    void anotherThreadMayUnlock() throws Exception {
        lock.lock();
        Waiter.run(lock::unlock).result();
        assertTrue(other.tryLock());
    }

    @Test
    void locksOverTwoMappingsOfOneFileAreTheSameLock() throws Exception {
        MemorySegment second = file.map();
        ContractLock there = otherAt(second, OFFSET);
        there.lock();
        assertFalse(lock.tryLock());
        Waiter<Void> waiter = lockAsleep();
        there.unlock();
        waiter.result();
        assertFalse(there.tryLock());
        lockAt(second, OFFSET).unlock();
        assertTrue(there.tryLock());
    }

    @Test
    void anImpossibleValueIsNamedAndLeftAsItIs() throws Exception {
        List<Executable> calls = List.of(lock::lock, lock::tryLock, () -> lock.tryLock(1, MILLISECONDS),
                () -> lock.tryLock(-1, MILLISECONDS), lock::unlock, other::lock, other::unlock);
        for (int value : impossibleValues()) {
            segment.set(JAVA_INT, OFFSET, value);
            for (Executable call : calls) {
                assertChangesNothing(() -> assertNames(value, call));
            }
        }
    }

    private static void assertNames(int value, Executable call) {
        String message = assertThrows(DamagedMappingException.class, call).getMessage();
        assertTrue(message.contains("holds " + Integer.toUnsignedLong(value) + " "), message);
    }

    @Test
    void anImpossibleValueThatAppearsDuringAWaitIsNamedAndLeftAsItIs() throws Exception {
        int value = impossibleValues()[0];
        other.lock();
        Waiter<Void> waiter = lockAsleep();
        segment.set(JAVA_INT, OFFSET, value);
        Futex.SYSTEM.wake(Word.at(segment, OFFSET), Futex.ALL);
        assertNames(value, waiter::result);
        assertEquals(value, word());
    }

    @Test
    void anInterruptNeitherEndsAWaitNorIsForgotten() throws Exception {
        other.lock();
        Waiter<Boolean> waiter = Waiter.call(() -> {
            Thread.currentThread().interrupt();
            lock.lock();
            return Thread.interrupted();
        });
        waiter.awaitAsleepOn(segment, OFFSET);
        other.unlock();
        assertTrue(waiter.result());
    }

    @Test
    void anInterruptDoesNotShortenATimedTry() throws Exception {
        other.lock();
        Waiter<Boolean> waiter = Waiter.call(() -> {
            Thread.currentThread().interrupt();
            long start = System.nanoTime();
            assertFalse(lock.tryLock(20, MILLISECONDS));
            assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(20));
            return Thread.interrupted();
        });
        assertTrue(waiter.result());
    }

    @Test
    void everyUseAfterTheEndOfTheArenaIsRefused() {
        file.closeArena();
        assertThrowsExactly(IllegalStateException.class, lock::tryLock);
        assertThrowsExactly(IllegalStateException.class, lock::lock);
        assertThrowsExactly(IllegalStateException.class, () -> lock.tryLock(1, MILLISECONDS));
        assertThrowsExactly(IllegalStateException.class, lock::unlock);
    }

    @Test
    void theArenaCannotBeClosedWhileSomebodyWaits() throws Exception {
        other.lock();
        Waiter<Void> waiter = lockAsleep();
        assertThrowsExactly(IllegalStateException.class, file::closeArena);
        other.unlock();
        waiter.result();
        file.closeArena();
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 8})
    void everySleeperGetsItsTurn(int sleepers) throws Exception {
        other.lock();
        List<Waiter<Void>> waiters = new ArrayList<>();
        for (int i = 0; i < sleepers; i++) {
            waiters.add(Waiter.run(() -> {
                lock.lock();
                lock.unlock();
            }));
            waiters.getLast().awaitAsleepOn(segment, OFFSET);
        }
        other.unlock();
        for (Waiter<Void> waiter : waiters) {
            waiter.result();
        }
        assertEquals(0, word());
    }

    @Test
    void theDescriptionSaysWhereTheWordIs() {
        IllegalMonitorStateException e = assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(e.getMessage().contains("offset " + OFFSET), e.getMessage());
    }
}
