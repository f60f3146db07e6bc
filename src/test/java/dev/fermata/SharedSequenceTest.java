// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Layout;
import dev.fermata.testing.Crowd;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.Waiter;
import dev.fermata.testing.Worker;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The sequence, and with it how one waits for anything that an eventcount announces. */
@ParameterizedClass
@ValueSource(booleans = {false, true})
@Tag("polling")
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SharedSequenceTest {
    private static final long ROUNDS = 20_000;

    @Parameter
    boolean symmetric;

    private LockPath place;
    private LockFile file;
    private SharedSequence sequence;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        LockFile.Builder builder = LockFile.builder(place.file());
        file = (symmetric ? builder.symmetric() : builder).open();
        sequence = file.sequence("s", 16);
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    private Waiter<Long> waiter(long number) throws Exception {
        return Waiter.call(() -> sequence.await(number)).awaitAsleepOn(sequence.memory(), Layout.E_EVENTS);
    }

    /** Changes with each wake, and with nothing else: who waits looks each second, woken or not. */
    private int epoch() {
        return sequence.memory().get(JAVA_INT, Layout.E_EVENTS) & ~(Layout.ASLEEP | Layout.SLEPT);
    }

    @Test
    void itBeginsAtZeroAndGrows() throws Exception {
        assertEquals(0, sequence.await(0));
        sequence.publish(5);
        sequence.publish(5);
        assertEquals(5, sequence.value());
        assertEquals(5, sequence.await(3));
        IllegalArgumentException less = assertThrows(IllegalArgumentException.class, () -> sequence.publish(4));
        assertTrue(less.getMessage().contains("at 5 already, found 4"), less.getMessage());
        assertFalse(sequence.raise(5));
        assertTrue(sequence.raise(7));
        assertEquals(7, sequence.getAndAdd(3));
        assertEquals(10, sequence.value());
        assertSame(sequence, file.sequence("s", 16));
        assertTrue(sequence.toString().contains("at 10"), sequence.toString());
    }

    @Test
    void itDoesNotOverflow() {
        sequence.publish(Long.MAX_VALUE - 1);
        assertThrows(Error.class, () -> sequence.getAndAdd(2));
        assertEquals(Long.MAX_VALUE - 1, sequence.value());
        assertThrows(IllegalArgumentException.class, () -> sequence.getAndAdd(0));
        assertEquals(Long.MAX_VALUE - 1, sequence.getAndAdd(1));
    }

    @Test
    void whoSleepsIsWokenWhenItComes() throws Exception {
        Waiter<Long> first = waiter(1);
        Waiter<Long> second = waiter(2);
        int before = epoch();
        sequence.publish(1);
        assertTrue(epoch() != before);
        assertEquals(1, first.result());
        second.awaitAsleepOn(sequence.memory(), Layout.E_EVENTS);
        while ((sequence.memory().get(JAVA_INT, Layout.E_EVENTS) & Layout.ASLEEP) == 0) {
            Thread.sleep(1); // it was woken, too, and is to register again
        }
        before = epoch();
        sequence.getAndAdd(1);
        assertTrue(epoch() != before);
        assertEquals(2, second.result());
    }

    @Test
    void aTimeOutEndsTheWaitNotBeforeItIsOver() throws Exception {
        long begin = System.nanoTime();
        assertFalse(sequence.await(1, 50, TimeUnit.MILLISECONDS));
        assertTrue(System.nanoTime() - begin >= 50_000_000);
        assertFalse(sequence.await(1, 0, TimeUnit.SECONDS));
        LockTimeoutException late =
                assertThrows(LockTimeoutException.class, () -> sequence.await(1, Duration.ofMillis(1)));
        assertTrue(late.getMessage().contains("at 0"), late.getMessage());
        assertTrue(sequence.await(0, -1, TimeUnit.DAYS));
    }

    @Test
    void anInterruptEndsTheWait() throws Exception {
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> sequence.await(0));
        assertFalse(Thread.interrupted());
        Thread me = Thread.currentThread();
        Thread.ofPlatform().start(me::interrupt);
        assertThrows(InterruptedException.class, () -> sequence.await(1, 1, TimeUnit.DAYS));
        Waiter<Boolean> deaf = Waiter.call(() -> {
            Thread.currentThread().interrupt();
            sequence.awaitUninterruptibly(1);
            return Thread.interrupted();
        });
        sequence.publish(1);
        assertTrue(deaf.result());
    }

    @Test
    void virtualThreadsParkAndGetWhatTheyWaitFor() throws Exception {
        List<Thread> threads = new ArrayList<>();
        CompletableFuture<Boolean> wrong = new CompletableFuture<>();
        for (int i = 0; i < 1000; i++) {
            long number = i % 100 + 1;
            threads.add(Thread.startVirtualThread(() -> {
                if (sequence.awaitUninterruptibly(number) < number) {
                    wrong.complete(true);
                }
            }));
        }
        for (Thread thread : threads) {
            Crowd.awaitState(thread, Thread.State.WAITING);
        }
        for (int n = 1; n <= 100; n++) {
            sequence.publish(n);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertFalse(wrong.isDone());
        FutureHolder<Boolean> late = FutureHolder.ofVirtual(() -> sequence.await(101, 20, TimeUnit.MILLISECONDS));
        assertFalse(late.result());
        FutureHolder<Long> interrupted = FutureHolder.ofVirtual(() -> sequence.await(101));
        Crowd.awaitState(interrupted.thread, Thread.State.WAITING);
        interrupted.thread.interrupt();
        assertInstanceOf(InterruptedException.class, assertThrows(ExecutionException.class, interrupted::result).getCause());
    }

    /** A virtual thread and what comes of it. */
    private record FutureHolder<T>(Thread thread, CompletableFuture<T> future) {
        static <T> FutureHolder<T> ofVirtual(Callable<T> work) {
            CompletableFuture<T> future = new CompletableFuture<>();
            return new FutureHolder<>(Thread.startVirtualThread(() -> {
                try {
                    future.complete(work.call());
                } catch (Exception e) {
                    future.completeExceptionally(e);
                }
            }), future);
        }

        T result() throws Exception {
            return future.get();
        }
    }

    @Test
    void requestsAreToldAndCanBeCancelled() throws Exception {
        CompletableFuture<Long> late = sequence.awaitAsync(9);
        CompletableFuture<Long> given = sequence.awaitAsync(9);
        CompletableFuture<Long> early = sequence.awaitAsync(1, Runnable::run);
        assertTrue(given.cancel(true));
        assertFalse(early.isDone());
        sequence.publish(2);
        assertEquals(2, early.get());
        sequence.publish(9);
        assertEquals(9, late.get());
        assertEquals(9, sequence.awaitAsync(3).getNow(-1L));
        CompletableFuture<Long> refused = sequence.awaitAsync(10, task -> {
            throw new RejectedExecutionException("no");
        });
        sequence.publish(10);
        assertInstanceOf(RejectedExecutionException.class,
                assertThrows(ExecutionException.class, refused::get).getCause());
    }

    @Test
    void closingEndsEveryWait() throws Exception {
        Waiter<Long> thread = waiter(1);
        FutureHolder<Long> virtual = FutureHolder.ofVirtual(() -> sequence.await(1));
        Crowd.awaitState(virtual.thread, Thread.State.WAITING);
        CompletableFuture<Long> request = sequence.awaitAsync(1);
        file.close();
        assertThrows(LockFileClosedException.class, thread::result);
        assertInstanceOf(LockFileClosedException.class,
                assertThrows(ExecutionException.class, virtual::result).getCause());
        assertInstanceOf(LockFileClosedException.class, assertThrows(ExecutionException.class, request::get).getCause());
        assertThrows(LockFileClosedException.class, () -> sequence.publish(1));
        assertThrows(LockFileClosedException.class, () -> sequence.await(1));
        assertThrows(LockFileClosedException.class, sequence::value);
    }

    @Test
    void aNameIsOneThing() {
        assertThrows(LockMismatchException.class, () -> file.mutex("s"));
        assertThrows(LockMismatchException.class, () -> file.sequence("s"));
        file.mutex("m");
        LockMismatchException e = assertThrows(LockMismatchException.class, () -> file.sequence("m"));
        assertTrue(e.getMessage().contains("is a mutex, expected a sequence"), e.getMessage());
        assertThrows(IllegalArgumentException.class, () -> file.sequence("x", -1));
    }

    /** Answers every odd number with the next one. */
    static void echo(String... arguments) throws Exception {
        try (LockFile file = LockFile.open(Path.of(arguments[0]))) {
            SharedSequence sequence = file.sequence("s", 16);
            Worker.say("ready");
            for (long n = 1; n < 2 * ROUNDS; n += 2) {
                sequence.await(n);
                sequence.payload().set(JAVA_LONG, 8, sequence.payload().get(JAVA_LONG, 0) + 1);
                sequence.publish(n + 1);
            }
        }
    }

    @Test
    void twoProcessesCountInTurns() throws Exception {
        try (Worker other = Worker.start(SharedSequenceTest.class, "echo", List.of(), place.file())) {
            other.expect("ready");
            for (long n = 1; n < 2 * ROUNDS; n += 2) {
                sequence.payload().set(JAVA_LONG, 0, n);
                sequence.publish(n);
                sequence.await(n + 1);
                assertEquals(n + 1, sequence.payload().get(JAVA_LONG, 8));
            }
            other.awaitSuccess();
        }
    }

    /** Publishes once. */
    static void publish(String... arguments) throws Exception {
        LockFile file = LockFile.open(Path.of(arguments[0]));
        Worker.say("ready");
        Worker.hear();
        file.sequence("s", 16).publish(1);
    }

    @Test
    void whoPublishesAndDiesBeforeItWakesHasWokenAllTheSame() throws Exception {
        try (Worker victim = Worker.startMortal("sequence: published", SharedSequenceTest.class, "publish", place.file())) {
            victim.expect("ready");
            Waiter<Long> waiter = waiter(1);
            CompletableFuture<Long> request = sequence.awaitAsync(1);
            int before = epoch();
            victim.tell("go");
            victim.awaitDeath();
            assertEquals(1, waiter.result());
            assertEquals(1, request.get());
            while (epoch() == before) {
                Thread.sleep(1); // recovery wakes, where the victim has not
            }
        }
    }

    /** Waits, and does not live to see it. */
    static void await(String... arguments) throws Exception {
        LockFile file = LockFile.open(Path.of(arguments[0]));
        file.sequence("s", 16).await(1);
    }

    @ParameterizedTest
    @ValueSource(strings = {"wait: registered", "wait: asleep"})
    void whoDiesWhileItWaitsKeepsNobodyFromBeingWoken(String step) throws Exception {
        Waiter<Long> waiter = waiter(1);
        try (Worker victim = Worker.startMortal(step, SharedSequenceTest.class, "await", place.file())) {
            victim.awaitDeath();
        }
        waiter.awaitAsleepOn(sequence.memory(), Layout.E_EVENTS);
        sequence.publish(1);
        assertEquals(1, waiter.result());
    }
}
