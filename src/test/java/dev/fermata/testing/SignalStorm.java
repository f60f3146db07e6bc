// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/** Signals sent to one thread at about 1 kHz. They interrupt its system calls and do nothing else. */
public final class SignalStorm<T> implements AutoCloseable {
    private static final long BETWEEN = 1_000_000;

    private final Waiter<T> target;
    private final CompletableFuture<Void> sender;
    private volatile boolean over;
    private volatile int sent;

    private SignalStorm(Waiter<T> target) throws InterruptedException {
        this.target = target;
        int tid = target.tid();
        Kernel.handle(Kernel.SIGURG);
        sender = CompletableFuture.runAsync(() -> {
            while (!over && Kernel.signal(tid, Kernel.SIGURG)) {
                sent = sent + 1;
                LockSupport.parkNanos(BETWEEN);
            }
        }, task -> Thread.ofPlatform().daemon().name("signals").start(task));
    }

    /** Starts it. */
    public static <T> SignalStorm<T> on(Waiter<T> target) throws InterruptedException {
        return new SignalStorm<>(target);
    }

    /** How many signals have been sent. */
    public int sent() {
        return sent;
    }

    /** What the thread computed under it. */
    public T result() throws Exception {
        return target.result();
    }

    @Override
    public void close() {
        over = true;
        sender.join();
        Kernel.unhandle(Kernel.SIGURG);
    }
}
