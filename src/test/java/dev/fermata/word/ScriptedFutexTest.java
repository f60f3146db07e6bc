// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.util.concurrent.TimeUnit.HOURS;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.DamagedMappingException;
import dev.fermata.internal.Deadline;
import dev.fermata.internal.Futex;
import dev.fermata.internal.Futex.Result;
import dev.fermata.internal.Word;
import dev.fermata.testing.ScriptedFutex;
import dev.fermata.testing.ScriptedFutex.Step;
import dev.fermata.testing.ScriptedFutex.Wake;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * When exactly each protocol waits and wakes. The futex is a script, so one thread plays all parties: what others do,
 * they do during its waits.
 */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ScriptedFutexTest {
    private static final long WORD = 0;
    private static final long COUNTER = 4;
    private static final long OWNER = 8;
    /** Of a try whose time is up during its wait: long enough to get there, also on a busy machine. */
    private static final long TIME = 200;
    private static final int ALL = Futex.ALL;
    private static final List<Wake> NO_WAKE = List.of();

    private final MemorySegment segment = Arena.ofAuto().allocate(JAVA_INT, 16);
    private final Word word = Word.at(segment, WORD);
    private final ScriptedFutex futex = new ScriptedFutex();

    private int value() {
        return word.loadRelaxed();
    }

    private void set(int value) {
        word.storeRelaxed(value);
    }

    /** A step that lasts beyond the deadline of the wait. */
    private Step overdue(int value, Result result) {
        return word -> {
            long deadline = futex.waits().getLast().deadline();
            while (!Deadline.passed(deadline)) {
                LockSupport.parkNanos(deadline - System.nanoTime());
            }
            word.storeRelaxed(value);
            return result;
        };
    }

    /** Runs an action whose waits have no deadline of their own: each ends when it is time to look again. */
    private void assertLooksAgain(Runnable action) {
        long before = System.nanoTime();
        action.run();
        long after = System.nanoTime();
        assertFalse(futex.waits().isEmpty());
        for (ScriptedFutex.Wait wait : futex.waits()) {
            assertTrue(before + Futex.LOOK_AGAIN <= wait.deadline() && wait.deadline() <= after + Futex.LOOK_AGAIN);
        }
    }

    private void assertCalls(List<Integer> waits, Wake... wakes) {
        assertEquals(waits, futex.expectations());
        assertEquals(List.of(wakes), futex.wakes());
    }

    @Nested
    class OfWordMutex {
        private static final int FREE = 0;
        private static final int LOCKED = 1;
        private static final int CONTENDED = 2;

        private final WordMutex mutex = new WordMutex(
                segment, word, futex, Word.at(segment, COUNTER), Word.at(segment, OWNER), 7);

        private int counter() {
            return segment.get(JAVA_INT, COUNTER);
        }

        private int owner() {
            return segment.get(JAVA_INT, OWNER);
        }

        @Test
        void withoutContentionThereIsNoCall() {
            mutex.lock();
            assertEquals(LOCKED, value());
            mutex.unlock();
            assertTrue(mutex.tryLock());
            assertFalse(mutex.tryLock());
            mutex.unlock();
            assertTrue(mutex.tryLock(1, HOURS));
            assertEquals(LOCKED, value());
            mutex.unlock();
            assertThrows(IllegalMonitorStateException.class, mutex::unlock);
            assertCalls(List.of());
            assertEquals(0, counter());
        }

        @Test
        void unlockWakesOneIfSomebodyMaySleepAfterTheWordIsFree() {
            set(CONTENDED);
            segment.set(JAVA_INT, OWNER, 7);
            futex.onWake(() -> assertEquals(0, owner()));
            mutex.unlock();
            assertCalls(List.of(), new Wake(1, FREE));
        }

        @Test
        void unlockDoesNotTouchTheWordAfterItIsFree() {
            set(CONTENDED);
            futex.onWake(() -> {
                set(LOCKED);
                segment.set(JAVA_INT, OWNER, 9);
            });
            mutex.unlock();
            assertEquals(LOCKED, value());
            assertEquals(9, owner());
        }

        @Test
        void aWaiterAnnouncesItselfBeforeItSleepsAndHoldsTheMutexAsContended() {
            set(LOCKED);
            futex.thenStore(FREE, Result.WOKEN);
            assertLooksAgain(mutex::lock);
            assertEquals(CONTENDED, value());
            assertEquals(1, counter());
            assertEquals(7, owner());
            mutex.unlock();
            assertCalls(List.of(CONTENDED), new Wake(1, FREE));
        }

        @Test
        void aWaiterThatFindsTheWordTakenAgainAnnouncesItselfAgain() {
            set(LOCKED);
            futex.thenStore(LOCKED, Result.WOKEN).thenStore(CONTENDED, Result.CHANGED).thenStore(FREE, Result.WOKEN);
            mutex.lock();
            assertCalls(List.of(CONTENDED, CONTENDED, CONTENDED));
            assertEquals(CONTENDED, value());
        }

        @ParameterizedTest
        @EnumSource(names = {"WOKEN", "CHANGED", "TIMED_OUT", "INTERRUPTED"})
        void theStateDecidesAndNotTheAnswer(Result answer) {
            set(CONTENDED);
            futex.thenReturn(answer).thenReturn(answer).thenStore(FREE, answer);
            assertTrue(mutex.tryLock(1, HOURS));
            assertCalls(List.of(CONTENDED, CONTENDED, CONTENDED));
            assertEquals(1, counter());
        }

        @Test
        void allWaitsOfOneTryHaveTheSameDeadline() {
            set(CONTENDED);
            futex.thenReturn(Result.INTERRUPTED).thenReturn(Result.WOKEN).thenStore(FREE, Result.WOKEN);
            long before = System.nanoTime();
            assertTrue(mutex.tryLock(1, SECONDS));
            assertTrue(futex.waits().getFirst().deadline() >= before + SECONDS.toNanos(1));
            assertEquals(1, futex.waits().stream().distinct().count());
        }

        @Test
        void aTryThatMayTakeLongLooksAgainInBetween() {
            set(CONTENDED);
            futex.thenReturn(Result.TIMED_OUT).thenReturn(Result.TIMED_OUT).thenStore(FREE, Result.TIMED_OUT);
            assertLooksAgain(() -> assertTrue(mutex.tryLock(1, HOURS)));
            assertCalls(List.of(CONTENDED, CONTENDED, CONTENDED));
        }

        @Test
        void oneWhoWasWokenAndLeavesBecauseItsTimeIsUpLeavesContendedBehind() {
            set(LOCKED);
            futex.then(overdue(LOCKED, Result.WOKEN));
            assertFalse(mutex.tryLock(TIME, MILLISECONDS));
            assertEquals(CONTENDED, value());
            assertEquals(0, counter());
            assertEquals(0, owner());
            assertCalls(List.of(CONTENDED));
        }

        @Test
        void oneWhoseTimeIsUpStillTakesAFreeMutex() {
            set(LOCKED);
            futex.then(overdue(FREE, Result.TIMED_OUT));
            assertTrue(mutex.tryLock(TIME, MILLISECONDS));
            assertEquals(CONTENDED, value());
        }

        @Test
        void aTryThatGivesUpChangesNothingButTheAnnouncement() {
            set(LOCKED);
            futex.then(overdue(CONTENDED, Result.TIMED_OUT));
            assertFalse(mutex.tryLock(TIME, MILLISECONDS));
            assertEquals(CONTENDED, value());
            assertCalls(List.of(CONTENDED));
        }

        @Test
        void errorsOfTheFutexAreNotTakenForWakes() {
            set(CONTENDED);
            futex.thenReturn(Result.FAULT).thenReturn(Result.INVALID).thenReturn(Result.UNSUPPORTED);
            assertThrows(DamagedMappingException.class, mutex::lock);
            assertThrows(AssertionError.class, mutex::lock);
            assertThrows(AssertionError.class, mutex::lock);
            assertEquals(CONTENDED, value());
        }

        @Test
        void aDerivedMutexSleepsOnTheSameFutex() {
            set(CONTENDED);
            new WordMutex(segment, word, futex, null, null, 0)
                    .withSlowPathCounter(COUNTER).withOwnerWord(OWNER, 3).unlock();
            assertCalls(List.of(), new Wake(1, FREE));
        }
    }

    @Nested
    class OfSpinLock {
        private static final int FREE = 0;
        private static final int LOCKED = 1;

        private final SpinLock lock = new SpinLock(word, futex, SpinLock.DEFAULT_SPIN_LIMIT);

        @Test
        void everyUnlockWakesOneAfterTheWordIsFreeAndNothingElseWakes() {
            lock.lock();
            lock.unlock();
            assertTrue(lock.tryLock());
            assertFalse(lock.tryLock());
            assertFalse(lock.tryLock(0, HOURS));
            lock.unlock();
            assertCalls(List.of(), new Wake(1, FREE), new Wake(1, FREE));
        }

        @Test
        void aRefusedUnlockWakesNobody() {
            assertThrows(IllegalMonitorStateException.class, lock::unlock);
            assertCalls(List.of());
        }

        @Test
        void unlockDoesNotTouchTheWordAfterItIsFree() {
            set(LOCKED);
            futex.onWake(() -> set(LOCKED));
            lock.unlock();
            assertEquals(LOCKED, value());
        }

        @ParameterizedTest
        @ValueSource(ints = {0, 1, 100})
        void aWaiterSleepsWhileTheWordIsLocked(int spinLimit) {
            set(LOCKED);
            futex.thenStore(FREE, Result.WOKEN);
            assertLooksAgain(new SpinLock(word, futex, spinLimit)::lock);
            assertEquals(LOCKED, value());
            assertCalls(List.of(LOCKED));
        }

        @ParameterizedTest
        @EnumSource(names = {"WOKEN", "CHANGED", "TIMED_OUT", "INTERRUPTED"})
        void theStateDecidesAndNotTheAnswer(Result answer) {
            set(LOCKED);
            futex.thenReturn(answer).thenReturn(answer).thenStore(FREE, answer);
            assertTrue(lock.tryLock(1, SECONDS));
            assertCalls(List.of(LOCKED, LOCKED, LOCKED));
            assertEquals(1, futex.waits().stream().distinct().count());
        }

        @ParameterizedTest
        @ValueSource(ints = {0, 100})
        void oneWhoWasWokenTriesBeforeItLooksAtTheClock(int spinLimit) {
            set(LOCKED);
            futex.then(overdue(FREE, Result.WOKEN));
            assertTrue(new SpinLock(word, futex, spinLimit).tryLock(TIME, MILLISECONDS));
            assertEquals(LOCKED, value());
        }

        @Test
        void aTryThatGivesUpChangesNothing() {
            set(LOCKED);
            futex.then(overdue(LOCKED, Result.TIMED_OUT));
            assertFalse(lock.tryLock(TIME, MILLISECONDS));
            assertEquals(LOCKED, value());
            assertCalls(List.of(LOCKED));
        }

        @Test
        void errorsOfTheFutexAreNotTakenForWakes() {
            set(LOCKED);
            futex.thenReturn(Result.FAULT).thenReturn(Result.INVALID);
            assertThrows(DamagedMappingException.class, lock::lock);
            assertThrows(AssertionError.class, lock::lock);
            assertEquals(LOCKED, value());
        }
    }

    @Nested
    class OfAtomicFlag {
        private static final int CLEAR = 0;
        private static final int SET = 1;

        private final AtomicFlag flag = new AtomicFlag(word, futex);

        @Test
        void allAreWokenIfAndOnlyIfTheStateChanged() {
            flag.clear();
            assertCalls(List.of());
            flag.testAndSet();
            assertCalls(List.of(), new Wake(ALL, SET));
            flag.testAndSet();
            assertCalls(List.of(), new Wake(ALL, SET));
            flag.clear();
            assertCalls(List.of(), new Wake(ALL, SET), new Wake(ALL, CLEAR));
            flag.reset();
            assertCalls(List.of(), new Wake(ALL, SET), new Wake(ALL, CLEAR));
        }

        @ParameterizedTest
        @EnumSource(names = {"WOKEN", "CHANGED", "TIMED_OUT", "INTERRUPTED"})
        void aWaiterSleepsOnTheOppositeStateAndTheStateDecides(Result answer) {
            futex.thenReturn(answer).thenStore(SET, answer).thenReturn(answer).thenStore(CLEAR, answer);
            assertLooksAgain(flag::awaitSet);
            assertTrue(flag.awaitCleared(1, HOURS));
            assertCalls(List.of(CLEAR, CLEAR, SET, SET));
        }

        @Test
        void aWaiterLooksBeforeItLooksAtTheClock() {
            futex.then(overdue(SET, Result.TIMED_OUT)).then(overdue(CLEAR, Result.TIMED_OUT));
            assertTrue(flag.awaitSet(TIME, MILLISECONDS));
            assertTrue(flag.awaitCleared(TIME, MILLISECONDS));
        }

        @Test
        void aWaitThatGivesUpChangesNothing() {
            futex.then(overdue(CLEAR, Result.TIMED_OUT));
            assertFalse(flag.awaitSet(TIME, MILLISECONDS));
            assertEquals(CLEAR, value());
            assertCalls(List.of(CLEAR));
        }

        @Test
        void aMomentaryStateIsMissed() {
            futex.then(word -> {
                word.storeRelaxed(SET);
                word.storeRelaxed(CLEAR);
                return Result.WOKEN;
            }).thenStore(SET, Result.WOKEN);
            flag.awaitSet();
            assertCalls(List.of(CLEAR, CLEAR));
        }

        @Test
        void errorsOfTheFutexAreNotTakenForWakes() {
            futex.thenReturn(Result.FAULT);
            assertThrows(DamagedMappingException.class, flag::awaitSet);
        }
    }

    @Nested
    class OfWordReadWriteLock {
        private static final int FREE = 0;
        private static final int EXCL = 1 << 30;
        private static final int COUNT = EXCL - 1;

        private final WordReadWriteLock lock = new WordReadWriteLock(word, futex);

        @Test
        void sharingWithoutAClaimMakesNoCall() {
            lock.lockShared();
            assertTrue(lock.tryLockShared());
            assertTrue(lock.tryLockShared(1, HOURS));
            lock.unlockShared();
            lock.unlockShared();
            lock.unlockShared();
            assertEquals(FREE, value());
            assertCalls(List.of());
        }

        @Test
        void theLastSharedHolderWakesAllIfThereIsAClaimant() {
            set(EXCL | 3);
            lock.unlockShared();
            lock.unlockShared();
            assertCalls(List.of());
            lock.unlockShared();
            assertCalls(List.of(), new Wake(ALL, EXCL));
        }

        @Test
        void everyExclusiveUnlockWakesAllAfterTheWordIsFree() {
            lock.lockExclusive();
            assertEquals(EXCL, value());
            assertCalls(List.of());
            lock.unlockExclusive();
            assertCalls(List.of(), new Wake(ALL, FREE));
        }

        @Test
        void everyDowngradeWakesAllAfterTheWordIsShared() {
            assertTrue(lock.tryLockExclusive());
            lock.downgrade();
            assertCalls(List.of(), new Wake(ALL, 1));
        }

        @Test
        void whatIsRefusedWakesNobody() {
            assertThrows(IllegalMonitorStateException.class, lock::unlockExclusive);
            assertThrows(IllegalMonitorStateException.class, lock::unlockShared);
            assertThrows(IllegalMonitorStateException.class, lock::downgrade);
            set(EXCL | 2);
            assertFalse(lock.tryLockShared());
            assertFalse(lock.tryLockExclusive());
            assertFalse(lock.tryLockShared(0, HOURS));
            assertFalse(lock.tryLockExclusive(-1, HOURS));
            assertEquals(EXCL | 2, value());
            assertCalls(List.of());
        }

        @Test
        void unlockDoesNotTouchTheWordAfterItIsFree() {
            set(EXCL);
            futex.onWake(() -> set(EXCL | 1));
            lock.unlockExclusive();
            assertEquals(EXCL | 1, value());
        }

        @Test
        void aReaderSleepsOnTheValueItSaw() {
            set(EXCL | 2);
            futex.thenStore(EXCL | 1, Result.CHANGED).thenStore(EXCL, Result.WOKEN).thenStore(4, Result.WOKEN);
            assertLooksAgain(lock::lockShared);
            assertEquals(5, value());
            assertCalls(List.of(EXCL | 2, EXCL | 1, EXCL));
        }

        @Test
        void aClaimantSleepsOnTheValueItSawUntilItCanClaimAndThenUntilAllHaveLeft() {
            set(EXCL | 1);
            futex.thenStore(EXCL, Result.WOKEN) // still claimed
                    .thenStore(3, Result.WOKEN) // downgraded, and two came in: claim
                    .then(word -> {
                        assertEquals(EXCL | 3, word.loadRelaxed());
                        word.storeRelaxed(EXCL | 1);
                        return Result.CHANGED;
                    })
                    .thenStore(EXCL, Result.WOKEN);
            assertLooksAgain(lock::lockExclusive);
            assertEquals(EXCL, value());
            assertCalls(List.of(EXCL | 1, EXCL, EXCL | 3, EXCL | 1));
        }

        @ParameterizedTest
        @EnumSource(names = {"WOKEN", "CHANGED", "TIMED_OUT", "INTERRUPTED"})
        void theStateDecidesAndNotTheAnswer(Result answer) {
            set(EXCL);
            futex.thenReturn(answer).thenReturn(answer).thenStore(1, answer) // claimed
                    .thenReturn(answer).thenStore(EXCL, answer);
            assertTrue(lock.tryLockExclusive(1, SECONDS));
            assertCalls(List.of(EXCL, EXCL, EXCL, EXCL | 1, EXCL | 1));
            assertEquals(1, futex.waits().stream().map(ScriptedFutex.Wait::deadline).distinct().count());
            futex.thenReturn(answer).thenStore(FREE, answer);
            lock.lockShared();
            assertEquals(1, value());
        }

        @Test
        void aClaimantWhoseTimeIsUpWithdrawsKeepsTheCountAndWakesAll() {
            set(3);
            futex.then(overdue(EXCL | 2, Result.TIMED_OUT));
            assertFalse(lock.tryLockExclusive(TIME, MILLISECONDS));
            assertEquals(2, value());
            assertCalls(List.of(EXCL | 3), new Wake(ALL, 2));
        }

        @Test
        void aClaimantWhoseTimeIsUpTakesTheLockIfAllHaveLeft() {
            set(3);
            futex.then(overdue(EXCL, Result.TIMED_OUT));
            assertTrue(lock.tryLockExclusive(TIME, MILLISECONDS));
            assertEquals(EXCL, value());
            assertCalls(List.of(EXCL | 3));
        }

        @Test
        void oneWhoWasWokenTriesBeforeItLooksAtTheClock() {
            set(EXCL);
            futex.then(overdue(FREE, Result.WOKEN));
            assertTrue(lock.tryLockExclusive(TIME, MILLISECONDS));
            assertEquals(EXCL, value());
            futex.then(overdue(4, Result.TIMED_OUT));
            assertTrue(lock.tryLockShared(TIME, MILLISECONDS));
            assertEquals(5, value());
            assertEquals(NO_WAKE, futex.wakes());
        }

        @Test
        void oneWhoGivesUpBeforeItsClaimLeavesNothingBehind() {
            set(EXCL | 1);
            futex.then(overdue(EXCL | 1, Result.TIMED_OUT)).then(overdue(EXCL | 1, Result.TIMED_OUT));
            assertFalse(lock.tryLockExclusive(TIME, MILLISECONDS));
            assertFalse(lock.tryLockShared(TIME, MILLISECONDS));
            assertEquals(EXCL | 1, value());
            assertCalls(List.of(EXCL | 1, EXCL | 1));
        }

        @Test
        void aClaimThatIsWipedOutDuringTheDrainIsDamage() {
            set(1);
            futex.thenStore(1, Result.WOKEN);
            assertThrows(DamagedMappingException.class, lock::lockExclusive);
            assertEquals(1, value());
            assertEquals(NO_WAKE, futex.wakes());
        }

        @Test
        void theMaximumOfSharedHoldersIsAnErrorWithoutACall() {
            set(COUNT);
            assertThrows(Error.class, lock::lockShared);
            assertThrows(Error.class, lock::tryLockShared);
            set(EXCL);
            futex.thenStore(COUNT, Result.WOKEN);
            assertThrows(Error.class, lock::lockShared);
            assertEquals(COUNT, value());
            assertCalls(List.of(EXCL));
        }

        @Test
        void errorsOfTheFutexAreNotTakenForWakes() {
            set(EXCL | 1);
            futex.thenReturn(Result.FAULT).thenReturn(Result.FAULT).thenReturn(Result.INVALID);
            assertThrows(DamagedMappingException.class, lock::lockShared);
            assertThrows(DamagedMappingException.class, lock::lockExclusive);
            assertThrows(AssertionError.class, lock::lockExclusive);
            assertEquals(EXCL | 1, value());
        }

        @ParameterizedTest
        @EnumSource
        void aTimeoutOfZeroOrLessNeverSleeps(TimeUnit unit) {
            set(EXCL);
            for (long timeout : new long[] {0, -1, Long.MIN_VALUE}) {
                assertFalse(lock.tryLockShared(timeout, unit));
                assertFalse(lock.tryLockExclusive(timeout, unit));
            }
            assertCalls(List.of());
        }
    }

    @Test
    void aScriptThatIsTooShortIsAFailure() {
        set(1);
        AssertionError e = assertThrows(AssertionError.class, () -> new SpinLock(word, futex, 0).lock());
        assertTrue(e.getMessage().contains("not in the script"), Arrays.toString(e.getStackTrace()));
    }
}
