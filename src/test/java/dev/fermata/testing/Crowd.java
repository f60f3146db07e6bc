// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import dev.fermata.LockFile;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/** Many virtual threads, each of which updates a record behind one of several locks. */
public final class Crowd {
    private static Crowd latest;

    private final List<Thread> threads = new ArrayList<>();

    private Crowd() {
    }

    /** Starts one: thread i takes the lock of number i mod locks. */
    public static Crowd start(LockFile file, int locks, int size) {
        Crowd crowd = new Crowd();
        for (int i = 0; i < size; i++) {
            String name = name(i % locks);
            crowd.threads.add(Thread.ofVirtual().start(() -> LockPeer.update(file.mutex(name, LockPeer.RECORD))));
        }
        latest = crowd;
        return crowd;
    }

    /** The name of the n-th lock. */
    public static String name(int n) {
        return "crowd" + n;
    }

    /** Returns when all of them wait. */
    public Crowd awaitWaiting() {
        for (Thread thread : threads) {
            awaitState(thread, Thread.State.WAITING);
        }
        return this;
    }

    /** Waits for the end of all of the last crowd. */
    public static void join() throws InterruptedException {
        for (Thread thread : latest.threads) {
            thread.join();
        }
    }

    /** Returns when the thread is in that state; fails if it ends. */
    public static void awaitState(Thread thread, Thread.State state) {
        while (thread.getState() != state) {
            if (!thread.isAlive()) {
                throw new AssertionError(thread + " was to be " + state + ", but ended");
            }
            LockSupport.parkNanos(100_000);
        }
    }
}
