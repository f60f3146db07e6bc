// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.util.concurrent.TimeUnit.HOURS;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertThrowsExactly;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.DamagedMappingException;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What {@link LockContract} does not say about {@link WordReadWriteLock}: how the two modes go together. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class WordReadWriteLockTest {
    private static final int EXCL = 1 << 30;
    private static final int COUNT = EXCL - 1;

    private SharedFile file;
    private MemorySegment segment;
    private WordReadWriteLock lock;

    @BeforeEach
    void map() throws Exception {
        file = SharedFile.create();
        segment = file.segment();
        lock = WordReadWriteLock.at(segment, 0);
    }

    @AfterEach
    void unmap() throws Exception {
        file.close();
    }

    private int word() {
        return segment.get(JAVA_INT, 0);
    }

    @Test
    void manyShareTheLockAndTheWordCountsThem() {
        lock.lockShared();
        assertTrue(lock.tryLockShared());
        assertTrue(lock.tryLockShared(-1, HOURS));
        assertTrue(lock.tryLockShared(1, HOURS));
        assertEquals(4, word());
        assertEquals(4, lock.sharedCount());
        assertFalse(lock.isExclusive());
        for (int n = 3; n >= 0; n--) {
            lock.unlockShared();
            assertEquals(n, word());
        }
    }

    @Test
    void anExclusiveTryDoesNotKeepNewcomersOut() {
        lock.lockShared();
        assertFalse(lock.tryLockExclusive());
        assertFalse(lock.tryLockExclusive(0, HOURS));
        assertFalse(lock.tryLockExclusive(Long.MIN_VALUE, HOURS));
        assertEquals(1, word());
        assertTrue(lock.tryLockShared());
    }

    @Test
    void aWaitingClaimKeepsNewcomersOutUntilItHasHadTheLock() throws Exception {
        lock.lockShared();
        lock.lockShared();
        Waiter<Void> claimant = Waiter.run(lock::lockExclusive).awaitAsleepOn(segment, 0);
        assertEquals(EXCL | 2, word());
        assertFalse(lock.tryLockShared());
        assertFalse(lock.tryLockShared(1, MILLISECONDS));
        assertFalse(lock.tryLockExclusive());
        assertFalse(lock.tryLockExclusive(1, MILLISECONDS));
        Waiter<Void> newcomer = Waiter.run(lock::lockShared).awaitAsleepOn(segment, 0);
        lock.unlockShared();
        assertEquals(EXCL | 1, word());
        lock.unlockShared();
        claimant.result();
        assertEquals(EXCL, word());
        lock.unlockExclusive();
        newcomer.result();
        assertEquals(1, word());
    }

    @Test
    void aClaimWhoseTimeIsUpLetsNewcomersInAgain() throws Exception {
        lock.lockShared();
        Waiter<Boolean> claimant = Waiter.call(() -> lock.tryLockExclusive(200, MILLISECONDS));
        while (!lock.isExclusive() && !claimant.isDone()) {
            Thread.yield();
        }
        Waiter<Void> newcomer = Waiter.run(lock::lockShared);
        assertFalse(claimant.result());
        newcomer.result();
        assertEquals(2, word());
    }

    @Test
    void aReaderWaitsWhileTheLockIsExclusive() throws Exception {
        lock.lockExclusive();
        assertTrue(lock.isExclusive());
        assertEquals(0, lock.sharedCount());
        Waiter<Void> one = Waiter.run(lock::lockShared).awaitAsleepOn(segment, 0);
        Waiter<Void> two = Waiter.run(lock::lockShared).awaitAsleepOn(segment, 0);
        lock.unlockExclusive();
        one.result();
        two.result();
        assertEquals(2, word());
    }

    @Test
    void aDowngradeLetsReadersInAndKeepsWritersOut() throws Exception {
        lock.lockExclusive();
        Waiter<Void> reader = Waiter.run(lock::lockShared).awaitAsleepOn(segment, 0);
        lock.downgrade();
        reader.result();
        assertEquals(2, word());
        assertFalse(lock.tryLockExclusive());
        lock.unlockShared();
        lock.unlockShared();
        assertTrue(lock.tryLockExclusive());
    }

    @Test
    void theMaximumOfSharedHoldersIsAnErrorBeforeAnythingIsChanged() {
        segment.set(JAVA_INT, 0, COUNT - 1);
        assertTrue(lock.tryLockShared());
        assertEquals(COUNT, word());
        for (Executable call : new Executable[] {
            lock::lockShared, lock::tryLockShared, () -> lock.tryLockShared(1, HOURS)
        }) {
            assertThrowsExactly(Error.class, call);
            assertEquals(COUNT, word());
        }
        lock.unlockShared();
        assertEquals(COUNT - 1, word());
    }

    @Test
    void aClaimAgainstTheMaximumOfSharedHoldersKeepsTheirCount() {
        segment.set(JAVA_INT, 0, COUNT);
        assertFalse(lock.tryLockExclusive(1, MILLISECONDS));
        assertEquals(COUNT, word());
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 5, EXCL | 1, EXCL | 5})
    void leavingAnExclusiveLockThatIsNotHeldIsRefusedAndChangesNothing(int value) {
        segment.set(JAVA_INT, 0, value);
        assertThrows(IllegalMonitorStateException.class, lock::unlockExclusive);
        assertThrows(IllegalMonitorStateException.class, lock::downgrade);
        assertEquals(value, word());
    }

    @ParameterizedTest
    @ValueSource(ints = {0, EXCL})
    void givingUpAShareThatNobodyHasIsRefusedAndChangesNothing(int value) {
        segment.set(JAVA_INT, 0, value);
        assertThrows(IllegalMonitorStateException.class, lock::unlockShared);
        assertEquals(value, word());
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, Integer.MIN_VALUE, Integer.MIN_VALUE | EXCL})
    void anImpossibleValueIsNamedByTheOtherMethodsToo(int value) {
        segment.set(JAVA_INT, 0, value);
        for (Executable call : new Executable[] {lock::downgrade, lock::isExclusive, lock::sharedCount}) {
            assertThrows(DamagedMappingException.class, call);
            assertEquals(value, word());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anExclusiveTryAgainstReadersTakesEveryTimeout(TimeUnit unit) throws Exception {
        lock.lockShared();
        assertFalse(lock.tryLockExclusive(Long.MIN_VALUE, unit));
        Waiter<Boolean> claimant =
                Waiter.call(() -> lock.tryLockExclusive(Long.MAX_VALUE, unit)).awaitAsleepOn(segment, 0);
        lock.unlockShared();
        assertTrue(claimant.result());
    }

    @Test
    void anExclusiveTryAgainstReadersWaitsForItsTime() {
        lock.lockShared();
        long start = System.nanoTime();
        assertFalse(lock.tryLockExclusive(50, MILLISECONDS));
        assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(50));
        assertEquals(1, word());
    }

    @Test
    void aWriterGetsInThoughReadersComeAndGo() throws Exception {
        AtomicBoolean over = new AtomicBoolean();
        List<Waiter<Void>> readers = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            readers.add(Waiter.run(() -> {
                while (!over.get()) {
                    lock.lockShared();
                    Thread.yield();
                    lock.unlockShared();
                }
            }));
        }
        for (int i = 0; i < 20; i++) {
            lock.lockExclusive();
            assertEquals(EXCL, word());
            lock.unlockExclusive();
        }
        over.set(true);
        for (Waiter<Void> reader : readers) {
            reader.result();
        }
        assertEquals(0, word());
    }

    @Test
    void itTellsItsState() {
        assertEquals("WordReadWriteLock[word at offset 0, 0 shared]", lock.toString());
        segment.set(JAVA_INT, 0, EXCL | 3);
        assertEquals("WordReadWriteLock[word at offset 0, exclusive, 3 shared]", lock.toString());
    }
}
