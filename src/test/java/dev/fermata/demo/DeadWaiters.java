// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * Processes that are killed while they sleep on a lock, round after round, with one among them that lives; run by
 * {@code scripts/stress --waiters}. After each round the lock is released, and the survivor is to have it: plainly, as
 * no owner died. The file has room for one round's processes only, so slots of the dead have to come back.
 */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Processes that are killed while they sleep on a lock.")
public final class DeadWaiters implements Callable<Integer> {
    private static final int ROUND = 5;
    /** How many seconds after the release the survivor is given up, and killed, which ends the run. */
    private static final long STALL = 30;

    @Option(names = "--waiters", required = true, description = "How many are killed.")
    private int waiters;

    public static void main(String[] args) {
        System.exit(new CommandLine(new DeadWaiters()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        long updates = 0;
        List<LockPeer> victims = new ArrayList<>();
        try (LockPath place = LockPath.create();
                LockFile file = LockFile.builder(place.file()).participants(ROUND + 2).open();
                LockPeer survivor = LockPeer.start(place.file())) {
            SharedMutex mutex = file.mutex("m", LockPeer.RECORD);
            for (int killed = 0; killed < waiters; ) {
                mutex.lock();
                while (victims.size() < Math.min(ROUND, waiters - killed)) {
                    victims.add(LockPeer.launch());
                }
                for (LockPeer victim : victims) {
                    victim.tell("open " + place.file());
                    victim.expect("opened");
                    victim.tell("lock m");
                    victim.awaitAsleep();
                }
                survivor.tell("update m 1");
                survivor.awaitAsleep(); // behind all of them
                for (LockPeer victim : victims) {
                    victim.kill();
                    killed++;
                }
                victims.clear();
                mutex.unlock();
                CompletableFuture<Void> watchdog = CompletableFuture.runAsync(
                        survivor::kill, CompletableFuture.delayedExecutor(STALL, TimeUnit.SECONDS));
                survivor.expect("updated");
                watchdog.cancel(false);
                updates++;
                long counted = mutex.payload().get(JAVA_LONG, 0);
                if (mutex.info().recovered() != 0 || counted != updates) {
                    System.out.printf("stress: FAIL waiters=%d updates=%d expected=%d: %s%n", killed, counted, updates,
                            mutex);
                    return CommandLine.ExitCode.SOFTWARE;
                }
            }
        } finally {
            victims.forEach(LockPeer::close);
        }
        System.out.printf("stress: PASS waiters=%d updates=%d%n", waiters, updates);
        return CommandLine.ExitCode.OK;
    }
}
