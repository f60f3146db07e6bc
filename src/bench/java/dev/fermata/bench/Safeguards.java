// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Word;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
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
 * What each safeguard of {@link SharedMutex} costs without contention: loops over the same words, of which each has one
 * safeguard more than the one before. The first is a lock that loses its holder's death, a lost page, its misuse and
 * its waiters; the last does what {@code SharedMutex} does on its fast path. All in turn in one JVM.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Safeguards {
    private static final int TURNS = Loops.TURNS;
    private static final int SIDES = 8;
    private static final int ID = 256;

    private SharedFile words;
    private Copy copy;
    private LockFile file;
    private SharedMutex mutex;

    @Setup
    public void open() throws IOException {
        words = SharedFile.create();
        copy = new Copy(words.reinterpreted(0));
        file = LockFile.open(Path.of("/dev/shm", "fermata-bench-" + System.nanoTime()));
        mutex = file.mutex("bench");
    }

    @TearDown
    public void close() throws IOException {
        file.close();
        Files.delete(file.path());
        words.close();
    }

    /** What the mutex has in its object, and its steps. What must not happen here is an error. */
    private static final class Copy {
        private final MemorySegment entry;
        private int id = ID;
        private int clock;
        private Object holder;
        private int holds;
        private boolean ownerDied;
        private Thread last;

        Copy(MemorySegment entry) {
            this.entry = entry;
            Word.storeRelease(entry, Layout.E_OWNER, Layout.FREE);
        }

        void take() {
            if (!Word.cas(entry, Layout.E_OWNER, Layout.FREE, id)) {
                throw new AssertionError();
            }
        }

        void readBack() {
            if (Word.loadPlain(entry, Layout.E_OWNER) != id) {
                throw new AssertionError();
            }
        }

        void setHolder() {
            holder = Thread.currentThread();
            holds = 1;
            ownerDied = false;
        }

        void checkHolder() {
            if (holder != Thread.currentThread() || holds > 1 || ownerDied) {
                throw new AssertionError();
            }
            holder = null;
        }

        void free() {
            Word.storeRelease(entry, Layout.E_OWNER, Layout.FREE);
        }

        void lookAtEvents() {
            VarHandle.acquireFence();
            if ((Word.loadRelaxed(entry, Layout.E_EVENTS) & Layout.ASLEEP) != 0) {
                throw new AssertionError();
            }
        }

        void lookAtHeir() {
            if (Word.loadPlain(entry, Layout.E_HEIR) != 0) {
                throw new AssertionError();
            }
        }

        void stamp() {
            Thread me = Thread.currentThread();
            Word.storeLong(entry, Layout.E_FENCE, Word.loadLongPlain(entry, Layout.E_FENCE) + 1);
            Word.storeLong(entry, Layout.E_HOLDER, (long) id << 32 | me.threadId() & 0xffff_ffffL);
            Word.storePlain(entry, Layout.E_SINCE, clock);
            if (last != me) {
                last = me;
            }
        }
    }

    private void bare() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.free();
        }
    }

    private void readBack() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.readBack();
            lock.free();
        }
    }

    private void holder() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.readBack();
            lock.setHolder();
            lock.checkHolder();
            lock.free();
        }
    }

    private void events() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.readBack();
            lock.setHolder();
            lock.checkHolder();
            lock.free();
            lock.lookAtEvents();
        }
    }

    private void heir() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.readBack();
            lock.setHolder();
            lock.checkHolder();
            lock.lookAtHeir();
            lock.free();
            lock.lookAtEvents();
        }
    }

    private void stamps() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.readBack();
            lock.setHolder();
            lock.stamp();
            lock.checkHolder();
            lock.lookAtHeir();
            lock.free();
            lock.lookAtEvents();
        }
    }

    private void stillMine() {
        Copy lock = copy;
        for (int i = 0; i < TURNS; i++) {
            lock.take();
            lock.readBack();
            lock.setHolder();
            lock.stamp();
            lock.checkHolder();
            lock.readBack();
            lock.lookAtHeir();
            lock.free();
            lock.lookAtEvents();
        }
    }

    private void sharedMutex() {
        SharedMutex lock = mutex;
        for (int i = 0; i < TURNS; i++) {
            lock.lock();
            lock.unlock();
        }
    }

    /** The loops, in ns for a lock and unlock: each with what is before it. */
    @State(Scope.Thread)
    @AuxCounters(AuxCounters.Type.EVENTS)
    public static class Steps {
        /** A compare-and-set and a releasing store. */
        public double bare;
        /** The owner word is read after the compare-and-set. */
        public double readBack;
        /** Who holds it, how often, and whether that is who unlocks. */
        public double holder;
        /** The releaser looks whether anybody sleeps. */
        public double events;
        /** The releaser looks whether somebody is next in line. */
        public double heir;
        /** Fencing token, thread and time in the file. */
        public double stamps;
        /** The releaser looks whether the owner word is still its own. */
        public double stillMine;
        /** All of it, and the tests for what is rare. */
        public double sharedMutex;
    }

    @Benchmark
    @OperationsPerInvocation(SIDES * TURNS)
    public void safeguards(Steps steps) {
        long a = System.nanoTime();
        bare();
        long b = System.nanoTime();
        steps.bare = Turn.best(steps.bare, b - a, TURNS);
        a = System.nanoTime();
        readBack();
        b = System.nanoTime();
        steps.readBack = Turn.best(steps.readBack, b - a, TURNS);
        a = System.nanoTime();
        holder();
        b = System.nanoTime();
        steps.holder = Turn.best(steps.holder, b - a, TURNS);
        a = System.nanoTime();
        events();
        b = System.nanoTime();
        steps.events = Turn.best(steps.events, b - a, TURNS);
        a = System.nanoTime();
        heir();
        b = System.nanoTime();
        steps.heir = Turn.best(steps.heir, b - a, TURNS);
        a = System.nanoTime();
        stamps();
        b = System.nanoTime();
        steps.stamps = Turn.best(steps.stamps, b - a, TURNS);
        a = System.nanoTime();
        stillMine();
        b = System.nanoTime();
        steps.stillMine = Turn.best(steps.stillMine, b - a, TURNS);
        a = System.nanoTime();
        sharedMutex();
        b = System.nanoTime();
        steps.sharedMutex = Turn.best(steps.sharedMutex, b - a, TURNS);
    }
}
