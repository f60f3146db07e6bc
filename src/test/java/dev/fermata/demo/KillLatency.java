// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import dev.fermata.testing.Waiter;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** How long after the death of its holder a sleeping waiter has the lock; run by {@code scripts/stress --deaths}. */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Measures the time from a holder's death to a sleeping waiter's acquisition.")
public final class KillLatency implements Callable<Integer> {
    @Option(names = "--deaths", required = true, description = "How many holders are killed.")
    private int deaths;

    @Option(names = "--locks", defaultValue = "1", description = "Locks in the file; default ${DEFAULT-VALUE}.")
    private int locks;

    @Option(names = "--symmetric", description = "A symmetric file.")
    private boolean symmetric;

    @Option(names = "--stopped", description = "Beside it, a participant that is stopped.")
    private boolean stopped;

    @Option(names = "--gc", description = "Beside it, a participant whose JVM collects all the time.")
    private boolean gc;

    @Option(names = "--reap", description = "The memory of the dying is taken from them at once.")
    private boolean reap;

    @Option(names = "--apart", description = "The holders on one processor, the waiter on another.")
    private boolean apart;

    public static void main(String[] args) {
        System.exit(new CommandLine(new KillLatency()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        if (apart) {
            run("taskset", "-a", "-c", "-p", "1", Long.toString(ProcessHandle.current().pid()));
        }
        List<String> on = apart ? List.of("taskset", "-c", "0") : List.of();
        long[] nanos = new long[deaths];
        int told = 0;
        try (LockPath place = LockPath.create()) {
            LockFile.Builder builder = LockFile.builder(place.file()).capacity(locks + 16);
            try (LockFile file = (symmetric ? builder.symmetric() : builder).open();
                    LockPeer bystander = LockPeer.startUnder(on, place.file())) {
                for (int i = 0; i < locks; i++) {
                    file.mutex("lock " + i);
                }
                SharedMutex mutex = file.mutex("m", LockPeer.RECORD);
                if (stopped) {
                    Kernel.stop(bystander.pid());
                }
                if (gc) {
                    bystander.tell("gc");
                }
                for (int i = 0; i < 20_000; i++) { // in use, as locks are before somebody dies with them
                    mutex.lock();
                    mutex.unlock();
                }
                for (int i = 0; i < deaths; i++) {
                    try (LockPeer holder = LockPeer.startUnder(on, place.file())) {
                        if (!holder.ask("lock m").equals("locked")) {
                            throw new AssertionError("the lock was not free");
                        }
                        Waiter<Long> waiter = Waiter.call(() -> {
                            mutex.lock();
                            long now = System.nanoTime();
                            mutex.unlock();
                            return now;
                        });
                        waiter.awaitAsleepOnSeveral();
                        Thread.sleep(50); // until nothing else runs
                        long begin = System.nanoTime();
                        if (reap) {
                            Kernel.killAndReap(holder.pid());
                        } else {
                            Kernel.kill(holder.pid());
                        }
                        nanos[i] = waiter.result() - begin;
                        told += mutex.info().recovered() == i + 1 ? 1 : 0;
                    }
                }
            }
        }
        Arrays.sort(nanos);
        System.out.printf("stress: %s deaths=%d told=%d p50=%.3f ms p99=%.3f ms max=%.3f ms%n",
                told == deaths ? "PASS" : "FAIL", deaths, told, nanos[deaths / 2] / 1e6,
                nanos[deaths * 99 / 100] / 1e6, nanos[deaths - 1] / 1e6);
        return told == deaths ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }

    private static void run(String... command) throws Exception {
        if (new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor() != 0) {
            throw new AssertionError(String.join(" ", command) + " failed");
        }
    }
}
