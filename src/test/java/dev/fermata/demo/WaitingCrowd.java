// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.Hold;
import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/** A JVM that {@link WaitingRun} measures. */
final class WaitingCrowd {
    static final String IDLE = "an idle JVM";
    static final String REENTRANT = "100 threads contend for ReentrantLocks";
    /** What the threads of a JVM do that collects. */
    static final List<String> CROWDS = List.of(IDLE, "100 platform threads asleep", "100 platform threads contend",
            "100 virtual threads parked", "100 virtual threads contend", REENTRANT);
    /** What is weighed. */
    static final List<String> KINDS = List.of("virtual threads, ReentrantLock", "virtual threads, SharedMutex", "lockAsync");

    private static final int THREADS = 100;
    private static final int ROUNDS = 10;

    private WaitingCrowd() {
    }

    public static void main(String[] arguments) throws Exception {
        LockFile file = LockFile.builder(Path.of(arguments[0])).mustExist().label("crowd")
                .stuckAfter(Duration.ofDays(1)).open(); // a thousand warnings are not what is measured
        switch (arguments[1]) {
            case "collect" -> collect(file, arguments[2], Integer.parseInt(arguments[3]));
            case "ask" -> ask(file, Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
            case "weigh" -> weigh(file, arguments[2], Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        Runtime.getRuntime().halt(0); // its threads would go on
    }

    private static void collect(LockFile file, String crowd, int times) throws InterruptedException {
        List<Lock> locks = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            locks.add(crowd.equals(REENTRANT) ? new ReentrantLock() : file.mutex("contended" + i));
        }
        long[] counts = new long[locks.size()];
        Lock held = file.mutex("held");
        for (int i = 0; i < THREADS && !crowd.equals(IDLE); i++) {
            int lock = i % locks.size();
            Runnable body = !crowd.contains("contend") ? held::lock : () -> {
                while (true) {
                    locks.get(lock).lock();
                    counts[lock]++;
                    locks.get(lock).unlock();
                }
            };
            if (crowd.contains("virtual")) {
                Thread.ofVirtual().start(body);
            } else {
                Thread.ofPlatform().daemon().start(body);
            }
        }
        Thread.sleep(2000); // compiled, or asleep
        for (int i = 0; i < times; i++) {
            System.gc();
            Thread.sleep(10);
        }
    }

    private static void ask(LockFile file, int locks, int waiters) throws IOException {
        List<CompletableFuture<Hold>> asked = new ArrayList<>();
        for (int i = 0; i < waiters; i++) {
            asked.add(file.mutex("held" + i % locks).lockAsync());
        }
        System.out.println("> asked");
        System.in.read(); // until it is killed
        throw new AssertionError(asked.toString());
    }

    private static void weigh(LockFile file, String kind, int locks, int waiters) throws InterruptedException {
        List<Lock> mutexes = new ArrayList<>();
        for (int i = 0; i < locks; i++) {
            mutexes.add(kind.endsWith("ReentrantLock") ? new ReentrantLock() : file.mutex("m" + i));
            mutexes.get(i).lock();
        }
        StringBuilder line = new StringBuilder("> bytes");
        Thread[] threads = new Thread[waiters];
        List<CompletableFuture<Hold>> asked = new ArrayList<>(waiters);
        for (int round = 0; round < ROUNDS; round++) { // what waits in interpreted code at first is larger
            long before = used();
            for (int i = 0; i < waiters; i++) {
                Lock mutex = mutexes.get(i % locks);
                if (kind.equals("lockAsync")) {
                    asked.add(((SharedMutex) mutex).lockAsync());
                } else {
                    threads[i] = Thread.ofVirtual().start(() -> {
                        mutex.lock();
                        mutex.unlock();
                    });
                }
            }
            for (Thread thread : threads) {
                while (thread != null && thread.getState() != Thread.State.WAITING) {
                    Thread.sleep(1);
                }
            }
            line.append(' ').append((used() - before) / waiters);
            mutexes.forEach(Lock::unlock);
            for (CompletableFuture<Hold> each : asked) {
                each.thenAccept(Hold::close);
            }
            for (int i = 0; i < waiters; i++) {
                if (threads[i] != null) {
                    threads[i].join();
                    threads[i] = null;
                }
            }
            asked.forEach(CompletableFuture::join);
            asked.clear();
            mutexes.forEach(Lock::lock);
        }
        System.out.println(line);
    }

    private static long used() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(100);
        }
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }
}
