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

/** {@link WordReadWriteLock}: what it guards is plain data. */
public final class WordReadWriteLockStress {
    private WordReadWriteLockStress() {
    }

    @JCStressTest
    @Outcome(id = "22", expect = ACCEPTABLE, desc = "Both increments are there.")
    @Outcome(expect = FORBIDDEN, desc = "Two were inside at once, or one did not see the other's writes.")
    @State
    public static class Increments extends Guarded {
        private final WordReadWriteLock lock = WordReadWriteLock.at(cell, 0);

        private void locked() {
            lock.lockExclusive();
            increment();
            lock.unlockExclusive();
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
        private final WordReadWriteLock lock = WordReadWriteLock.at(cell, 0);

        @Actor
        public void writer() {
            lock.lockExclusive();
            write(1);
            lock.unlockExclusive();
        }

        @Actor
        public void reader(I_Result r) {
            lock.lockShared();
            r.r1 = read();
            lock.unlockShared();
        }
    }

    /** After the downgrade nobody can have written in between. */
    @JCStressTest
    @Outcome(id = "11", expect = ACCEPTABLE, desc = "What this actor wrote itself.")
    @Outcome(expect = FORBIDDEN, desc = "The other writer got in.")
    @State
    public static class Downgrade extends Guarded {
        private final WordReadWriteLock lock = WordReadWriteLock.at(cell, 0);

        @Actor
        public void downgrader(I_Result r) {
            lock.lockExclusive();
            write(1);
            lock.downgrade();
            r.r1 = read();
            lock.unlockShared();
        }

        @Actor
        public void writer() {
            lock.lockExclusive();
            write(2);
            lock.unlockExclusive();
        }
    }

    /** A claim that is withdrawn leaves no trace, and one that succeeds at the last moment is a lock. */
    @JCStressTest
    @Outcome(id = "false, 0, 0", expect = ACCEPTABLE, desc = "Withdrawn; the lock is free.")
    @Outcome(id = "true, 0, 0", expect = ACCEPTABLE, desc = "Taken after the reader; the lock is free.")
    @Outcome(id = "true, 11, 0", expect = ACCEPTABLE, desc = "Taken before the reader; the lock is free.")
    @Outcome(expect = FORBIDDEN, desc = "A torn pair, or the lock is not free.")
    @State
    public static class TimedClaim extends Guarded {
        private final WordReadWriteLock lock = WordReadWriteLock.at(cell, 0);

        @Actor
        public void reader(ZII_Result r) {
            lock.lockShared();
            r.r2 = read();
            Bystander.linger();
            lock.unlockShared();
        }

        @Actor
        public void claimant(ZII_Result r) {
            r.r1 = lock.tryLockExclusive(1, TimeUnit.NANOSECONDS);
            if (r.r1) {
                write(1);
                lock.unlockExclusive();
            }
        }

        @Arbiter
        public void end(ZII_Result r) {
            r.r3 = lock.sharedCount() + (lock.isExclusive() ? 10 : 0);
        }
    }

    /** A reader, a writer that gives up now and then, and a second writer. A lost wake ends in a time-out. */
    @JCStressTest
    @Outcome(id = {"0, 11", "11, 11"}, expect = ACCEPTABLE, desc = "Everybody came through.")
    @Outcome(expect = FORBIDDEN, desc = "A torn pair.")
    @State
    public static class NoWakeIsLost extends Guarded {
        private static final WordReadWriteLock LOCK = WordReadWriteLock.at(Arena.global().allocate(64, 64), 0);

        static {
            Bystander.start(LOCK::lockExclusive, LOCK::unlockExclusive);
        }

        @Actor
        public void reader(II_Result r) {
            LOCK.lockShared();
            r.r1 = read();
            LOCK.unlockShared();
        }

        @Actor
        public void impatient(II_Result r) {
            while (!LOCK.tryLockExclusive(10, TimeUnit.MICROSECONDS)) {
                Thread.onSpinWait();
            }
            increment();
            r.r2 = read();
            LOCK.unlockExclusive();
        }
    }
}
