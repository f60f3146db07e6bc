// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LeaderElection;
import dev.fermata.LeaderElection.Leadership;
import dev.fermata.LockFile;
import dev.fermata.LockTimeoutException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Random;

/** Threads campaign, and each leader writes its term where every leader before has: none may find a higher one. */
final class ElectionScenario implements Scenario {
    private static final long TERM = 0;
    private static final long INSIDE = 8;

    @Override
    public String name() {
        return "election";
    }

    @Override
    public void prepare(LockFile file) {
        file.leaderElection("e");
        file.mutex("terms", 16);
    }

    @Override
    public void round(LockFile file, Tally tally, Random random) throws Exception {
        LeaderElection election = file.leaderElection("e");
        MemorySegment memory = file.mutex("terms", 16).payload();
        try (Leadership office = random.nextBoolean()
                ? election.campaign(Duration.ofMillis(random.nextInt(1, 200))) : election.campaign()) {
            if (memory.get(JAVA_LONG, TERM) >= office.term()
                    || memory.get(JAVA_LONG, INSIDE) != 0 && !office.predecessorDied()) {
                tally.add(Tally.DOUBLES, 1);
            }
            memory.set(JAVA_LONG, INSIDE, office.term());
            memory.set(JAVA_LONG, TERM, office.term());
            if (random.nextInt(8) == 0) {
                Thread.sleep(1);
            }
            if (memory.get(JAVA_LONG, INSIDE) != office.term()) {
                tally.add(Tally.DOUBLES, 1);
            }
            memory.set(JAVA_LONG, INSIDE, 0);
            tally.add(Tally.PROGRESS, 1);
        } catch (LockTimeoutException late) {
            // the next time
        }
    }

    @Override
    public long lost(LockFile file, Tally.All all) throws Exception {
        LeaderElection election = file.leaderElection("e");
        try (Leadership office = election.campaign(Duration.ofSeconds(10))) {
            return office.term() == election.term() && office.term() > all.sum(Tally.PROGRESS) ? 0 : 1;
        }
    }
}
