// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.testing.Crowd;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Virtual threads that wait for a mutex, beside all others that do. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class VirtualThreadTest {
    /** The longest wait that is taken for progress. */
    private static final long BOUND = 5_000_000_000L;

    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.builder(place.file()).capacity(2000).open();
        mutex = file.mutex("m", LockPeer.RECORD);
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    private static final class Virtual<T> {
        private final FutureTask<T> task;
        private final Thread thread;

        Virtual(Callable<T> body) {
            task = new FutureTask<>(body);
            thread = Thread.ofVirtual().start(task);
        }

        Virtual<T> awaitWaiting(Thread.State state) {
            Crowd.awaitState(thread, state);
            return this;
        }
    }

    @Test
    void tenThousandOfTwoProcessesWaitForAThousandLocksAndKeepNoCarrier() throws Exception {
        int locks = 1000;
        int crowd = 5000;
        List<Hold> held = new ArrayList<>();
        for (int i = 0; i < locks; i++) {
            held.add(file.mutex(Crowd.name(i), LockPeer.RECORD).acquire());
        }
        try (LockPeer peer = LockPeer.start(place.file(), "-Xmx256m")) {
            peer.tell("crowd " + locks + " " + crowd);
            Crowd.start(file, locks, crowd).awaitWaiting();
            peer.expect("crowded");
            assertEquals(7, new Virtual<>(() -> 7).task.get()); // others run
            peer.tell("crowded");
            held.forEach(Hold::close);
            Crowd.join();
            peer.expect("done");
        }
        long sum = 0;
        for (int i = 0; i < locks; i++) {
            sum += file.mutex(Crowd.name(i), LockPeer.RECORD).payload().get(JAVA_LONG, 0);
            assertEquals(LockInfo.State.FREE, file.mutex(Crowd.name(i), LockPeer.RECORD).info().state());
        }
        assertEquals(2 * crowd, sum);
    }

    @Test
    void itUnlocksOnAnotherCarrier() throws Exception {
        new Virtual<>(() -> {
            mutex.lock();
            String carrier = carrier();
            List<Thread> others = new ArrayList<>();
            for (int i = 0; carrier().equals(carrier); i++) {
                others.add(Thread.ofVirtual().start(() -> {
                    for (long until = System.nanoTime() + 1_000_000; System.nanoTime() - until < 0; ) {
                        Thread.onSpinWait(); // the carrier is another's for a while
                    }
                }));
                Thread.yield();
            }
            assertTrue(mutex.isHeldByCurrentThread());
            mutex.unlock();
            for (Thread other : others) {
                other.join();
            }
            return null;
        }).task.get();
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    private static String carrier() {
        String text = Thread.currentThread().toString(); // VirtualThread[#22]/runnable@ForkJoinPool-1-worker-1
        return text.substring(text.indexOf('@'));
    }

    @Test
    void itIsReentrantAndKnownAsTheHolder() throws Exception {
        new Virtual<>(() -> {
            mutex.lock();
            mutex.lock();
            assertEquals(2, mutex.holdCount());
            assertTrue(mutex.toString().contains("thread " + Thread.currentThread().threadId()), mutex.toString());
            mutex.unlock();
            mutex.unlock();
            return null;
        }).task.get();
    }

    @Test
    void anInterruptEndsTheWaitAndLeavesNothing() throws Exception {
        mutex.lock();
        Virtual<Void> waiter = new Virtual<Void>(() -> {
            mutex.lockInterruptibly();
            return null;
        }).awaitWaiting(Thread.State.WAITING);
        Virtual<Void> next = new Virtual<Void>(() -> {
            mutex.lock();
            mutex.unlock();
            return null;
        }).awaitWaiting(Thread.State.WAITING);
        waiter.thread.interrupt();
        assertInstanceOf(InterruptedException.class,
                assertThrows(ExecutionException.class, waiter.task::get).getCause());
        mutex.unlock();
        next.task.get();

        Virtual<Void> before = new Virtual<>(() -> {
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, mutex::lockInterruptibly);
            assertFalse(Thread.currentThread().isInterrupted());
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> mutex.tryLock(1, TimeUnit.DAYS));
            return null;
        });
        before.task.get();
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    void plainLockKeepsTheInterruptAndGoesOnWaiting() throws Exception {
        mutex.lock();
        Virtual<Boolean> waiter = new Virtual<>(() -> {
            mutex.lock();
            mutex.unlock();
            return Thread.interrupted();
        }).awaitWaiting(Thread.State.WAITING);
        waiter.thread.interrupt();
        Crowd.awaitState(waiter.thread, Thread.State.WAITING);
        assertFalse(waiter.task.isDone());
        mutex.unlock();
        assertTrue(waiter.task.get());
    }

    @Test
    void anInterruptRacesWithTheGrant() throws Exception {
        for (int i = 0; i < 500; i++) {
            mutex.lock();
            Virtual<Boolean> waiter = new Virtual<>(() -> {
                try {
                    mutex.lockInterruptibly();
                } catch (InterruptedException e) {
                    return false;
                }
                mutex.unlock();
                return true;
            });
            int delay = ThreadLocalRandom.current().nextInt(100_000);
            Thread interrupter = Thread.ofPlatform().start(() -> {
                for (long until = System.nanoTime() + delay; System.nanoTime() - until < 0; ) {
                    Thread.onSpinWait();
                }
                waiter.thread.interrupt();
            });
            mutex.unlock();
            waiter.task.get();
            interrupter.join();
            mutex.lock();
            mutex.unlock();
        }
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    void aTimeOutIsNeverEarly() throws Exception {
        mutex.lock();
        for (long timeout : new long[] {Long.MIN_VALUE, -1, 0, 1, 30}) {
            long begin = System.nanoTime();
            Virtual<Boolean> waiter = new Virtual<>(() -> mutex.tryLock(timeout, TimeUnit.MILLISECONDS));
            while (!waiter.task.isDone()) {
                LockSupport.unpark(waiter.thread); // for no reason
            }
            assertFalse(waiter.task.get());
            assertTrue(System.nanoTime() - begin >= timeout * 1_000_000 || timeout < 0);
        }
        Virtual<Boolean> longest = new Virtual<>(() -> mutex.tryLock(Long.MAX_VALUE, TimeUnit.DAYS));
        longest.awaitWaiting(Thread.State.WAITING);
        assertInstanceOf(LockTimeoutException.class, assertThrows(ExecutionException.class, () -> new Virtual<Void>(() -> {
            mutex.lock(Duration.ofMillis(20));
            return null;
        }).task.get()).getCause());
        mutex.unlock();
        assertTrue(longest.task.get());
    }

    @Test
    void closingTheFileEndsEachWait() throws Exception {
        mutex.lock();
        List<Virtual<Void>> waiters = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            waiters.add(new Virtual<Void>(() -> {
                mutex.lock();
                return null;
            }).awaitWaiting(Thread.State.WAITING));
        }
        file.close();
        for (Virtual<Void> waiter : waiters) {
            assertInstanceOf(LockFileClosedException.class,
                    assertThrows(ExecutionException.class, waiter.task::get).getCause());
        }
    }

    @Test
    void whoeverDiesIsSurvivedByThoseWhoWait() throws Exception {
        try (LockPeer peer = LockPeer.start(place.file())) {
            assertEquals("locked", peer.ask("virtually lock m"));
            Virtual<Boolean> waiter = new Virtual<>(() -> {
                mutex.lock();
                boolean told = mutex.ownerDied();
                mutex.unlock();
                return told;
            }).awaitWaiting(Thread.State.WAITING);
            CompletableFuture<Boolean> asked = mutex.lockAsync().thenApply(hold -> {
                hold.close();
                return hold.ownerDied();
            });
            peer.kill();
            assertTrue(waiter.task.get());
            assertFalse(asked.get());
        }
    }

    @Test
    void aStrictLockRefusesEachOfThem() throws Exception {
        SharedMutex strict = file.mutex("strict", LockPeer.RECORD, OwnerDeath.STRICT);
        try (LockPeer peer = LockPeer.start(place.file())) {
            assertEquals("locked", peer.ask("virtually lock strict"));
            Virtual<Void> waiter = new Virtual<Void>(() -> {
                strict.lock();
                return null;
            }).awaitWaiting(Thread.State.WAITING);
            CompletableFuture<Hold> asked = strict.lockAsync();
            Virtual<Boolean> repairer = new Virtual<>(() -> strict.recover(() -> { }))
                    .awaitWaiting(Thread.State.WAITING);
            peer.kill();
            assertInstanceOf(OwnerDiedException.class,
                    assertThrows(ExecutionException.class, waiter.task::get).getCause());
            assertInstanceOf(OwnerDiedException.class, assertThrows(ExecutionException.class, asked::get).getCause());
            assertTrue(repairer.task.get());
        }
        strict.lockAsync().get().close();
    }

    @Test
    void theHandlerOfARequestRunsUnderTheLockAndByTheExecutor() throws Exception {
        Thread own = Thread.currentThread();
        AtomicBoolean ran = new AtomicBoolean();
        mutex.onOwnerDeath(repaired -> {
            assertTrue(repaired.isHeldByCurrentThread());
            ran.set(Thread.currentThread() != own);
        });
        for (int waits = 0; waits < 2; waits++) {
            ran.set(false);
            try (LockPeer peer = LockPeer.start(place.file())) {
                assertEquals("locked", peer.ask("virtually lock m"));
                CompletableFuture<Hold> asked = waits == 1 ? mutex.lockAsync() : null;
                peer.kill();
                while (waits == 0 && mutex.info().state() != LockInfo.State.ABANDONED) {
                    Thread.sleep(1);
                }
                Hold hold = (waits == 1 ? asked : mutex.lockAsync()).get();
                assertTrue(hold.ownerDied() && ran.get());
                hold.close();
            }
        }
        mutex.onOwnerDeath(repaired -> {
            throw new ArithmeticException();
        });
        try (LockPeer peer = LockPeer.start(place.file())) {
            assertEquals("locked", peer.ask("virtually lock m"));
            CompletableFuture<Hold> asked = mutex.lockAsync();
            peer.kill();
            assertInstanceOf(ArithmeticException.class, assertThrows(ExecutionException.class, asked::get).getCause());
        }
        mutex.onOwnerDeath(null);
        Hold told = mutex.lockAsync().get();
        assertTrue(told.ownerDied());
        told.close();
    }

    @Test
    void foreignProcessesDoNotWaitForACarrier() throws Exception {
        SharedMutex stop = file.mutex("stop", LockPeer.RECORD);
        try (LockPeer peer = LockPeer.start(place.file(), "-Djdk.virtualThreadScheduler.parallelism=1",
                "-Djdk.virtualThreadScheduler.maxPoolSize=1")) {
            mutex.lock();
            peer.tell("saturate m stop");
            peer.expect("saturated");
            mutex.unlock();
            for (int i = 0; i < 5; i++) {
                mutex.lock(); // which was offered to one who has no carrier
                assertEquals(0, mutex.payload().get(JAVA_LONG, 0));
                mutex.unlock();
                Thread.sleep(5); // it is offered to that one again, once or not at all
            }
            JAVA_LONG.varHandle().setVolatile(stop.payload(), 0L, 1L);
            peer.expect("updated");
        }
        assertEquals(1, mutex.payload().get(JAVA_LONG, 0));
    }

    /** Threads, virtual threads, requests and another process contend; none is left behind. */
    @Test
    void allKindsOfWaitersMakeProgressTogether() throws Exception {
        AtomicLong longest = new AtomicLong();
        AtomicLong[] counts = {new AtomicLong(), new AtomicLong(), new AtomicLong(), new AtomicLong()};
        List<FutureTask<Void>> tasks = new ArrayList<>();
        try (LockPeer peer = LockPeer.start(place.file())) {
            long end = System.nanoTime() + 3_000_000_000L;
            for (int t = 0; t < 6; t++) {
                int kind = t % 3;
                FutureTask<Void> task = new FutureTask<>(() -> {
                    do {
                        long begin = System.nanoTime();
                        if (kind == 2) {
                            Hold hold = mutex.lockAsync().get();
                            longest.accumulateAndGet(System.nanoTime() - begin, Math::max);
                            count(mutex.payload());
                            hold.close();
                        } else {
                            mutex.lock();
                            longest.accumulateAndGet(System.nanoTime() - begin, Math::max);
                            count(mutex.payload());
                            mutex.unlock();
                        }
                        counts[kind].incrementAndGet();
                    } while (System.nanoTime() - end < 0);
                    return null;
                });
                tasks.add(task);
                (kind == 1 ? Thread.ofVirtual() : Thread.ofPlatform()).start(task);
            }
            do {
                long begin = System.nanoTime();
                assertEquals("updated", peer.ask("update m 10"));
                longest.accumulateAndGet((System.nanoTime() - begin) / 10, Math::max);
                counts[3].addAndGet(10);
            } while (System.nanoTime() - end < 0);
            for (FutureTask<Void> task : tasks) {
                task.get();
            }
        }
        long sum = 0;
        for (AtomicLong count : counts) {
            assertTrue(count.get() > 0, () -> List.of(counts).toString());
            sum += count.get();
        }
        assertEquals(sum, mutex.payload().get(JAVA_LONG, 0));
        assertTrue(longest.get() < BOUND, () -> "waited " + longest + " ns; acquisitions " + List.of(counts));
    }

    private static void count(MemorySegment record) {
        record.set(JAVA_LONG, 0, record.get(JAVA_LONG, 0) + 1);
        record.set(JAVA_LONG, 8, record.get(JAVA_LONG, 8) + 1);
    }
}
