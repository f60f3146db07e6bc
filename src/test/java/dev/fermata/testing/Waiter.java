// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** A thread that is expected to fall asleep in the kernel, and of which one can see that it does. */
public final class Waiter<T> {
    private static final long BETWEEN_LOOKS = 100_000;

    private final FutureTask<T> task;
    private final CountDownLatch started = new CountDownLatch(1);
    private volatile int tid;

    private Waiter(Callable<T> body) {
        task = new FutureTask<>(body);
        Thread.ofPlatform().daemon().name("waiter").start(() -> {
            tid = Kernel.tid();
            started.countDown();
            task.run();
        });
    }

    /** Starts a thread that computes something. */
    public static <T> Waiter<T> call(Callable<T> body) {
        return new Waiter<>(body);
    }

    /** Starts a thread that does something. */
    public static Waiter<Void> run(Runnable body) {
        return new Waiter<>(() -> {
            body.run();
            return null;
        });
    }

    /** The kernel's id of the thread. */
    public int tid() throws InterruptedException {
        started.await();
        return tid;
    }

    /** Returns when the thread sleeps in the futex of the word at that place, or in several; fails if it ends instead. */
    public Waiter<T> awaitAsleepOn(MemorySegment segment, long offset) throws Exception {
        long address = segment.address() + offset;
        long pid = ProcessHandle.current().pid();
        return awaitAsleep(() -> Kernel.isAsleepOn(pid, tid, address) || Kernel.isAsleepOnSeveral(pid, tid));
    }

    /** Returns when the thread sleeps on several futexes; fails if it ends instead. */
    public Waiter<T> awaitAsleepOnSeveral() throws Exception {
        return awaitAsleep(() -> Kernel.isAsleepOnSeveral(ProcessHandle.current().pid(), tid));
    }

    private Waiter<T> awaitAsleep(BooleanSupplier asleep) throws Exception {
        started.await();
        while (!asleep.getAsBoolean()) {
            if (task.isDone()) {
                throw new AssertionError("the thread was to sleep, but ended with " + result());
            }
            LockSupport.parkNanos(BETWEEN_LOOKS);
        }
        return this;
    }

    /** Whether the thread has done what it was to do. */
    public boolean isDone() {
        return task.isDone();
    }

    /** Waits for the end of the thread; what it computed, or the exception it ended with. */
    public T result() throws Exception {
        try {
            return task.get();
        } catch (ExecutionException e) {
            switch (e.getCause()) {
                case Exception exception -> throw exception;
                case Error error -> throw error;
                case Throwable other -> throw e;
            }
        }
    }
}
