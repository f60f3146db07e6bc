// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Layout;
import dev.fermata.internal.Word;
import dev.fermata.testing.LockPath;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;

/** To ask for a mutex and not to wait for it. */
@ParameterizedClass
@ValueSource(booleans = {false, true})
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AsyncTest {
    @Parameter
    boolean symmetric;

    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;
    private ExecutorService executor;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        LockFile.Builder builder = LockFile.builder(place.file());
        file = (symmetric ? builder.symmetric() : builder).open();
        mutex = file.mutex("m", 16);
        executor = Executors.newFixedThreadPool(2, Thread.ofPlatform().name("executor").factory());
    }

    @AfterEach
    void close() throws Exception {
        executor.shutdownNow();
        file.close();
        place.close();
    }

    @Test
    void aFreeMutexIsHadAtOnce() {
        CompletableFuture<Hold> asked = mutex.lockAsync(executor);
        assertTrue(asked.isDone());
        assertEquals(LockInfo.State.HELD, mutex.info().state());
        asked.join().close();
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    void aTokenComesWhenTheMutexIsReleasedAndByTheExecutor() throws Exception {
        mutex.lock();
        CompletableFuture<Hold> asked = mutex.lockAsync(executor);
        CompletableFuture<String> by = asked.thenApply(hold -> Thread.currentThread().getName());
        assertFalse(asked.isDone());
        mutex.unlock();
        Hold hold = asked.get();
        assertTrue(List.of("executor", Thread.currentThread().getName()).contains(by.get()), by.get()); // get() may help
        assertTrue(hold.fence() > 0);
        assertFalse(mutex.tryLock());
        hold.close();
        hold.close();
        assertTrue(mutex.tryLock());
        mutex.unlock();
    }

    @Test
    void whoAsksFirstIsServedFirst() throws Exception {
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        List<CompletableFuture<Void>> all = new ArrayList<>();
        mutex.lock();
        for (int i = 0; i < 200; i++) {
            int number = i;
            all.add(mutex.lockAsync(executor).thenAccept(hold -> {
                order.add(number);
                hold.close();
            }));
        }
        mutex.unlock();
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get();
        assertEquals(java.util.stream.IntStream.range(0, 200).boxed().toList(), order);
    }

    @Test
    void aCancelledWaitLeavesNoTrace() throws Exception {
        mutex.lock();
        CompletableFuture<Hold> first = mutex.lockAsync(executor);
        CompletableFuture<Hold> second = mutex.lockAsync(executor);
        assertTrue(first.cancel(false));
        mutex.unlock();
        second.get().close();
        assertThrows(CancellationException.class, first::join);
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        CompletableFuture<Hold> last = mutex.lockAsync(executor);
        last.complete(null); // gives up as well
        mutex.unlock();
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        mutex.unlock();
    }

    @Test
    void aCancelRacesWithTheGrant() throws Exception {
        for (int i = 0; i < 500; i++) {
            mutex.lock();
            CompletableFuture<Hold> asked = mutex.lockAsync(executor);
            CompletableFuture<Hold> next = mutex.lockAsync(executor);
            Thread canceller = Thread.ofPlatform().start(() -> asked.cancel(false));
            mutex.unlock();
            canceller.join();
            if (!asked.isCancelled()) {
                asked.get().close();
            }
            next.get().close();
        }
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        mutex.unlock();
    }

    @Test
    void aTimeOutSaysWhoHoldsIt() throws Exception {
        mutex.lock();
        long begin = System.nanoTime();
        CompletableFuture<Hold> asked = mutex.lockAsync(Duration.ofMillis(50), executor);
        ExecutionException failure = assertThrows(ExecutionException.class, asked::get);
        assertTrue(System.nanoTime() - begin >= 50_000_000);
        assertInstanceOf(LockTimeoutException.class, failure.getCause());
        assertTrue(failure.getCause().getMessage().contains(Thread.currentThread().getName()),
                failure.getCause().getMessage());
        for (Duration none : List.of(Duration.ZERO, Duration.ofSeconds(-1))) {
            assertInstanceOf(LockTimeoutException.class, mutex.lockAsync(none, executor).exceptionNow());
        }
        CompletableFuture<Hold> longest = mutex.lockAsync(Duration.ofSeconds(Long.MAX_VALUE), executor);
        CompletableFuture<Hold> later = mutex.lockAsync(Duration.ofMillis(60), executor);
        CompletableFuture<Hold> sooner = mutex.lockAsync(Duration.ofMillis(20), executor);
        assertThrows(ExecutionException.class, sooner::get);
        assertThrows(ExecutionException.class, later::get);
        mutex.unlock();
        longest.get().close();
        mutex.lockAsync(Duration.ZERO, executor).get().close();
    }

    @Test
    void anExecutorThatRunsTasksAtOnceDoesNotGetTheReactor() throws Exception {
        AtomicReference<String> name = new AtomicReference<>();
        mutex.lock();
        CompletableFuture<Void> done = mutex.lockAsync(Runnable::run).thenAccept(hold -> {
            name.set(Thread.currentThread().getName());
            hold.close();
        });
        mutex.unlock();
        done.get();
        assertFalse(name.get().contains("reactor"), name.get());
    }

    @Test
    void anExecutorThatRefusesCostsNobodyTheLock() throws Exception {
        Executor refusing = task -> {
            throw new RejectedExecutionException("full");
        };
        mutex.lock();
        CompletableFuture<Hold> refused = mutex.lockAsync(refusing);
        CompletableFuture<Hold> next = mutex.lockAsync(executor);
        mutex.unlock();
        next.get().close();
        assertInstanceOf(RejectedExecutionException.class,
                assertThrows(ExecutionException.class, refused::get).getCause());
    }

    /** An executor whose only thread does something else. */
    private static ExecutorService busyUntil(CountDownLatch over) {
        ExecutorService one = Executors.newSingleThreadExecutor();
        one.execute(() -> {
            try {
                over.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        return one;
    }

    @Test
    void anOfferThatNobodyTakesUpGoesToOthers() throws Exception {
        CountDownLatch busy = new CountDownLatch(1);
        ExecutorService one = busyUntil(busy);
        mutex.lock();
        CompletableFuture<Hold> late = mutex.lockAsync(one);
        mutex.unlock();
        for (int i = 0; i < 3; i++) {
            mutex.lock(); // waits for 10 ms, but not for the executor
            assertFalse(late.isDone());
            mutex.unlock();
        }
        busy.countDown();
        late.get().close();
        one.shutdown();
    }

    /** It has a handler; and nobody comes to run it. */
    @Test
    void anAbandonedLockWaitsForNoExecutor() throws Exception {
        mutex.onOwnerDeath(repaired -> { });
        Word.cas(mutex.memory(), Layout.E_OWNER, Layout.FREE, Layout.ABANDONED);
        CompletableFuture<Hold> lost = mutex.lockAsync(task -> { });
        assertFalse(lost.isDone());
        mutex.lock(); // after 10 ms
        assertTrue(mutex.ownerDied());
        mutex.unlock();
        lost.cancel(false);
        mutex.lockAsync(Duration.ZERO, executor).get().close();
    }

    /** The executor says no, and runs the task all the same, when another has the lock. */
    @Test
    void aRequestThatWasRefusedTouchesNothing() throws Exception {
        List<Runnable> kept = new ArrayList<>();
        mutex.onOwnerDeath(repaired -> { });
        Word.cas(mutex.memory(), Layout.E_OWNER, Layout.FREE, Layout.ABANDONED);
        CompletableFuture<Hold> refused = mutex.lockAsync(task -> {
            synchronized (kept) {
                kept.add(task);
            }
            throw new RejectedExecutionException("full");
        });
        assertThrows(ExecutionException.class, refused::get);
        mutex.lock();
        synchronized (kept) {
            kept.forEach(Runnable::run);
        }
        assertTrue(mutex.isHeldByCurrentThread());
        mutex.unlock();
    }

    @Test
    void aTimeOutOutlivesAnOfferThatWasWithdrawn() throws Exception {
        for (int round = 0; round < 6; round++) {
            CountDownLatch busy = new CountDownLatch(1);
            ExecutorService one = busyUntil(busy);
            mutex.lock();
            CompletableFuture<Hold> first = mutex.lockAsync(Duration.ofMillis(600), one);
            CompletableFuture<Hold> second = mutex.lockAsync(Duration.ofMillis(100 + 35 * round), executor);
            mutex.unlock(); // offered to the first, for whom there is no thread; withdrawn, offered again, ...
            assertThrows(ExecutionException.class, second::get); // mostly while it is offered
            mutex.lock();
            busy.countDown(); // it comes, and there is nothing to take up
            assertInstanceOf(LockTimeoutException.class, assertThrows(ExecutionException.class, first::get).getCause());
            mutex.unlock();
            one.shutdown();
        }
    }

    @Test
    void anOfferThatIsGivenUpIsReleased() throws Exception {
        CountDownLatch busy = new CountDownLatch(1);
        ExecutorService one = busyUntil(busy);
        mutex.lock();
        CompletableFuture<Hold> asked = mutex.lockAsync(one);
        mutex.unlock();
        while (mutex.info().state() != LockInfo.State.HELD) {
            Thread.onSpinWait(); // until it is offered
        }
        asked.cancel(false);
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        mutex.unlock();
        busy.countDown();
        one.shutdown();
    }

    @Test
    void workUnderTheLockAlwaysReleasesIt() throws Exception {
        CompletableFuture<Integer> step = new CompletableFuture<>();
        CompletableFuture<Integer> seven = mutex.withLock(() -> step, executor);
        assertFalse(mutex.tryLock());
        step.complete(7);
        assertEquals(7, seven.get());
        assertEquals(LockInfo.State.FREE, mutex.info().state());

        assertInstanceOf(ArithmeticException.class, assertThrows(ExecutionException.class, () -> mutex.withLock(() -> {
            throw new ArithmeticException();
        }, executor).get()).getCause());
        assertInstanceOf(NullPointerException.class,
                assertThrows(ExecutionException.class, () -> mutex.withLock(() -> null, executor).get()).getCause());
        assertThrows(CompletionException.class, () -> mutex.withLock(
                () -> CompletableFuture.failedStage(new ArithmeticException()), executor).join());
        assertEquals(LockInfo.State.FREE, mutex.info().state());

        mutex.lock();
        CompletableFuture<Integer> cancelled = mutex.withLock(() -> step, executor);
        cancelled.cancel(true);
        mutex.unlock();
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        mutex.unlock();
    }

    /** The classic: each task reads, awaits, writes back. */
    @Test
    void tasksThatAwaitBetweenReadAndWriteAreExactWithTheLockAndShortWithout() throws Exception {
        int tasks = 1000;
        MemorySegment counter = mutex.payload();
        List<CompletableFuture<Void>> with = new ArrayList<>();
        for (int i = 0; i < tasks; i++) {
            with.add(mutex.withLock(() -> increment(counter, 0), executor));
        }
        CompletableFuture.allOf(with.toArray(CompletableFuture[]::new)).get();
        assertEquals(tasks, counter.get(JAVA_LONG, 0));

        List<CompletableFuture<Void>> without = new ArrayList<>();
        for (int i = 0; i < tasks; i++) {
            without.add(increment(counter, 8));
        }
        CompletableFuture.allOf(without.toArray(CompletableFuture[]::new)).get();
        assertTrue(counter.get(JAVA_LONG, 8) < tasks);
    }

    private CompletableFuture<Void> increment(MemorySegment counter, long offset) {
        long read = counter.get(JAVA_LONG, offset);
        return CompletableFuture.runAsync(() -> { }, executor) // somewhere else, later
                .thenRunAsync(() -> counter.set(JAVA_LONG, offset, read + 1), executor);
    }

    @Test
    void closingTheFileFailsEveryRequest() throws Exception {
        mutex.lock();
        List<CompletableFuture<Hold>> asked = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            asked.add(mutex.lockAsync(executor));
        }
        file.close();
        for (CompletableFuture<Hold> each : asked) {
            assertInstanceOf(LockFileClosedException.class,
                    assertThrows(ExecutionException.class, each::get).getCause());
        }
        assertInstanceOf(LockFileClosedException.class, mutex.lockAsync(executor).exceptionNow());
    }

    @Test
    void virtualThreadsAndRequestsAndThreadsTakeTurns() throws Exception {
        MemorySegment counter = mutex.payload();
        int each = 200;
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 8; t++) {
            Runnable body = () -> {
                for (int i = 0; i < each; i++) {
                    mutex.lock();
                    try {
                        counter.set(JAVA_LONG, 0, counter.get(JAVA_LONG, 0) + 1);
                    } finally {
                        mutex.unlock();
                    }
                }
            };
            threads.add(t % 2 == 0 ? Thread.ofVirtual().start(body) : Thread.ofPlatform().start(body));
        }
        List<CompletableFuture<Void>> asked = new ArrayList<>();
        for (int i = 0; i < each; i++) {
            asked.add(mutex.lockAsync(executor).thenAccept(hold -> {
                counter.set(JAVA_LONG, 0, counter.get(JAVA_LONG, 0) + 1);
                hold.close();
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        CompletableFuture.allOf(asked.toArray(CompletableFuture[]::new)).get();
        assertEquals(9L * each, counter.get(JAVA_LONG, 0));
    }
}
