// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.Fermata;
import dev.fermata.Hold;
import dev.fermata.LockFile;
import dev.fermata.OwnerDeath;
import dev.fermata.SharedMutex;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntToLongFunction;

/**
 * Another process with a lock file, which does what it is told, a line for each step, and answers with one. Its locks
 * have a record of two numbers behind them that are to be equal.
 */
public final class LockPeer implements AutoCloseable {
    /** What the lock of a peer protects, in bytes. */
    public static final long RECORD = 16;

    /** How many lines of 64 bytes the n-th lock of the step "fill" has. */
    public static final IntToLongFunction LINES = n -> 1 + n % 3;

    private final ChildJvm child;

    private LockPeer(ChildJvm child) {
        this.child = child;
    }

    /** Starts one, with further options of its JVM, and opens the file. */
    public static LockPeer start(Path file, String... options) throws IOException {
        return startUnder(List.of(), file, options);
    }

    /** Starts one through another program, and opens the file. */
    public static LockPeer startUnder(List<String> program, Path file, String... options) throws IOException {
        LockPeer peer = launchUnder(program, options);
        peer.tell("open " + file);
        peer.expect("opened");
        return peer;
    }

    /** Starts one that has done nothing yet. */
    public static LockPeer launch(String... options) throws IOException {
        return launchUnder(List.of(), options);
    }

    /** Starts one through another program, whose command line is continued with that of the JVM. */
    public static LockPeer launchUnder(List<String> program, String... options) throws IOException {
        return new LockPeer(ChildJvm.startUnder(program, LockPeer.class, ChildJvm.likeThisOne(List.of(options))));
    }

    public void tell(String step) throws IOException {
        child.send(step);
    }

    /** The next answer; lines of a log are skipped. */
    public String answer() throws IOException {
        return child.answer();
    }

    public String ask(String step) throws IOException {
        tell(step);
        return answer();
    }

    public void expect(String answer) throws IOException {
        child.expect(answer);
    }

    /** Returns when it sleeps on a lock, for longer than the moment that a first sleep lasts; fails if it ends. */
    public void awaitAsleep() throws IOException {
        int tid = Kernel.mainThread(pid());
        while (!Kernel.isAsleepOnSeveral(pid(), tid)) {
            if (!child.process().isAlive()) {
                throw new AssertionError("the peer was to sleep, but ended");
            }
            LockSupport.parkNanos(100_000);
        }
    }

    /** Waits until it has been killed, or has killed itself. */
    public void awaitDeath() throws InterruptedException {
        child.awaitDeath();
    }

    public ChildJvm child() {
        return child;
    }

    public long pid() {
        return child.pid();
    }

    /** SIGKILL. */
    public void kill() {
        child.kill();
    }

    @Override
    public void close() {
        child.close();
    }

    // ---- the other side ----

    private LockFile file;

    private LockPeer() {
        this(null);
    }

    /** The other process's program. */
    public static void main(String[] arguments) throws IOException {
        LockPeer it = new LockPeer();
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        for (String step = steps.readLine(); step != null; step = steps.readLine()) {
            String answer;
            try {
                answer = it.perform(step.split(" "));
            } catch (Exception e) {
                answer = e.getClass().getSimpleName() + " " + e.getMessage().replace('\n', ' ');
            }
            System.out.println(ChildJvm.ANSWER + answer);
        }
        Runtime.getRuntime().halt(3); // its parent has gone
    }

    private SharedMutex mutex(String name) {
        return file.mutex(name, RECORD);
    }

    private String perform(String[] step) throws Exception {
        switch (step[0]) {
            case "open" -> {
                LockFile.Builder builder = LockFile.builder(Path.of(step[1])).label("peer");
                for (int i = 2; i < step.length; i++) {
                    switch (step[i]) {
                        case "symmetric" -> builder.symmetric();
                        case "strict" -> builder.ownerDeath(OwnerDeath.STRICT);
                        default -> builder.participants(Integer.parseInt(step[i]));
                    }
                }
                file = builder.open();
                return "opened";
            }
            case "mutex" -> {
                mutex(step[1]);
                return "made";
            }
            case "fill" -> {
                for (int i = 0; i < Integer.parseInt(step[1]); i++) {
                    file.mutex("name" + i, LINES.applyAsLong(i) * 64);
                }
                return "filled";
            }
            case "lock" -> {
                mutex(step[1]).lock();
                return "locked" + (mutex(step[1]).ownerDied() ? ", owner died" : "");
            }
            case "try" -> {
                boolean taken = mutex(step[1]).tryLock(Long.parseLong(step[2]), TimeUnit.MILLISECONDS);
                return taken ? "locked" + (mutex(step[1]).ownerDied() ? ", owner died" : "") : "taken";
            }
            case "within" -> {
                mutex(step[1]).lock(Duration.ofMillis(Long.parseLong(step[2])));
                return "locked";
            }
            case "interrupted" -> {
                Thread me = Thread.currentThread();
                Thread.ofPlatform().start(() -> {
                    LockSupport.parkNanos(Long.parseLong(step[2]) * 1_000_000);
                    me.interrupt();
                });
                try {
                    mutex(step[1]).lockInterruptibly();
                    return "locked";
                } catch (InterruptedException e) {
                    return "interrupted";
                }
            }
            case "about" -> {
                return Fermata.about();
            }
            case "unlock" -> {
                mutex(step[1]).unlock();
                return "unlocked";
            }
            case "half" -> {
                increment(mutex(step[1]).payload(), 0);
                return "half done";
            }
            case "update" -> {
                for (int i = 0; i < Integer.parseInt(step[2]); i++) {
                    update(mutex(step[1]));
                }
                return "updated";
            }
            case "spin" -> {
                while (true) {
                    update(mutex(step[1]));
                }
            }
            case "fresh" -> {
                for (int i = 0; i < Integer.parseInt(step[2]); i++) {
                    try (LockFile fresh = LockFile.open(Path.of(step[1], Integer.toString(i)))) {
                        update(fresh.mutex("m", RECORD));
                    }
                }
                return "updated";
            }
            case "gc" -> {
                List<Object> live = new ArrayList<>();
                for (int i = 0; i < 500_000; i++) {
                    live.add(new long[4]);
                }
                while (!live.isEmpty()) {
                    System.gc();
                }
                return "";
            }
            case "hog" -> {
                long nanos = Long.parseLong(step[2]) * 1000;
                while (true) {
                    mutex(step[1]).lock();
                    long begin = System.nanoTime();
                    while (System.nanoTime() - begin < nanos) {
                        Thread.onSpinWait();
                    }
                    mutex(step[1]).unlock();
                }
            }
            case "thread" -> {
                Thread.ofPlatform().name(step[2]).start(() -> mutex(step[1]).lock()).join();
                return "left locked";
            }
            case "crowd" -> {
                Crowd.start(file, Integer.parseInt(step[1]), Integer.parseInt(step[2])).awaitWaiting();
                return "crowded";
            }
            case "crowded" -> {
                Crowd.join();
                return "done";
            }
            case "saturate" -> {
                Thread waiter = Thread.ofVirtual().start(() -> update(mutex(step[1])));
                Crowd.awaitState(waiter, Thread.State.WAITING);
                MemorySegment stop = mutex(step[2]).payload();
                for (int i = 0; i < 2; i++) {
                    Thread.ofVirtual().start(() -> {
                        while ((long) JAVA_LONG.varHandle().getVolatile(stop, 0L) == 0) {
                            Thread.onSpinWait();
                        }
                    });
                }
                System.out.println("> saturated");
                waiter.join();
                return "updated";
            }
            case "virtually" -> { // what follows, in a virtual thread
                FutureTask<String> task = new FutureTask<>(() -> perform(Arrays.copyOfRange(step, 1, step.length)));
                Thread.ofVirtual().start(task);
                return task.get();
            }
            case "request" -> {
                Duration timeout = Duration.ofMillis(Long.parseLong(step[2]));
                Hold hold = mutex(step[1]).lockAsync(timeout).get();
                return "locked" + (hold.ownerDied() ? ", owner died" : "");
            }
            case "repair" -> {
                return Boolean.toString(mutex(step[1]).recover(() -> { }));
            }
            case "close" -> {
                file.close();
                return "closed";
            }
            case "exit" -> {
                System.exit(0);
                return "";
            }
            case "halt" -> {
                Runtime.getRuntime().halt(0);
                return "";
            }
            default -> throw new IllegalArgumentException(String.join(" ", step));
        }
    }

    /** Brings the record from one whole state to the next, under the lock; repairs it first if the owner died in it. */
    public static void update(SharedMutex mutex) {
        mutex.lock();
        try {
            MemorySegment record = mutex.payload();
            if (mutex.ownerDied()) {
                repair(record);
            }
            if (record.get(JAVA_LONG, 0) != record.get(JAVA_LONG, 8)) {
                throw new AssertionError("half written: " + record.get(JAVA_LONG, 0) + ", " + record.get(JAVA_LONG, 8));
            }
            increment(record, 0);
            increment(record, 8);
        } finally {
            mutex.unlock();
        }
    }

    /** Takes back the first half. */
    public static void repair(MemorySegment record) {
        record.set(JAVA_LONG, 0, record.get(JAVA_LONG, 8));
    }

    private static void increment(MemorySegment record, long offset) {
        record.set(JAVA_LONG, offset, record.get(JAVA_LONG, offset) + 1);
    }
}
