// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Futex;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Word;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import dev.fermata.testing.SignalStorm;
import dev.fermata.testing.Waiter;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Waits for the mutex that end without it, by an interrupt or at a deadline, and that leave nothing behind. */
@ParameterizedClass
@ValueSource(booleans = {false, true})
@Tag("polling")
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GivingUpTest {
    private static final Duration LONG = Duration.ofDays(1);

    /** The ways to wait that an interrupt ends. */
    enum Way {
        LOCK_INTERRUPTIBLY {
            @Override
            Runnable take(SharedMutex mutex, Duration timeout) throws Exception {
                mutex.lockInterruptibly();
                return mutex::unlock;
            }
        },
        TRY_LOCK {
            @Override
            Runnable take(SharedMutex mutex, Duration timeout) throws Exception {
                return mutex.tryLock(TimeUnit.NANOSECONDS.convert(timeout), TimeUnit.NANOSECONDS) ? mutex::unlock : null;
            }
        },
        LOCK {
            @Override
            Runnable take(SharedMutex mutex, Duration timeout) throws Exception {
                try {
                    mutex.lock(timeout);
                    return mutex::unlock;
                } catch (LockTimeoutException late) {
                    return null;
                }
            }
        },
        ACQUIRE {
            @Override
            Runnable take(SharedMutex mutex, Duration timeout) throws Exception {
                try {
                    return mutex.acquire(timeout)::close;
                } catch (LockTimeoutException late) {
                    return null;
                }
            }
        };

        /** What gives the lock back, or null where it was not to be had in time. */
        abstract Runnable take(SharedMutex mutex, Duration timeout) throws Exception;
    }

    @Parameter
    boolean symmetric;

    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;
    private final Random random = new Random(20_260_101);

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        LockFile.Builder builder = LockFile.builder(place.file());
        file = (symmetric ? builder.symmetric() : builder).open();
        mutex = file.mutex("m", LockPeer.RECORD);
    }

    /** A closing file waits for all who wait for its locks: one who has left, but is still counted, keeps it attached. */
    @AfterEach
    void close() throws Exception {
        file.close();
        try (LockPath removed = place; LockFile look = LockFile.builder(removed.file()).readOnly().open()) {
            assertEquals(List.of(), look.participants());
        }
    }

    private int word(long offset) {
        return mutex.memory().get(JAVA_INT, offset);
    }

    /** Nobody has it, is to have it, or is owed it. */
    private void assertFree() {
        assertEquals(Layout.FREE, word(Layout.E_OWNER), mutex::toString);
        assertEquals(0, word(Layout.E_HEIR));
        assertTrue(mutex.tryLock());
        mutex.unlock();
    }

    /** A thread that takes the lock and gives it back; whether it was to be had. */
    private final class Taker {
        final Waiter<Boolean> waiter;
        private volatile Thread thread;
        private volatile boolean interrupted;

        Taker(Way way, Duration timeout) {
            waiter = Waiter.call(() -> {
                thread = Thread.currentThread();
                Runnable release;
                try {
                    release = way.take(mutex, timeout);
                } catch (InterruptedException e) {
                    assertFalse(Thread.interrupted(), "the exception leaves the flag set");
                    assertFalse(mutex.isHeldByCurrentThread());
                    throw e;
                }
                if (release == null) {
                    return false;
                }
                while (interrupted && !Thread.currentThread().isInterrupted()) {
                    Thread.onSpinWait(); // about to be
                }
                release.run();
                return true;
            });
        }

        Taker interrupt() {
            interrupted = true;
            while (thread == null) {
                Thread.onSpinWait();
            }
            thread.interrupt();
            return this;
        }

        /** Asleep, and has been for longer than the first sleep lasts. */
        Taker awaitAsleepForLong() throws Exception {
            waiter.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
            Thread.sleep(3);
            waiter.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
            return this;
        }

        /** Whether it had the lock before the interrupt ended its wait. */
        boolean tookIt() throws Exception {
            try {
                return waiter.result();
            } catch (InterruptedException e) {
                return false;
            }
        }
    }

    // ---- interrupts ----

    @ParameterizedTest
    @EnumSource
    void anInterruptFromBeforeIsSeenThoughTheLockIsFree(Way way) throws Exception {
        for (boolean held : new boolean[] {false, true}) {
            for (Duration timeout : List.of(LONG, Duration.ZERO, Duration.ofNanos(-1))) {
                Thread.currentThread().interrupt();
                assertThrows(InterruptedException.class, () -> way.take(mutex, timeout));
                assertFalse(Thread.interrupted());
                assertEquals(held ? 1 : 0, mutex.holdCount());
            }
            if (held) {
                mutex.unlock();
            } else {
                assertEquals(0, mutex.info().acquisitions());
                mutex.lock();
            }
        }
        assertFree();
    }

    @Test
    void whatDoesNotWaitForAnInterruptKeepsIt() {
        Thread.currentThread().interrupt();
        mutex.lock();
        mutex.unlock();
        mutex.acquire().close();
        assertTrue(mutex.tryLock());
        mutex.unlock();
        mutex.tryAcquire().orElseThrow().close();
        assertTrue(Thread.interrupted());
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptEndsTheSleepOfTheHeirAndItOwesNothing(Way way) throws Exception {
        for (int round = 0; round < 20; round++) {
            mutex.lock();
            Taker heir = new Taker(way, LONG);
            SharedMutexTest.awaitHeir(mutex);
            heir.waiter.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
            heir.interrupt();
            assertThrows(InterruptedException.class, heir.waiter::result);
            assertEquals(0, word(Layout.E_HEIR));
            mutex.unlock();
            assertFree();
        }
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptEndsALongSleepAndTheHeirIsServed(Way way) throws Exception {
        for (int round = 0; round < 20; round++) {
            mutex.lock();
            Taker heir = new Taker(way, LONG);
            SharedMutexTest.awaitHeir(mutex);
            Taker waiter = new Taker(way, LONG).awaitAsleepForLong().interrupt();
            assertThrows(InterruptedException.class, waiter.waiter::result);
            assertEquals(mutex.info().owner().isPresent(), word(Layout.E_HEIR) != 0);
            assertFalse(heir.waiter.isDone());
            mutex.unlock();
            assertTrue(heir.waiter.result());
            assertFree();
        }
    }

    @Test
    @Tag("slow")
    void anInterruptEndsTheSpinAndTheFirstShortSleep() throws Exception {
        mutex.lock();
        for (int round = 0; round < 1_000; round++) {
            Taker waiter = new Taker(Way.values()[round % 4], LONG);
            waiter.waiter.tid(); // it runs
            spin(random.nextInt(200_000));
            waiter.interrupt();
            assertThrows(InterruptedException.class, waiter.waiter::result);
        }
        mutex.unlock();
        assertFree();
    }

    private static void spin(long nanos) {
        long begin = System.nanoTime();
        while (System.nanoTime() - begin < nanos) {
            Thread.onSpinWait();
        }
    }

    /**
     * Interrupts a waiter and releases the lock, so that now the one and now the other comes first: nearer and nearer to
     * where they meet.
     */
    private final class Race {
        private long gap = 50_000; // from the interrupt to the unlock, in ns
        private long step = 2_000;
        private boolean tookBefore;
        int taken;
        int interrupted;

        boolean run(Taker waiter) throws Exception {
            long jitter = random.nextLong(-5_000, 5_000);
            if (gap + jitter < 0) {
                mutex.unlock();
                spin(-gap - jitter);
                waiter.interrupt();
            } else {
                waiter.interrupt();
                spin(gap + jitter);
                mutex.unlock();
            }
            boolean took = waiter.tookIt();
            step = took == tookBefore ? Math.min(2 * step, 500_000) : 2_000; // back to where the two meet
            tookBefore = took;
            gap += took ? step : -step;
            if (took) {
                taken++;
            } else {
                interrupted++;
            }
            return took;
        }

        void assertBothHappened() {
            assertTrue(taken > 0 && interrupted > 0, taken + " had the lock, " + interrupted + " were interrupted");
        }
    }

    @Test
    @Tag("slow")
    void anInterruptThatRacesWithTheGrantLeavesTheLockWhereItShouldBe() throws Exception {
        Race spinning = new Race();
        Race asleep = new Race();
        Race heirs = new Race();
        for (int round = 0; round < 2_400; round++) {
            mutex.lock();
            Taker waiter = new Taker(Way.values()[round % 4], LONG);
            waiter.waiter.tid();
            switch (round % 3) {
                case 0 -> spinning.run(waiter);
                case 1 -> {
                    spin(200_000);
                    asleep.run(waiter);
                }
                default -> {
                    SharedMutexTest.awaitHeir(mutex);
                    spin(100_000);
                    heirs.run(waiter);
                }
            }
            assertFree();
        }
        asleep.assertBothHappened();
        heirs.assertBothHappened();
    }

    /** Without that, the one who sleeps on would come by itself, a second later: the watchdog is for 60 of those. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void whoIsInterruptedWhileItIsGrantedTheLockPassesItOn(boolean handOver) throws Exception {
        Race race = new Race();
        for (int round = 0; round < 200; round++) {
            mutex.lock();
            Taker first = new Taker(Way.values()[round % 4], LONG);
            SharedMutexTest.awaitHeir(mutex);
            Waiter<Void> second = Waiter.run(() -> {
                mutex.lock();
                mutex.unlock();
            });
            second.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
            if (!handOver) { // as if there had just been one
                mutex.memory().set(JAVA_INT, Layout.E_HANDED, (int) (System.nanoTime() / 1_000_000) + 10);
            }
            race.run(first);
            second.result();
            assertFree();
        }
        race.assertBothHappened();
    }

    @Test
    void whoIsInterruptedLeavesTheLockToAnotherProcess() throws Exception {
        try (LockPeer other = LockPeer.start(place.file())) {
            Race race = new Race();
            for (int round = 0; round < 100; round++) {
                mutex.lock();
                Taker first = new Taker(Way.values()[round % 4], LONG);
                SharedMutexTest.awaitHeir(mutex);
                other.tell("update m 1");
                other.awaitAsleep();
                race.run(first);
                other.expect("updated");
                assertFree();
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void interruptsByTheHundredDoNotEndLock(boolean token) throws Exception {
        mutex.lock();
        Thread[] thread = new Thread[1];
        Waiter<Boolean> waiter = Waiter.call(() -> {
            thread[0] = Thread.currentThread();
            if (token) {
                mutex.acquire().close();
            } else {
                mutex.lock();
                mutex.unlock();
            }
            return Thread.interrupted();
        });
        waiter.tid();
        for (int i = 0; i < 300; i++) {
            if (thread[0] != null) {
                thread[0].interrupt();
            }
            spin(50_000);
        }
        waiter.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
        mutex.unlock();
        assertTrue(waiter.result());
        assertFree();
    }

    // ---- deadlines ----

    @ParameterizedTest
    @EnumSource(names = "LOCK_INTERRUPTIBLY", mode = EnumSource.Mode.EXCLUDE)
    void aTimeoutOfNothingOrLessIsOneAttempt(Way way) throws Exception {
        List<Duration> timeouts =
                List.of(Duration.ZERO, Duration.ofNanos(-1), Duration.ofSeconds(Long.MIN_VALUE), Duration.ofDays(-400));
        for (Duration timeout : timeouts) {
            way.take(mutex, timeout).run();
        }
        mutex.lock();
        for (Duration timeout : timeouts) {
            assertFalse(new Taker(way, timeout).waiter.result());
        }
        mutex.unlock();
        assertEquals(0, word(Layout.E_EVENTS), "one of them meant to sleep");
        assertFree();
    }

    @ParameterizedTest
    @EnumSource(names = "LOCK_INTERRUPTIBLY", mode = EnumSource.Mode.EXCLUDE)
    void aTimeoutTooLargeForTheClockWaitsForEver(Way way) throws Exception {
        for (Duration timeout : List.of(Duration.ofSeconds(Long.MAX_VALUE, 999_999_999), Duration.ofNanos(Long.MAX_VALUE),
                Duration.ofSeconds(Long.MAX_VALUE / 2), Duration.ofNanos(Long.MAX_VALUE - 1))) {
            mutex.lock();
            Taker forEver = new Taker(way, timeout).awaitAsleepForLong();
            mutex.unlock();
            assertTrue(forEver.waiter.result());
        }
        assertFree();
    }

    @ParameterizedTest
    @EnumSource
    void theLargestTimeoutOfEachUnitWaitsForEver(TimeUnit unit) throws Exception {
        mutex.lock();
        Waiter<Boolean> forEver = Waiter.call(() -> {
            boolean taken = mutex.tryLock(Long.MAX_VALUE, unit);
            mutex.unlock();
            return taken;
        });
        forEver.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
        Thread.sleep(3);
        forEver.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
        mutex.unlock();
        assertTrue(forEver.result());
        assertTrue(mutex.tryLock(Long.MIN_VALUE, unit));
        mutex.unlock();
        assertFree();
    }

    /** Returns when its time-out has come, and not before. */
    private Waiter<Boolean> timed(Way way, Duration timeout) {
        return Waiter.call(() -> {
            long begin = System.nanoTime();
            assertEquals(null, way.take(mutex, timeout));
            return System.nanoTime() - begin >= timeout.toNanos();
        });
    }

    @ParameterizedTest
    @EnumSource(names = "LOCK_INTERRUPTIBLY", mode = EnumSource.Mode.EXCLUDE)
    void wakesForNothingEndNoWaitEarly(Way way) throws Exception {
        mutex.lock();
        Word events = Word.at(mutex.memory(), Layout.E_EVENTS);
        Word handed = Word.at(mutex.memory(), Layout.E_HANDED);
        Waiter<Boolean> waiter = timed(way, Duration.ofMillis(300));
        int tid = waiter.tid();
        long sleeps = 0;
        for (int i = 0; !waiter.isDone(); i++) {
            if (i % 3 > 0) {
                int e = events.loadAcquire();
                events.casRelease(e, Layout.nextEpoch(e));
            }
            Futex.SYSTEM.wake(events, Futex.ALL);
            Futex.SYSTEM.wake(handed, Futex.ALL);
            sleeps = Math.max(sleeps, Kernel.sleeps(tid));
            spin(20_000);
        }
        assertTrue(waiter.result());
        assertTrue(sleeps > 100, "it slept only " + sleeps + " times");
        mutex.unlock();
        assertFree();
    }

    @ParameterizedTest
    @EnumSource(names = "LOCK_INTERRUPTIBLY", mode = EnumSource.Mode.EXCLUDE)
    @Tag("slow")
    void signalsEndNoWaitEarly(Way way) throws Exception {
        mutex.lock();
        try (SignalStorm<Boolean> storm = SignalStorm.on(timed(way, Duration.ofMillis(500)))) {
            assertTrue(storm.result());
            assertTrue(storm.sent() > 10, "too few signals: " + storm.sent());
        }
        mutex.unlock();
        assertFree();
    }

    @Test
    void signalsDoNotEndLock() throws Exception {
        mutex.lock();
        Waiter<Void> waiter = Waiter.run(() -> {
            mutex.lock();
            mutex.unlock();
        });
        try (SignalStorm<Void> storm = SignalStorm.on(waiter)) {
            while (storm.sent() < 100) {
                Thread.sleep(1);
            }
            assertFalse(waiter.isDone());
            mutex.unlock();
            storm.result();
        }
        assertFree();
    }
}
