// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.Arena;
import java.util.concurrent.TimeUnit;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;
import org.openjdk.jcstress.infra.results.I_Result;

/** {@link SpinLock}: what it guards is plain data. */
public final class SpinLockStress {
    private SpinLockStress() {
    }

    @JCStressTest
    @Outcome(id = "22", expect = ACCEPTABLE, desc = "Both increments are there.")
    @Outcome(expect = FORBIDDEN, desc = "Two were inside at once, or one did not see the other's writes.")
    @State
    public static class Increments extends Guarded {
        private final SpinLock lock = SpinLock.at(cell, 0);

        private void locked() {
            lock.lock();
            increment();
            lock.unlock();
        }

        @Actor
        public void one() {
            locked();
        }

        @Actor
        public void other() {
            locked();
        }

        @Arbiter
        public void end(I_Result r) {
            r.r1 = read();
        }
    }

    @JCStressTest
    @Outcome(id = {"0", "11"}, expect = ACCEPTABLE, desc = "All of the writer's section or nothing.")
    @Outcome(expect = FORBIDDEN, desc = "A torn pair.")
    @State
    public static class Pair extends Guarded {
        private final SpinLock lock = SpinLock.at(cell, 0);

        @Actor
        public void writer() {
            lock.lock();
            write(1);
            lock.unlock();
        }

        @Actor
        public void reader(I_Result r) {
            lock.lock();
            r.r1 = read();
            lock.unlock();
        }
    }

    /** As the mutex's, without spinning so that the waiters sleep. A lost wake ends in a time-out. */
    @JCStressTest
    @Outcome(id = "11, 22", expect = ACCEPTABLE, desc = "One after the other, and everybody came through.")
    @Outcome(id = "22, 11", expect = ACCEPTABLE, desc = "One after the other, and everybody came through.")
    @Outcome(expect = FORBIDDEN, desc = "Two were inside at once.")
    @State
    public static class NoWakeIsLost extends Guarded {
        private static final SpinLock LOCK = SpinLock.at(Arena.global().allocate(64, 64), 0, 0);

        static {
            Bystander.start(LOCK::lock, LOCK::unlock);
        }

        @Actor
        public void patient(II_Result r) {
            LOCK.lock();
            increment();
            r.r1 = read();
            LOCK.unlock();
        }

        @Actor
        public void impatient(II_Result r) {
            while (!LOCK.tryLock(10, TimeUnit.MICROSECONDS)) {
                Thread.onSpinWait();
            }
            increment();
            r.r2 = read();
            LOCK.unlock();
        }
    }
}
