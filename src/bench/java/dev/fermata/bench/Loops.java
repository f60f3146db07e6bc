// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.internal.Spin;
import dev.fermata.word.AtomicFlag;
import dev.fermata.word.SpinLock;
import dev.fermata.word.WordMutex;
import dev.fermata.word.WordReadWriteLock;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
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

/**
 * Lock and unlock, in a loop of the same length in Java and in C, on words of one shared file. The loops in C have the
 * address of their word in a register; those in Java have their lock in a local variable. With one thread nothing is
 * contended; with more they all use the same lock.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Loops {
    /** So many that the downcall into C, about 10 ns, does not count. */
    static final int TURNS = 10_000;

    private SharedFile file;
    private MemorySegment word;
    private MemorySegment pthread;
    private MemorySegment robust;
    private WordMutex mutex;
    private SpinLock spinLock;
    private WordReadWriteLock readWriteLock;
    private AtomicFlag flag;
    private final ReentrantLock reentrant = new ReentrantLock();
    private final ReentrantReadWriteLock reentrantReadWrite = new ReentrantReadWriteLock();
    private final AtomicBoolean atomicBoolean = new AtomicBoolean();

    /** Each benchmark runs in a JVM of its own and uses one protocol, so all share the word. */
    @Setup
    public void open() throws IOException {
        file = SharedFile.create();
        word = file.line(0);
        pthread = file.line(1);
        robust = file.line(2);
        CLoops.initPthread(pthread, false);
        CLoops.initPthread(robust, true);
        mutex = WordMutex.at(word, 0);
        spinLock = SpinLock.at(word, 0);
        readWriteLock = WordReadWriteLock.at(word, 0);
        flag = AtomicFlag.at(word, 0);
    }

    @TearDown
    public void close() throws IOException {
        file.close();
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void wordMutex() {
        WordMutex lock = mutex;
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cMutex() {
        CLoops.mutex(word, TURNS);
    }

    /** The fastest turn of each side in an iteration, in ns for an operation: the slower ones were interrupted. */
    @State(Scope.Thread)
    @AuxCounters(AuxCounters.Type.EVENTS)
    public static class Sides {
        public double java;
        public double c;
    }

    /** Both in turn, each for some 50 microseconds: what slows the machine slows both alike. */
    @Benchmark
    @OperationsPerInvocation(2 * TURNS)
    public void wordMutexBesideC(Sides sides) {
        long start = System.nanoTime();
        wordMutex();
        long between = System.nanoTime();
        cMutex();
        long end = System.nanoTime();
        sides.java = Turn.best(sides.java, between - start, TURNS);
        sides.c = Turn.best(sides.c, end - between, TURNS);
    }

    /** The lock is found anew for each call, as in an object that uses a lock of its own. */
    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void wordMutexField() {
        for (int i = 0; i < TURNS; i++) {
            mutex.lock();
            mutex.unlock();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cMutexCalled() {
        CLoops.mutexCalled(word, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void reentrantLock() {
        ReentrantLock lock = reentrant;
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void pthreadMutex() {
        CLoops.pthread(pthread, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void pthreadRobust() {
        CLoops.pthread(robust, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void spinLock() {
        SpinLock lock = spinLock;
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cSpinLock() {
        CLoops.spin(word, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void wordShared() {
        WordReadWriteLock lock = readWriteLock;
        for (int i = 0; i < TURNS; i++) {
            lock.lockShared();
            lock.unlockShared();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cShared() {
        CLoops.rwShared(word, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void reentrantRead() {
        Lock lock = reentrantReadWrite.readLock();
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void wordExclusive() {
        WordReadWriteLock lock = readWriteLock;
        for (int i = 0; i < TURNS; i++) {
            lock.lockExclusive();
            lock.unlockExclusive();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cExclusive() {
        CLoops.rwExclusive(word, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void reentrantWrite() {
        Lock lock = reentrantReadWrite.writeLock();
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void flag() {
        AtomicFlag state = flag;
        for (int i = 0; i < TURNS; i++) {
            state.testAndSet();
            state.clear();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cFlag() {
        CLoops.flag(word, TURNS);
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void atomicBoolean() {
        AtomicBoolean state = atomicBoolean;
        for (int i = 0; i < TURNS; i++) {
            state.getAndSet(true);
            state.getAndSet(false);
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void pause() {
        for (int i = 0; i < TURNS; i++) {
            Spin.pause();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cPause() {
        CLoops.pause(TURNS);
    }
}
