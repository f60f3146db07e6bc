// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.PeerRun.Ended;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Peers in mixed languages, round after round; run by {@code scripts/stress}. */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Rounds of processes in mixed languages on one word, then rounds that end in a truncated file.")
public final class Stress implements Callable<Integer> {
    @Option(names = "--rounds", defaultValue = "20", description = "Counted rounds; default ${DEFAULT-VALUE}.")
    private int rounds;

    @Option(names = "--processes", defaultValue = "8", description = "Processes a round; default ${DEFAULT-VALUE}.")
    private int processes;

    @Option(names = "--iterations", defaultValue = "1000000",
            description = "Acquisitions of each process; default ${DEFAULT-VALUE}.")
    private long iterations;

    @Option(names = "--mode", defaultValue = "mutex", description = "mutex, spin or rw; default ${DEFAULT-VALUE}.")
    private Mode mode;

    @Option(names = "--truncations", defaultValue = "20",
            description = "Rounds in which the file is truncated under running peers; default ${DEFAULT-VALUE}.")
    private int truncations;

    private long acquisitions;
    private long mismatches;
    private long lost;
    private long crashes;

    public static void main(String[] args) {
        System.exit(new CommandLine(new Stress()).setCaseInsensitiveEnumValuesAllowed(true).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        for (Language language : Language.values()) {
            PeerProcess.missing(language).ifPresent(
                    why -> System.out.println("stress: " + language + " left out: " + why));
        }
        for (int round = 1; round <= rounds; round++) {
            count(round);
        }
        for (int round = 1; round <= truncations; round++) {
            truncate(round);
        }
        boolean pass = lost == 0 && mismatches == 0 && crashes == 0;
        System.out.printf("stress: %s acquisitions=%d rounds=%d truncations=%d lost=%d mismatches=%d crashes=%d%n",
                pass ? "PASS" : "FAIL", acquisitions, rounds, truncations, lost, mismatches, crashes);
        return pass ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }

    private void reportCrash(Ended peer) {
        crashes++;
        System.out.printf("stress: %s ended with %d: %s%n", peer.language(), peer.exitCode(), peer.output());
    }

    private void start(PeerRun run, long each) throws Exception {
        var languages = Stream.of(Language.values())
                .filter(language -> PeerProcess.missing(language).isEmpty()).toList();
        for (int i = 0; i < processes; i++) {
            run.start(languages.get(i % languages.size()), each, mode, 1);
        }
        run.awaitGate(processes);
        run.openGate();
    }

    private void count(int round) throws Exception {
        try (PeerRun run = new PeerRun()) {
            start(run, iterations);
            long begin = System.nanoTime();
            for (Ended peer : run.await()) {
                if (peer.exitCode() != 0) {
                    reportCrash(peer);
                }
            }
            long found = run.record().counter();
            acquisitions += found;
            lost += Math.abs(processes * iterations - found);
            mismatches += run.mismatches();
            System.out.printf("stress: round %d: %d acquisitions, expected %d, %.1f s%n",
                    round, found, processes * iterations, (System.nanoTime() - begin) / 1e9);
        }
    }

    private void truncate(int round) throws Exception {
        try (PeerRun run = new PeerRun()) {
            start(run, Long.MAX_VALUE);
            Thread.sleep(round % 10 * 50L); // the earlier ones hit code that is still interpreted
            run.truncate();
            int damaged = 0;
            for (Ended peer : run.await()) {
                if (peer.exitCode() == 3) {
                    damaged++;
                } else {
                    reportCrash(peer);
                }
            }
            System.out.printf("stress: truncation %d: %d of %d peers said DAMAGED%n", round, damaged, processes);
        }
    }
}
