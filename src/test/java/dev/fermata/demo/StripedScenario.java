// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import dev.fermata.LockTimeoutException;
import dev.fermata.StripedMutex;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Random;

/** Threads move amounts between accounts, of which they lock two by their keys. */
final class StripedScenario implements Scenario {
    private static final int ACCOUNTS = 16;
    private static final int UNDER_WAY = Tally.FIRST;

    @Override
    public String name() {
        return "striped";
    }

    @Override
    public void prepare(LockFile file) {
        file.stripedMutex("s", 4);
        file.mutex("accounts", ACCOUNTS * 8);
    }

    @Override
    public void round(LockFile file, Tally tally, Random random) throws Exception {
        StripedMutex striped = file.stripedMutex("s", 4);
        MemorySegment accounts = file.mutex("accounts", ACCOUNTS * 8).payload();
        int from = random.nextInt(ACCOUNTS);
        int to = (from + 1 + random.nextInt(ACCOUNTS - 1)) % ACCOUNTS;
        try (StripedMutex.Locked _ = striped.lockAll(List.of("account " + from, "account " + to), Duration.ofSeconds(5))) {
            long a = accounts.get(JAVA_LONG, from * 8L);
            long b = accounts.get(JAVA_LONG, to * 8L);
            tally.set(UNDER_WAY, 1);
            accounts.set(JAVA_LONG, from * 8L, a - 1);
            Thread.yield();
            accounts.set(JAVA_LONG, to * 8L, b + 1);
            if (accounts.get(JAVA_LONG, from * 8L) != a - 1) {
                tally.add(Tally.DOUBLES, 1);
            }
            tally.set(UNDER_WAY, 0);
            tally.add(Tally.PROGRESS, 1);
        } catch (LockTimeoutException late) {
            tally.add(Tally.DOUBLES, 1); // nobody keeps a key for so long
        }
    }

    /** Each who was killed in a transfer may have taken from one account and not given to the other: one each. */
    @Override
    public long lost(LockFile file, Tally.All all) {
        MemorySegment accounts = file.mutex("accounts", ACCOUNTS * 8).payload();
        long sum = 0;
        for (int i = 0; i < ACCOUNTS; i++) {
            sum += accounts.get(JAVA_LONG, i * 8L);
        }
        return sum <= 0 && -sum <= all.sum(UNDER_WAY) ? 0 : Math.abs(sum);
    }
}
