// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.nio.channels.FileChannel.MapMode.READ_WRITE;
import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.WRITE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Layout;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.Waiter;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.junit.jupiter.api.Test;

/** The mutex in one process: what {@link java.util.concurrent.locks.Lock} asks for, and what is added. */
@ParameterizedClass
@ValueSource(booleans = {false, true})
@Tag("polling")
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SharedMutexTest {
    @Parameter
    boolean symmetric;

    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        LockFile.Builder builder = LockFile.builder(place.file());
        file = (symmetric ? builder.symmetric() : builder).open();
        mutex = file.mutex("m", 16);
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    @Test
    void aFreeMutexIsTakenAndGivenBack() {
        mutex.lock();
        assertTrue(mutex.isHeldByCurrentThread());
        assertEquals(LockInfo.State.HELD, mutex.info().state());
        mutex.unlock();
        assertFalse(mutex.isHeldByCurrentThread());
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    void itIsReentrant() throws Exception {
        mutex.lock();
        assertTrue(mutex.tryLock());
        assertTrue(mutex.tryLock(1, TimeUnit.DAYS));
        mutex.lockInterruptibly();
        assertEquals(4, mutex.holdCount());
        for (int i = 0; i < 3; i++) {
            mutex.unlock();
        }
        assertFalse(Waiter.call(mutex::tryLock).result());
        mutex.unlock();
        assertEquals(0, mutex.holdCount());
        assertTrue(Waiter.call(() -> {
            boolean taken = mutex.tryLock();
            mutex.unlock();
            return taken;
        }).result());
    }

    @Test
    void theLastReentryIsAnErrorAndChangesNothing() {
        mutex.lock();
        mutex.setHolds(Integer.MAX_VALUE);
        assertThrows(Error.class, mutex::lock);
        assertThrows(Error.class, mutex::tryLock);
        assertEquals(Integer.MAX_VALUE, mutex.holdCount());
        mutex.setHolds(1);
        mutex.unlock();
    }

    @Test
    void whoDoesNotHoldItCannotUnlockIt() throws Exception {
        assertThrows(IllegalMonitorStateException.class, mutex::unlock);
        mutex.lock();
        IllegalMonitorStateException e = assertThrows(IllegalMonitorStateException.class,
                () -> Waiter.run(mutex::unlock).result());
        assertTrue(e.getMessage().contains("\"waiter\""), e.getMessage());
        assertTrue(e.getMessage().contains("held by pid " + ProcessHandle.current().pid()), e.getMessage());
        assertTrue(e.getMessage().contains(Thread.currentThread().getName()), e.getMessage());
        assertEquals(1, mutex.holdCount());
        mutex.unlock();
        assertThrows(IllegalMonitorStateException.class, mutex::unlock);
        assertThrows(IllegalMonitorStateException.class, mutex::fence);
        assertThrows(IllegalMonitorStateException.class, mutex::ownerDied);
    }

    @Test
    void aWaiterSleepsAndGetsTheMutex() throws Exception {
        mutex.lock();
        Waiter<Long> waiter = Waiter.call(() -> {
            mutex.lock();
            try {
                return mutex.fence();
            } finally {
                mutex.unlock();
            }
        });
        waiter.awaitAsleepOn(mutex.memory(), 4);
        long fence = mutex.fence();
        mutex.unlock();
        assertEquals(fence + 1, waiter.result());
        assertEquals(1, mutex.info().slept());
        assertEquals(1, mutex.info().contended());
    }

    @Test
    void manyThreadsExcludeEachOther() throws Exception {
        MemorySegment record = mutex.payload();
        List<Waiter<Void>> threads = new ArrayList<>();
        for (int t = 0; t < 8; t++) {
            threads.add(Waiter.run(() -> {
                for (int i = 0; i < 20_000; i++) {
                    mutex.lock();
                    record.set(JAVA_LONG, 0, record.get(JAVA_LONG, 0) + 1);
                    mutex.unlock();
                }
            }));
        }
        for (Waiter<Void> thread : threads) {
            thread.result();
        }
        assertEquals(160_000, record.get(JAVA_LONG, 0));
        assertEquals(160_000, mutex.info().acquisitions());
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    void waitsThatAreGivenUpLoseNoWake() throws Exception {
        MemorySegment record = mutex.payload();
        List<Waiter<Long>> threads = new ArrayList<>();
        for (int t = 0; t < 8; t++) {
            long timeout = 10_000L << t;
            threads.add(Waiter.call(() -> {
                long taken = 0;
                for (int i = 0; i < 2_000; i++) {
                    if (mutex.tryLock(timeout, TimeUnit.NANOSECONDS)) {
                        record.set(JAVA_LONG, 0, record.get(JAVA_LONG, 0) + 1);
                        taken++;
                        mutex.unlock();
                    }
                }
                return taken;
            }));
        }
        long taken = 0;
        for (Waiter<Long> thread : threads) {
            taken += thread.result();
        }
        assertEquals(taken, record.get(JAVA_LONG, 0));
        assertTrue(mutex.tryLock());
        mutex.unlock();
    }

    @Test
    void timeoutsOfAllSizesAreTaken() throws Exception {
        for (long timeout : new long[] {0, -1, Long.MIN_VALUE, 1, Long.MAX_VALUE}) {
            for (TimeUnit unit : new TimeUnit[] {TimeUnit.NANOSECONDS, TimeUnit.DAYS}) {
                assertTrue(mutex.tryLock(timeout, unit));
                mutex.unlock();
            }
        }
        mutex.lock();
        Waiter.run(() -> {
            for (long timeout : new long[] {0, -1, Long.MIN_VALUE, 1}) {
                try {
                    assertFalse(mutex.tryLock(timeout, TimeUnit.NANOSECONDS));
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }
        }).result();
        for (long timeout : new long[] {Long.MAX_VALUE, Long.MAX_VALUE / 2}) {
            Waiter<Boolean> forever = Waiter.call(() -> {
                boolean taken = mutex.tryLock(timeout, TimeUnit.DAYS);
                mutex.unlock();
                return taken;
            });
            forever.awaitAsleepOnSeveral();
            mutex.unlock();
            assertTrue(forever.result());
            mutex.lock();
        }
        mutex.unlock();
    }

    @Test
    void aTimeoutIsNotShortAndSaysWhoHoldsIt() throws Exception {
        mutex.lock();
        long begin = System.nanoTime();
        LockTimeoutException e = assertThrows(LockTimeoutException.class,
                () -> Waiter.call(() -> {
                    mutex.lock(Duration.ofMillis(50));
                    return null;
                }).result());
        assertTrue(System.nanoTime() - begin >= 50_000_000);
        assertTrue(e.getMessage().contains("held by pid " + ProcessHandle.current().pid()), e.getMessage());
        mutex.unlock();
    }

    @Test
    void anInterruptEndsAWaitThatAllowsIt() throws Exception {
        mutex.lock();
        for (boolean timed : new boolean[] {false, true}) {
            Thread[] thread = new Thread[1];
            Waiter<Boolean> waiter = Waiter.call(() -> {
                thread[0] = Thread.currentThread();
                if (timed) {
                    return mutex.tryLock(1, TimeUnit.DAYS);
                }
                mutex.lockInterruptibly();
                return true;
            });
            waiter.awaitAsleepOnSeveral();
            thread[0].interrupt();
            assertThrows(InterruptedException.class, waiter::result);
        }
        mutex.unlock();
        assertTrue(mutex.tryLock());
        mutex.unlock();
    }

    @Test
    void anInterruptFromBeforeIsSeenAndCleared() {
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, mutex::lockInterruptibly);
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> mutex.tryLock(0, TimeUnit.SECONDS));
        assertFalse(Thread.interrupted());
        assertFalse(mutex.isHeldByCurrentThread());
    }

    @Test
    void anInterruptDoesNotEndLock() throws Exception {
        mutex.lock();
        Thread[] thread = new Thread[1];
        Waiter<Boolean> waiter = Waiter.call(() -> {
            thread[0] = Thread.currentThread();
            mutex.lock();
            mutex.unlock();
            return Thread.interrupted();
        });
        waiter.awaitAsleepOn(mutex.memory(), 4);
        thread[0].interrupt();
        waiter.awaitAsleepOn(mutex.memory(), 4);
        mutex.unlock();
        assertTrue(waiter.result());
    }

    @Test
    void aHoldBelongsToNoThread() throws Exception {
        Hold hold = mutex.acquire();
        assertFalse(mutex.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, mutex::unlock);
        assertFalse(mutex.tryLock());
        assertTrue(mutex.tryAcquire().isEmpty());
        LockTimeoutException late =
                assertThrows(LockTimeoutException.class, () -> mutex.acquire(Duration.ofMillis(1)));
        assertTrue(late.getMessage().contains("by a Hold of this process"), late.getMessage());
        assertEquals("Hold[\"%s\", fence %d]".formatted(mutex.name(), hold.fence()), hold.toString());
        Waiter.run(hold::close).result();
        hold.close(); // no effect
        try (Hold next = mutex.acquire(Duration.ofSeconds(1))) {
            assertEquals(hold.fence() + 1, next.fence());
            hold.close(); // still none
            assertFalse(mutex.tryLock());
            assertSame(mutex, next.mutex());
            assertFalse(next.ownerDied());
        }
        assertTrue(mutex.tryLock());
        mutex.unlock();
    }

    @Test
    void aWaitingHoldIsServed() throws Exception {
        mutex.lock();
        Waiter<Hold> waiter = Waiter.call(mutex::acquire);
        waiter.awaitAsleepOn(mutex.memory(), 4);
        mutex.unlock();
        waiter.result().close();
        assertTrue(mutex.tryLock());
        mutex.unlock();
    }

    @Test
    void whoHasWaitedLongIsHandedTheLock() throws Exception {
        mutex.lock();
        Waiter<Long> waiter = Waiter.call(() -> {
            mutex.lock();
            long fence = mutex.fence();
            mutex.unlock();
            return fence;
        });
        waiter.awaitAsleepOn(mutex.memory(), 4);
        awaitHeir(mutex);
        long before = mutex.fence();
        mutex.unlock();
        assertFalse(mutex.tryLock() && mutex.fence() == before + 1, "the heir was passed over");
        if (mutex.isHeldByCurrentThread()) {
            mutex.unlock();
        }
        assertEquals(before + 1, waiter.result());
    }

    @Test
    void anUnlockWakesOneOfManyWaiters() throws Exception {
        mutex.lock();
        Semaphore unlocks = new Semaphore(0);
        AtomicInteger acquired = new AtomicInteger();
        List<Waiter<Void>> waiters = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            waiters.add(Waiter.run(() -> {
                mutex.lock();
                acquired.incrementAndGet();
                unlocks.acquireUninterruptibly();
                mutex.unlock();
            }));
        }
        for (Waiter<Void> waiter : waiters) {
            waiter.awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
        }
        awaitHeir(mutex);
        int fewest = Integer.MAX_VALUE; // some come by themselves, as each does once a second
        for (int round = 0; round < 20; round++) {
            int before = acquired.get();
            long[] slept = sleeps(waiters);
            if (round == 0) {
                mutex.unlock();
            } else {
                unlocks.release();
            }
            while (acquired.get() == before) {
                Thread.sleep(1);
            }
            long[] now = sleeps(waiters);
            int woken = 0;
            for (int i = 0; i < now.length; i++) {
                woken += now[i] != slept[i] ? 1 : 0;
            }
            fewest = Math.min(fewest, woken);
        }
        assertTrue(fewest <= 4, "each unlock woke " + fewest + " of them or more");
        unlocks.release(waiters.size());
        for (Waiter<Void> waiter : waiters) {
            waiter.result();
        }
    }

    /** Returns when a waiter is next in line. */
    static void awaitHeir(SharedMutex mutex) throws InterruptedException {
        while (mutex.memory().get(JAVA_INT, Layout.E_HEIR) == 0) {
            Thread.sleep(1); // it looks again after 1 ms and is the heir then
        }
    }

    /** How often each thread has gone to sleep; 0 for one that has ended. */
    private static long[] sleeps(List<Waiter<Void>> waiters) throws Exception {
        long[] sleeps = new long[waiters.size()];
        for (int i = 0; i < sleeps.length; i++) {
            sleeps[i] = waiters.get(i).isDone() ? 0 : Kernel.sleeps(waiters.get(i).tid());
        }
        return sleeps;
    }

    @Test
    void thePayloadIsZeroAndAlignedAndStays() throws Exception {
        MemorySegment payload = mutex.payload();
        assertEquals(16, payload.byteSize());
        assertEquals(0, payload.address() % 64);
        assertEquals(0, payload.get(JAVA_LONG, 0));
        payload.set(JAVA_LONG, 8, 42);
        file.close();
        try (LockFile again = LockFile.open(place.file())) {
            assertEquals(42, again.mutex("m").payload().get(JAVA_LONG, 8));
            assertEquals(0, again.mutex("without").payload().byteSize());
        }
        assertThrows(IllegalStateException.class, () -> payload.get(JAVA_LONG, 0));
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 32, 33, 64, 65, 255})
    void thePayloadLiesInTheFileWhereItSays(int nameLength) throws Exception {
        SharedMutex named = file.mutex("x".repeat(nameLength), 100);
        assertEquals(0, named.payloadOffset() % 64);
        named.payload().set(JAVA_LONG, 72, 4711);
        try (FileChannel channel = FileChannel.open(place.file(), READ, WRITE); Arena arena = Arena.ofConfined()) {
            MemorySegment same = channel.map(READ_WRITE, named.payloadOffset(), 100, arena);
            assertEquals(4711, same.get(JAVA_LONG, 72));
            same.fill((byte) 1);
        }
        assertEquals(0, mutex.payload().get(JAVA_LONG, 0));
        assertEquals(0x0101_0101, named.payload().get(JAVA_INT, 96));
        assertEquals(named, file.mutex("x".repeat(nameLength)));
        named.lock();
        named.unlock();
    }

    @Test
    void whereThereIsNoPayloadThereIsNoOffsetOfOne() {
        SharedMutex without = file.mutex("without");
        assertTrue(assertThrows(UnsupportedOperationException.class, without::payloadOffset).getMessage()
                .contains("\"without\""));
        file.close();
        assertThrows(LockFileClosedException.class, mutex::payloadOffset);
    }

    @Test
    void aThreadThatEndedIsSaidToHaveEnded() throws Exception {
        Waiter.run(mutex::lock).result();
        while (!mutex.info().thread().contains("which has ended")) {
            Thread.sleep(10);
        }
        assertFalse(mutex.tryLock());
        assertTrue(mutex.toString().contains("\"waiter\", which has ended"), mutex.toString());
    }

    @Test
    void thereAreNoConditionsYet() {
        assertThrows(UnsupportedOperationException.class, mutex::newCondition);
    }
}
