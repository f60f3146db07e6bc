// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.PeerRun.Ended;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Peers in mixed languages, round after round; run by {@code scripts/stress}. */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Rounds of processes in mixed languages on one word, then rounds that end in a truncated file.")
public final class Stress implements Callable<Integer> {
    /** What a JVM compiles: as usual, nothing, with C1 only, or everything at once. */
    private enum Compilation {
        USUAL("-Xmixed"), NONE("-Xint"), C1("-XX:TieredStopAtLevel=1"), ALL("-Xcomp");

        private final String option;

        Compilation(String option) {
            this.option = option;
        }

        /** PROTOCOL.md, section 6: in the interpreter a read-modify-write on a lost page kills the JVM. */
        boolean mayCrash() {
            return this == NONE;
        }
    }

    /** In this order, again and again; those that compile everything need half a minute to start. */
    private static final List<Compilation> TURNS = List.of(Compilation.USUAL, Compilation.NONE, Compilation.C1,
            Compilation.USUAL, Compilation.NONE, Compilation.C1, Compilation.ALL);

    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final int DAMAGED = 3;
    private static final String CRASH = "A fatal error has been detected by the Java Runtime Environment";

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
            description = "Rounds in which the file is truncated under running peers, whose JVMs compile as usual, not"
                    + " at all, with C1 only or everything; default ${DEFAULT-VALUE}.")
    private int truncations;

    private final Map<Compilation, Integer> typed = new EnumMap<>(Compilation.class);
    private final Map<Compilation, Integer> crashed = new EnumMap<>(Compilation.class);
    private long acquisitions;
    private long mismatches;
    private long lost;
    private long failures;

    public static void main(String[] args) {
        System.exit(new CommandLine(new Stress()).setCaseInsensitiveEnumValuesAllowed(true).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        if (!Mode.OF_A_WORD.contains(mode)) {
            System.err.println("stress: --mode is " + mode + "; expected one of " + Mode.OF_A_WORD);
            return CommandLine.ExitCode.USAGE;
        }
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
        for (Compilation compilation : typed.keySet()) {
            System.out.printf("stress: truncated under JVMs with %s: %d typed errors, %d crashes%s%n",
                    compilation.option, typed.get(compilation), crashed.get(compilation),
                    compilation.mayCrash() ? " (a known limit: PROTOCOL.md, section 6)" : "");
        }
        boolean pass = lost == 0 && mismatches == 0 && failures == 0;
        System.out.printf("stress: %s mode=%s acquisitions=%d rounds=%d truncations=%d lost=%d mismatches=%d"
                + " failures=%d%n", pass ? "PASS" : "FAIL", mode, acquisitions, rounds, truncations, lost, mismatches,
                failures);
        return pass ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }

    private void fail(Ended peer) {
        failures++;
        System.out.printf("stress: FAILED: %s ended with %d: %s%n", peer.language(), peer.exitCode(), peer.output());
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
            Duration enough = LIMIT.plus(processes * iterations * 50, ChronoUnit.MICROS);
            for (Ended peer : run.await(enough)) {
                if (peer.exitCode() != 0) {
                    fail(peer);
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
        Compilation compilation = TURNS.get((round - 1) % TURNS.size());
        try (PeerRun run = new PeerRun(List.of(compilation.option))) {
            start(run, Long.MAX_VALUE);
            Thread.sleep(round % 5 * 100L); // the earlier ones hit code that is still interpreted
            run.truncate();
            int damaged = 0;
            for (Ended peer : run.await(LIMIT)) {
                boolean java = peer.language() == Language.JAVA;
                boolean told = peer.exitCode() == DAMAGED && peer.output().contains("peer: DAMAGED");
                boolean crash = java && peer.output().contains(CRASH);
                damaged += told ? 1 : 0;
                if (java) {
                    typed.merge(compilation, told ? 1 : 0, Integer::sum);
                    crashed.merge(compilation, crash ? 1 : 0, Integer::sum);
                }
                if (!told && !(crash && compilation.mayCrash())) {
                    fail(peer);
                }
            }
            System.out.printf("stress: truncation %d, JVMs with %s: %d of %d peers said DAMAGED%n",
                    round, compilation.option, damaged, processes);
        }
    }
}
