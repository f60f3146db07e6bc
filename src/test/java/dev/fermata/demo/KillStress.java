// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.LockPath;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * Processes that update guarded records in two halves, and are killed at random; run by {@code scripts/stress --kills}.
 *
 * <p>A record is {first, second, slot, target, inside}. An update says whose it is and what that one's count will be,
 * then first := second + 1, count := target, second := first. Who is told of a death in the middle finishes it. So in
 * the end the counts of all add up to the records, or an update was lost or done twice.
 */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Processes that update records behind named mutexes, and are killed at random.")
public final class KillStress implements Callable<Integer> {
    private static final int LOCKS = 4;
    private static final int THREADS = 2;
    private static final long RECORD = 64;
    private static final long FIRST = 0;
    private static final long SECOND = 8;
    private static final long SLOT = 16;
    private static final long TARGET = 24;
    private static final long INSIDE = 32;
    // A thread's line in the payload of "slots": LOCKS counts, then what it has seen.
    private static final long LINE = 64;
    private static final long DOUBLES = 48;
    private static final long ACQUISITIONS = 56;
    /** How long nothing may move while nobody is killed. */
    private static final long STALL = TimeUnit.SECONDS.toNanos(10);

    @Option(names = "--kills", required = true, description = "How many processes are killed.")
    private int kills;

    @Option(names = "--processes", defaultValue = "6", description = "Processes at a time; default ${DEFAULT-VALUE}.")
    private int processes;

    @Option(names = "--symmetric", description = "A symmetric file.")
    private boolean symmetric;

    @Option(names = "--seed", description = "Of the random choices.")
    private long seed = System.nanoTime();

    public static void main(String[] args) {
        System.exit(new CommandLine(new KillStress()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        Random random = new Random(seed);
        long lines = (long) (kills + processes) * THREADS;
        try (LockPath place = LockPath.create()) {
            LockFile.Builder builder = LockFile.builder(place.file()).label("stress")
                    .payload(lines * LINE + LOCKS * RECORD);
            List<ChildJvm> alive = new ArrayList<>();
            long acquisitions = 0;
            long doubles = 0;
            long lost = 0;
            long recoveries = 0;
            long stalls = 0;
            try (LockFile file = (symmetric ? builder.symmetric() : builder).open()) {
                MemorySegment slots = file.mutex("slots", lines * LINE).payload();
                List<SharedMutex> locks = locks(file);
                int started = 0;
                int killed = 0;
                long before = -1;
                long shown = System.nanoTime();
                while (killed < kills) {
                    while (alive.size() < processes) {
                        alive.add(ChildJvm.start(Victim.class, List.of(ChildJvm.NATIVE_ACCESS, "-Xshare:auto"),
                                place.file().toString(), Integer.toString(started++ * THREADS),
                                Long.toString(lines)));
                    }
                    Thread.sleep(random.nextInt(250));
                    // Where nothing has moved since the last kill, those that are there get time to move.
                    long now = sum(slots, lines, ACQUISITIONS);
                    for (long begin = System.nanoTime(); now == before; now = sum(slots, lines, ACQUISITIONS)) {
                        if (System.nanoTime() - begin > STALL) {
                            stalls++;
                            locks.forEach(lock -> System.out.println("stress: stalled: " + lock));
                            break;
                        }
                        Thread.sleep(1);
                    }
                    before = now;
                    ChildJvm victim = alive.remove(random.nextInt(alive.size()));
                    if (!victim.process().isAlive()) {
                        throw new AssertionError("a process ended by itself: " + victim.rest());
                    }
                    victim.kill();
                    killed++;
                    if (System.nanoTime() - shown > 10_000_000_000L) {
                        shown = System.nanoTime();
                        System.out.printf("stress: %d of %d killed, %d acquisitions%n", killed, kills, now);
                    }
                }
                stalls += ChildJvm.endAll(alive);
                for (int i = 0; i < LOCKS; i++) {
                    locks.get(i).lock(Duration.ofSeconds(30));
                    MemorySegment record = locks.get(i).payload();
                    if (locks.get(i).ownerDied()) {
                        finish(record, slots, i);
                    }
                    lost += Math.abs(sum(slots, lines, i * 8L) - record.get(JAVA_LONG, SECOND));
                    lost += Math.abs(record.get(JAVA_LONG, FIRST) - record.get(JAVA_LONG, SECOND));
                    locks.get(i).unlock();
                    recoveries += locks.get(i).info().recovered();
                }
                acquisitions = sum(slots, lines, ACQUISITIONS);
                doubles = sum(slots, lines, DOUBLES);
            } finally {
                alive.forEach(ChildJvm::close);
            }
            boolean pass = lost == 0 && doubles == 0 && stalls == 0;
            System.out.printf("stress: %s acquisitions=%d kills=%d recoveries=%d lost=%d doubles=%d stalls=%d%n",
                    pass ? "PASS" : "FAIL", acquisitions, kills, recoveries, lost, doubles, stalls);
            return pass ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
        }
    }

    private static List<SharedMutex> locks(LockFile file) {
        List<SharedMutex> locks = new ArrayList<>();
        for (int i = 0; i < LOCKS; i++) {
            locks.add(file.mutex("record " + i, RECORD));
        }
        return locks;
    }

    private static long sum(MemorySegment slots, long lines, long column) {
        long sum = 0;
        for (long line = 0; line < lines; line++) {
            sum += slots.get(JAVA_LONG, line * LINE + column);
        }
        return sum;
    }

    /** Finishes the update that the dead was in, if it was in one. Done twice it is the same. */
    private static void finish(MemorySegment record, MemorySegment slots, int lock) {
        if (record.get(JAVA_LONG, FIRST) != record.get(JAVA_LONG, SECOND)) {
            slots.set(JAVA_LONG, record.get(JAVA_LONG, SLOT) * LINE + lock * 8L, record.get(JAVA_LONG, TARGET));
            record.set(JAVA_LONG, SECOND, record.get(JAVA_LONG, FIRST));
        }
    }

    /** One of the processes. */
    static final class Victim {
        private final AtomicBoolean stop = new AtomicBoolean();
        private final List<SharedMutex> locks;
        private final MemorySegment slots;

        private Victim(LockFile file, long lines) {
            locks = locks(file);
            slots = file.mutex("slots", lines * LINE).payload();
        }

        public static void main(String[] arguments) throws Exception {
            try (LockFile file = LockFile.builder(Path.of(arguments[0])).label("victim").open()) {
                Victim victim = new Victim(file, Long.parseLong(arguments[2]));
                List<Thread> threads = new ArrayList<>();
                AtomicBoolean failed = new AtomicBoolean();
                for (int t = 0; t < THREADS; t++) {
                    int slot = Integer.parseInt(arguments[1]) + t;
                    threads.add(Thread.ofPlatform().start(() -> {
                        try {
                            victim.run(slot);
                        } catch (Throwable e) {
                            e.printStackTrace();
                            failed.set(true);
                            Runtime.getRuntime().halt(1);
                        }
                    }));
                }
                System.in.read(); // its end is the sign to end
                victim.stop.set(true);
                for (Thread thread : threads) {
                    thread.join();
                }
            }
        }

        private void run(int slot) throws Exception {
            Random random = new Random(slot);
            for (int round = 0; !stop.get(); round++) {
                int lock = random.nextInt(LOCKS);
                SharedMutex mutex = locks.get(lock);
                if (round % 16 == 0) {
                    if (!mutex.tryLock(random.nextInt(2_000_000), TimeUnit.NANOSECONDS)) {
                        continue;
                    }
                } else {
                    mutex.lock();
                }
                try {
                    update(mutex, lock, slot, random.nextInt(64) == 0);
                } finally {
                    mutex.unlock();
                }
            }
        }

        private void update(SharedMutex mutex, int lock, int slot, boolean slowly) {
            MemorySegment record = mutex.payload();
            long line = slot * LINE;
            if (mutex.ownerDied()) {
                finish(record, slots, lock);
            } else if (record.get(JAVA_LONG, INSIDE) != 0
                    || record.get(JAVA_LONG, FIRST) != record.get(JAVA_LONG, SECOND)) {
                slots.set(JAVA_LONG, line + DOUBLES, slots.get(JAVA_LONG, line + DOUBLES) + 1);
            }
            record.set(JAVA_LONG, INSIDE, slot + 1);
            long target = slots.get(JAVA_LONG, line + lock * 8L) + 1;
            record.set(JAVA_LONG, SLOT, slot);
            record.set(JAVA_LONG, TARGET, target);
            java.lang.invoke.VarHandle.releaseFence();
            record.set(JAVA_LONG, FIRST, record.get(JAVA_LONG, SECOND) + 1);
            java.lang.invoke.VarHandle.releaseFence();
            if (slowly) {
                Thread.onSpinWait();
                Thread.yield();
            }
            slots.set(JAVA_LONG, line + lock * 8L, target);
            java.lang.invoke.VarHandle.releaseFence();
            record.set(JAVA_LONG, SECOND, record.get(JAVA_LONG, FIRST));
            slots.set(JAVA_LONG, line + ACQUISITIONS, slots.get(JAVA_LONG, line + ACQUISITIONS) + 1);
            if (record.get(JAVA_LONG, INSIDE) != slot + 1) {
                slots.set(JAVA_LONG, line + DOUBLES, slots.get(JAVA_LONG, line + DOUBLES) + 1);
            }
            record.set(JAVA_LONG, INSIDE, 0);
        }
    }
}
