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
import org.openjdk.jcstress.infra.results.ZII_Result;
import org.openjdk.jcstress.infra.results.ZI_Result;

/** {@link WordMutex}: what it guards is plain data. */
public final class WordMutexStress {
    private WordMutexStress() {
    }

    @JCStressTest
    @Outcome(id = "22", expect = ACCEPTABLE, desc = "Both increments are there.")
    @Outcome(expect = FORBIDDEN, desc = "Two were inside at once, or one did not see the other's writes.")
    @State
    public static class Increments extends Guarded {
        private final WordMutex mutex = WordMutex.at(cell, 0);

        private void locked() {
            mutex.lock();
            increment();
            mutex.unlock();
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
        private final WordMutex mutex = WordMutex.at(cell, 0);

        @Actor
        public void writer() {
            mutex.lock();
            write(1);
            mutex.unlock();
        }

        @Actor
        public void reader(I_Result r) {
            mutex.lock();
            r.r1 = read();
            mutex.unlock();
        }
    }

    @JCStressTest
    @Outcome(id = "false, 0", expect = ACCEPTABLE, desc = "Still held.")
    @Outcome(id = "true, 11", expect = ACCEPTABLE, desc = "Taken after the release, and all is seen.")
    @Outcome(expect = FORBIDDEN, desc = "Taken, but the holder's writes were not seen.")
    @State
    public static class TryLockAgainstUnlock extends Guarded {
        private final WordMutex mutex = WordMutex.at(cell, 0);

        public TryLockAgainstUnlock() {
            mutex.lock();
        }

        @Actor
        public void holder() {
            write(1);
            mutex.unlock();
        }

        @Actor
        public void taker(ZI_Result r) {
            r.r1 = mutex.tryLock();
            if (r.r1) {
                r.r2 = read();
            }
        }
    }

    @JCStressTest
    @Outcome(id = "false, 11, 0", expect = ACCEPTABLE, desc = "The time was up; the lock is free.")
    @Outcome(id = "true, 22, 0", expect = ACCEPTABLE, desc = "Taken in time; the lock is free.")
    @Outcome(expect = FORBIDDEN, desc = "An increment is missing or the lock is still held.")
    @State
    public static class TimedAttempt extends Guarded {
        private final WordMutex mutex = WordMutex.at(cell, 0);

        @Actor
        public void patient() {
            mutex.lock();
            increment();
            Bystander.linger();
            mutex.unlock();
        }

        @Actor
        public void impatient(ZII_Result r) {
            r.r1 = mutex.tryLock(1, TimeUnit.NANOSECONDS);
            if (r.r1) {
                increment();
                mutex.unlock();
            }
        }

        @Arbiter
        public void end(ZII_Result r) {
            r.r2 = read();
            r.r3 = mutex.isLocked() ? 1 : 0;
        }
    }

    /** Who is woken only to find that the time is up must not swallow the wake. A lost wake ends in a time-out. */
    @JCStressTest
    @Outcome(id = "11, 22", expect = ACCEPTABLE, desc = "One after the other, and everybody came through.")
    @Outcome(id = "22, 11", expect = ACCEPTABLE, desc = "One after the other, and everybody came through.")
    @Outcome(expect = FORBIDDEN, desc = "Two were inside at once.")
    @State
    public static class NoWakeIsLost extends Guarded {
        private static final WordMutex MUTEX = WordMutex.at(Arena.global().allocate(64, 64), 0);

        static {
            Bystander.start(MUTEX::lock, MUTEX::unlock);
        }

        @Actor
        public void patient(II_Result r) {
            MUTEX.lock();
            increment();
            r.r1 = read();
            MUTEX.unlock();
        }

        @Actor
        public void impatient(II_Result r) {
            while (!MUTEX.tryLock(10, TimeUnit.MICROSECONDS)) {
                Thread.onSpinWait();
            }
            increment();
            r.r2 = read();
            MUTEX.unlock();
        }
    }
}
