// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.Hold;
import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.infra.BenchmarkParams;

/**
 * Lock and unlock of {@link SharedMutex}, uncontended, with what it is compared with in turn beside it: each some 100
 * microseconds, so that what slows the machine slows all alike. The fastest turn of each counts: the others were
 * interrupted.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class SharedLoops {
    private static final int TURNS = Loops.TURNS;

    private SharedFile words;
    private MemorySegment robust;
    private LockFile file;
    private SharedMutex mutex;
    private final ReentrantLock reentrant = new ReentrantLock();

    /** A file of each kind for a JVM of its own, so that the other kind is not in what HotSpot has seen. */
    @Setup
    public void open(BenchmarkParams params) throws IOException {
        words = SharedFile.create();
        robust = words.line(0);
        CLoops.initPthread(robust, true);
        LockFile.Builder builder = LockFile.builder(Path.of("/dev/shm", "fermata-bench-" + System.nanoTime()));
        file = (params.getBenchmark().endsWith(".symmetricMutex") ? builder.symmetric() : builder).open();
        mutex = file.mutex("bench");
    }

    @TearDown
    public void close() throws IOException {
        file.close();
        Files.delete(file.path());
        words.close();
    }

    private void sharedMutex() {
        SharedMutex lock = mutex;
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    private void reentrantLock() {
        ReentrantLock lock = reentrant;
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    /** The sides, in ns for a lock and unlock. */
    @State(Scope.Thread)
    @AuxCounters(AuxCounters.Type.EVENTS)
    public static class Sides {
        public double lock;
        public double pthreadRobust;
        public double reentrantLock;
    }

    private void turn(Sides sides) {
        long start = System.nanoTime();
        sharedMutex();
        long second = System.nanoTime();
        CLoops.pthread(robust, TURNS);
        long third = System.nanoTime();
        reentrantLock();
        long end = System.nanoTime();
        sides.lock = Turn.best(sides.lock, second - start, TURNS);
        sides.pthreadRobust = Turn.best(sides.pthreadRobust, third - second, TURNS);
        sides.reentrantLock = Turn.best(sides.reentrantLock, end - third, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(3 * TURNS)
    public void sharedMutex(Sides sides) {
        turn(sides);
    }

    /** In a symmetric file: the release has a full fence. */
    @Benchmark
    @OperationsPerInvocation(3 * TURNS)
    public void symmetricMutex(Sides sides) {
        turn(sides);
    }

    /** By a token, which is an object for each acquisition. */
    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void sharedHold() {
        SharedMutex lock = mutex;
        for (int i = 0; i < TURNS; i++) {
            Hold hold = lock.acquire();
            hold.close();
        }
    }
}
