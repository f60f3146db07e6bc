// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import dev.fermata.SharedSequence;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/** Threads add to a sequence, and wait until others have. */
final class SequenceScenario implements Scenario {
    private static final int PLANNED = Tally.FIRST;
    private static final int ADDED = Tally.FIRST + 1;

    @Override
    public String name() {
        return "sequence";
    }

    @Override
    public void prepare(LockFile file) {
        file.sequence("s");
    }

    @Override
    public void round(LockFile file, Tally tally, Random random) throws Exception {
        SharedSequence sequence = file.sequence("s");
        if (random.nextInt(4) > 0) {
            tally.add(PLANNED, 1);
            long last = sequence.getAndAdd(1);
            tally.add(ADDED, 1);
            if (sequence.value() <= last) {
                tally.add(Tally.DOUBLES, 1); // it went back
            }
            tally.add(Tally.PROGRESS, 1);
        } else if (sequence.await(sequence.value() + 1, 100, TimeUnit.MILLISECONDS)) {
            tally.add(Tally.PROGRESS, 1);
        }
    }

    @Override
    public long lost(LockFile file, Tally.All all) {
        long value = file.sequence("s").value();
        return Math.max(0, all.sum(ADDED) - value) + Math.max(0, value - all.sum(PLANNED));
    }
}
