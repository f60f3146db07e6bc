// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertThrowsExactly;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.DamagedMappingException;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.SignalStorm;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AtomicFlagTest {
    private SharedFile file;
    private MemorySegment segment;
    private AtomicFlag flag;

    @BeforeEach
    void map() throws Exception {
        file = SharedFile.create();
        segment = file.segment();
        flag = AtomicFlag.at(segment, 0);
    }

    @AfterEach
    void unmap() throws Exception {
        file.close();
    }

    @Test
    void aWordThatIsAllZeroIsAClearFlag() {
        assertFalse(flag.isSet());
        assertFalse(flag.clear());
        assertEquals("AtomicFlag[word at offset 0, clear]", flag.toString());
        assertFalse(flag.testAndSet());
        assertEquals(1, segment.get(JAVA_INT, 0));
        assertTrue(flag.isSet());
        assertTrue(flag.testAndSet());
        assertEquals("AtomicFlag[word at offset 0, set]", flag.toString());
        assertTrue(flag.clear());
        assertEquals(0, segment.get(JAVA_INT, 0));
        flag.testAndSet();
        flag.reset();
        assertFalse(flag.isSet());
    }

    @Test
    void aStateThatIsThereAlreadyIsNotWaitedFor() {
        flag.awaitCleared();
        assertTrue(flag.awaitCleared(Long.MIN_VALUE, MILLISECONDS));
        flag.testAndSet();
        flag.awaitSet();
        assertTrue(flag.awaitSet(0, MILLISECONDS));
    }

    @Test
    void allWhoWaitForItToBeSetAreWoken() throws Exception {
        List<Waiter<Void>> waiters = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            waiters.add(Waiter.run(flag::awaitSet).awaitAsleepOn(segment, 0));
        }
        AtomicFlag.at(file.map(), 0).testAndSet();
        for (Waiter<Void> waiter : waiters) {
            waiter.result();
        }
    }

    @Test
    void allWhoWaitForItToBeClearedAreWoken() throws Exception {
        flag.testAndSet();
        Waiter<Void> one = Waiter.run(flag::awaitCleared).awaitAsleepOn(segment, 0);
        Waiter<Boolean> two = Waiter.call(() -> flag.awaitCleared(1, TimeUnit.HOURS)).awaitAsleepOn(segment, 0);
        flag.clear();
        one.result();
        assertTrue(two.result());
    }

    @Test
    void exactlyOneOfManyFindsItClear() throws Exception {
        List<Waiter<Boolean>> competitors = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            competitors.add(Waiter.call(flag::testAndSet));
        }
        int winners = 0;
        for (Waiter<Boolean> competitor : competitors) {
            winners += competitor.result() ? 0 : 1;
        }
        assertEquals(1, winners);
    }

    @Test
    void aTimedWaitWaitsForItsTime() {
        long start = System.nanoTime();
        assertFalse(flag.awaitSet(50, MILLISECONDS));
        assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(50));
        flag.testAndSet();
        start = System.nanoTime();
        assertFalse(flag.awaitCleared(50, MILLISECONDS));
        assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(50));
    }

    @Test
    void aTimedWaitKeepsItsTimeUnderSignals() throws Exception {
        long start = System.nanoTime();
        try (SignalStorm<Boolean> storm = SignalStorm.on(Waiter.call(() -> flag.awaitSet(100, MILLISECONDS)))) {
            assertFalse(storm.result());
        }
        assertTrue(System.nanoTime() - start >= MILLISECONDS.toNanos(100));
    }

    @ParameterizedTest
    @EnumSource
    void everyTimeoutIsTaken(TimeUnit unit) throws Exception {
        for (long timeout : new long[] {0, -1, Long.MIN_VALUE}) {
            assertFalse(flag.awaitSet(timeout, unit));
        }
        Waiter<Boolean> waiter = Waiter.call(() -> flag.awaitSet(Long.MAX_VALUE, unit)).awaitAsleepOn(segment, 0);
        flag.testAndSet();
        assertTrue(waiter.result());
    }

    @Test
    void anInterruptNeitherEndsAWaitNorIsForgotten() throws Exception {
        Waiter<Boolean> waiter = Waiter.call(() -> {
            Thread.currentThread().interrupt();
            flag.awaitSet();
            return Thread.interrupted();
        });
        waiter.awaitAsleepOn(segment, 0);
        flag.testAndSet();
        assertTrue(waiter.result());
    }

    @ParameterizedTest
    @ValueSource(ints = {2, -1, Integer.MIN_VALUE})
    void anImpossibleValueIsNamedAndLeftAsItIs(int value) {
        segment.set(JAVA_INT, 0, value);
        for (Executable call : new Executable[] {
            flag::isSet, flag::testAndSet, flag::clear, flag::awaitSet, flag::awaitCleared, flag::reset
        }) {
            String message = assertThrows(DamagedMappingException.class, call).getMessage();
            assertTrue(message.contains("holds " + Integer.toUnsignedLong(value) + " "), message);
            assertEquals(value, segment.get(JAVA_INT, 0));
        }
    }

    @Test
    void everyUseAfterTheEndOfTheArenaIsRefused() throws Exception {
        Waiter<Void> waiter = Waiter.run(flag::awaitSet).awaitAsleepOn(segment, 0);
        assertThrowsExactly(IllegalStateException.class, file::closeArena);
        flag.testAndSet();
        waiter.result();
        file.closeArena();
        assertThrowsExactly(IllegalStateException.class, flag::isSet);
        assertThrowsExactly(IllegalStateException.class, flag::testAndSet);
        assertThrowsExactly(IllegalStateException.class, flag::clear);
        assertThrowsExactly(IllegalStateException.class, flag::awaitSet);
    }
}
