// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

/**
 * A third party for tests with two actors: it takes and releases one lock for ever. A stress test with three actors
 * would not run on a machine with two CPUs, and to lose a wake takes one who wakes and two who sleep.
 */
final class Bystander {
    /** Long enough that the others stop spinning and sleep. */
    private static final long HELD_NANOS = 20_000;

    private Bystander() {
    }

    static void start(Runnable lock, Runnable unlock) {
        Thread thread = new Thread(() -> {
            while (true) {
                lock.run();
                linger();
                unlock.run();
                linger();
            }
        }, "bystander");
        thread.setDaemon(true);
        thread.start();
    }

    /** Stays for a while, so that others have to sleep or give up. */
    static void linger() {
        long end = System.nanoTime() + HELD_NANOS;
        while (System.nanoTime() < end) {
            Thread.onSpinWait();
        }
    }
}
