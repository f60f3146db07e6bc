// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;
import org.openjdk.jcstress.infra.results.ZI_Result;
import org.openjdk.jcstress.infra.results.ZZ_Result;

/** {@link AtomicFlag}: what it announces is plain data. */
public final class AtomicFlagStress {
    private AtomicFlagStress() {
    }

    @JCStressTest
    @Outcome(id = {"false, 0", "false, 1", "false, 10", "false, 11"}, expect = ACCEPTABLE, desc = "Not yet announced.")
    @Outcome(id = "true, 11", expect = ACCEPTABLE, desc = "Announced and seen.")
    @Outcome(expect = FORBIDDEN, desc = "Announced, but the data were not seen.")
    @State
    public static class Message extends Guarded {
        private final AtomicFlag flag = AtomicFlag.at(cell, 0);

        @Actor
        public void sender() {
            write(1);
            flag.testAndSet();
        }

        @Actor
        public void receiver(ZI_Result r) {
            r.r1 = flag.isSet();
            r.r2 = read();
        }
    }

    /** A wake that is lost ends in a time-out. */
    @JCStressTest
    @Outcome(id = "11", expect = ACCEPTABLE, desc = "Waited for and seen.")
    @Outcome(expect = FORBIDDEN, desc = "Came back early.")
    @State
    public static class AwaitedMessage extends Guarded {
        private final AtomicFlag flag = AtomicFlag.at(cell, 0);

        @Actor
        public void sender() {
            write(1);
            flag.testAndSet();
        }

        @Actor
        public void receiver(I_Result r) {
            flag.awaitSet();
            r.r1 = read();
        }
    }

    @JCStressTest
    @Outcome(id = {"false, true", "true, false"}, expect = ACCEPTABLE, desc = "One found it clear.")
    @Outcome(expect = FORBIDDEN, desc = "Both or none found it clear.")
    @State
    public static class OneSets extends Guarded {
        private final AtomicFlag flag = AtomicFlag.at(cell, 0);

        @Actor
        public void one(ZZ_Result r) {
            r.r1 = flag.testAndSet();
        }

        @Actor
        public void other(ZZ_Result r) {
            r.r2 = flag.testAndSet();
        }
    }

    @JCStressTest
    @Outcome(id = {"false, true", "true, false"}, expect = ACCEPTABLE, desc = "One found it set.")
    @Outcome(expect = FORBIDDEN, desc = "Both or none found it set.")
    @State
    public static class OneClears extends Guarded {
        private final AtomicFlag flag = AtomicFlag.at(cell, 0);

        public OneClears() {
            flag.testAndSet();
        }

        @Actor
        public void one(ZZ_Result r) {
            r.r1 = flag.clear();
        }

        @Actor
        public void other(ZZ_Result r) {
            r.r2 = flag.clear();
        }
    }
}
