// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * What the hand-over gives, and what it costs: how long one waits for a lock that another process takes again and
 * again, and the throughput of many processes with and without it; run by {@code scripts/stress --greedy}.
 */
@Command(name = "stress", mixinStandardHelpOptions = true, description = "Measures the hand-over to a waiter.")
public final class HandOverRun implements Callable<Integer> {
    @Option(names = "--greedy", required = true, description = "Acquisitions beside a greedy process.")
    private int acquisitions;

    @Option(names = "--processes", defaultValue = "32", description = "In the crowd; default ${DEFAULT-VALUE}.")
    private int processes;

    @Option(names = "--rounds", defaultValue = "3", description = "Of the crowd, with and without; default ${DEFAULT-VALUE}.")
    private int rounds;

    public static void main(String[] args) {
        System.exit(new CommandLine(new HandOverRun()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        greedy(0, acquisitions);
        greedy(200, acquisitions);
        double[] ratios = new double[rounds];
        for (int i = 0; i < rounds; i++) {
            double with = crowd();
            double without = crowd("-Ddev.fermata.noHandOver=true");
            ratios[i] = with / without;
            System.out.printf("stress: %d processes: %.0f acquisitions/s with hand-over, %.0f without: %.2f%n", processes,
                    with, without, ratios[i]);
        }
        Arrays.sort(ratios);
        System.out.printf("stress: PASS throughput with hand-over: without, median of %d: %.2f%n", rounds,
                ratios[rounds / 2]);
        return CommandLine.ExitCode.OK;
    }

    private static void greedy(long micros, int acquisitions) throws Exception {
        try (LockPath place = LockPath.create();
                LockFile file = LockFile.open(place.file());
                LockPeer peer = LockPeer.start(place.file(), "-XX:-TieredCompilation", "-XX:TieredStopAtLevel=4")) {
            SharedMutex mutex = file.mutex("m", LockPeer.RECORD);
            peer.tell("hog m " + micros);
            long[] nanos = new long[acquisitions];
            for (int i = -2000; i < acquisitions; i++) { // compiled, at 0
                Thread.sleep(1);
                long begin = System.nanoTime();
                mutex.lock();
                long waited = System.nanoTime() - begin;
                mutex.unlock();
                if (i >= 0) {
                    nanos[i] = waited;
                }
            }
            Arrays.sort(nanos);
            System.out.printf("stress: beside a greedy process, sections of %d µs: waited p50=%.3f ms p99=%.3f ms"
                    + " p99.9=%.3f ms max=%.3f ms%n", micros, nanos[acquisitions / 2] / 1e6, nanos[acquisitions * 99 / 100] / 1e6,
                    nanos[(int) (acquisitions * 999L / 1000)] / 1e6, nanos[acquisitions - 1] / 1e6);
        }
    }

    /** Acquisitions in a second. */
    private double crowd(String... options) throws Exception {
        List<LockPeer> peers = new ArrayList<>();
        try (LockPath place = LockPath.create();
                LockFile file = LockFile.builder(place.file()).participants(processes + 2).open()) {
            SharedMutex mutex = file.mutex("m", LockPeer.RECORD);
            for (int i = 0; i < processes; i++) {
                peers.add(LockPeer.start(place.file(), options));
            }
            for (LockPeer peer : peers) {
                peer.tell("spin m");
            }
            Thread.sleep(3000); // until they are compiled
            long before = mutex.info().acquisitions();
            long begin = System.nanoTime();
            Thread.sleep(4000);
            long after = mutex.info().acquisitions();
            return (after - before) * 1e9 / (System.nanoTime() - begin);
        } finally {
            peers.forEach(LockPeer::close);
        }
    }
}
