// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * Runs the benchmarks in rounds and judges ratios, never times: the machine may be slow, shared or noisy, but it is so
 * for both sides of a ratio. In each round every benchmark runs once, in a fresh JVM; what is compared runs side by
 * side, and every other round goes backwards. A ratio is taken within a round; the median of all rounds counts, and
 * the extremes show the noise. Where a bound is to be kept, both sides run in turn in one JVM, a moment each.
 */
@Command(name = "bench", mixinStandardHelpOptions = true, sortOptions = false,
        description = "Measures the word primitives beside the same loops in C, java.util.concurrent and libc.")
public final class Bench implements Callable<Integer> {
    /** One benchmark in one setting. */
    private record Subject(String method, int threads, boolean shim) {
        static Subject alone(String method) {
            return new Subject(method, 1, true);
        }

        static Subject contended(String method) {
            return new Subject(method, 2, true);
        }

        static Subject withoutShim(String method) {
            return new Subject(method, 1, false);
        }

        @Override
        public String toString() {
            return method + (threads == 1 ? "" : "/" + threads + " threads") + (shim ? "" : "/no shim");
        }
    }

    /** Time of a subject over time of a base, or measured as a ratio: no base. Above the bound it is a failure. */
    private record Ratio(Subject subject, Subject base, double bound) {
        Ratio(Subject subject, Subject base) {
            this(subject, base, Double.POSITIVE_INFINITY);
        }

        boolean isBounded() {
            return bound < Double.POSITIVE_INFINITY;
        }

        @Override
        public String toString() {
            return base == null ? subject.toString() : subject + " : " + base;
        }
    }

    /** No round is begun that would probably end later. */
    private static final Duration LIMIT = Duration.ofSeconds(680);
    private static final Duration QUICK_LIMIT = Duration.ofSeconds(155);

    private static final Subject MUTEX = Subject.alone("wordMutex");
    private static final Subject C_MUTEX = Subject.alone("cMutex");
    private static final Subject SPIN = Subject.alone("spinLock");
    private static final Subject SHARED = Subject.alone("wordShared");
    private static final Subject EXCLUSIVE = Subject.alone("wordExclusive");
    private static final Subject FLAG = Subject.alone("flag");
    private static final Subject MUTEX_2 = Subject.contended("wordMutex");

    /** What is compared, in the order of measuring. */
    private static final List<Ratio> RATIOS = List.of(
            new Ratio(Subject.alone("wordMutexBesideC"), null, 1.2),
            new Ratio(MUTEX, C_MUTEX),
            new Ratio(Subject.alone("wordMutexField"), C_MUTEX),
            new Ratio(Subject.alone("cMutexCalled"), C_MUTEX),
            new Ratio(MUTEX, Subject.alone("reentrantLock")),
            new Ratio(MUTEX, Subject.alone("pthreadMutex")),
            new Ratio(MUTEX, Subject.alone("pthreadRobust")),
            new Ratio(SPIN, Subject.alone("cSpinLock")),
            new Ratio(Subject.withoutShim("spinLock"), SPIN),
            new Ratio(SHARED, Subject.alone("cShared")),
            new Ratio(SHARED, Subject.alone("reentrantRead")),
            new Ratio(EXCLUSIVE, Subject.alone("cExclusive")),
            new Ratio(EXCLUSIVE, Subject.alone("reentrantWrite")),
            new Ratio(FLAG, Subject.alone("cFlag")),
            new Ratio(FLAG, Subject.alone("atomicBoolean")),
            new Ratio(Subject.alone("pause"), Subject.alone("cPause")),
            new Ratio(Subject.withoutShim("pause"), Subject.alone("cPause")),
            new Ratio(MUTEX_2, Subject.contended("cMutex")),
            new Ratio(MUTEX_2, Subject.contended("reentrantLock")),
            new Ratio(MUTEX_2, Subject.contended("pthreadMutex")),
            new Ratio(Subject.contended("spinLock"), Subject.contended("cSpinLock")),
            new Ratio(Subject.contended("wordShared"), Subject.contended("cShared")),
            new Ratio(Subject.alone("pingPong"), Subject.alone("cPingPong")));

    @Option(names = "--quick", description = "fewer and shorter rounds: at most 3 minutes instead of 12")
    private boolean quick;

    @Option(names = "--rounds", paramLabel = "N", description = "how many rounds, if there is time (8, quick: 3)")
    private int rounds;

    @Option(names = "--only", paramLabel = "REGEX", description = "only the ratios whose name matches")
    private String only = "";

    @Option(names = "--library", paramLabel = "FILE", description = "src/bench/c/loops.c, compiled (${DEFAULT-VALUE})")
    private Path library = Path.of("target/bench/libloops.so");

    @Option(names = "--output", paramLabel = "FILE", description = "where the results go (${DEFAULT-VALUE})")
    private Path output = Path.of("target/bench/results.json");

    private final Map<Subject, List<double[]>> scores = new LinkedHashMap<>(); // per round, those of the iterations

    private Bench() {
    }

    public static void main(String[] args) {
        System.exit(new CommandLine(new Bench()).execute(args));
    }

    @Override
    public Integer call() throws IOException, RunnerException {
        if (rounds == 0) {
            rounds = quick ? 3 : 8;
        }
        Predicate<String> chosen = Pattern.compile(only).asPredicate();
        List<Ratio> ratios = RATIOS.stream().filter(r -> chosen.test(r.toString())).toList();
        if (ratios.isEmpty()) {
            System.err.println("bench: no ratio matches " + only);
            return 2;
        }
        for (Ratio ratio : ratios) {
            scores.putIfAbsent(ratio.subject, new ArrayList<>());
            if (ratio.base != null) {
                scores.putIfAbsent(ratio.base, new ArrayList<>());
            }
        }
        Machine machine = Machine.now();
        System.out.println(machine);
        List<Subject> order = new ArrayList<>(scores.keySet());
        Instant start = Instant.now();
        for (int round = 1; round <= rounds; round++) {
            Duration spent = Duration.between(start, Instant.now());
            Duration limit = quick ? QUICK_LIMIT : LIMIT;
            if (round > 1 && spent.multipliedBy(round).dividedBy(round - 1).compareTo(limit) > 0) {
                System.out.println("no time for more; this machine is busy or slow");
                rounds = round - 1;
                break;
            }
            System.out.printf("round %d of %d%n", round, rounds);
            for (Subject subject : order) {
                scores.get(subject).add(measure(subject));
            }
            order = order.reversed();
        }
        Files.createDirectories(output.toAbsolutePath().getParent());
        Files.writeString(output, json(machine, ratios));
        boolean ok = report(ratios);
        System.out.println("written to " + output);
        return ok ? 0 : 1;
    }

    private double[] measure(Subject subject) throws RunnerException {
        OptionsBuilder options = new OptionsBuilder();
        options.include("\\." + subject.method + "$")
                .forks(1)
                .threads(subject.threads)
                .warmupIterations(3)
                .warmupTime(TimeValue.milliseconds(200))
                .measurementIterations(quick ? 4 : 5)
                .measurementTime(TimeValue.milliseconds(quick ? 100 : 200))
                .shouldFailOnError(true)
                .verbosity(VerboseMode.SILENT)
                .jvmArgs("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow",
                        "-D" + CLoops.LIBRARY + "=" + library.toAbsolutePath(),
                        "-Ddev.fermata.native=" + (subject.shim ? "ffm" : "libc"));
        RunResult result = new Runner(options.build()).runSingle();
        return result.getBenchmarkResults().iterator().next().getIterationResults().stream()
                .mapToDouble(Bench::score)
                .toArray();
    }

    /** The time of an operation; where two were timed beside each other, the ratio. */
    private static double score(IterationResult iteration) {
        Map<String, Result> sides = iteration.getSecondaryResults();
        return sides.isEmpty() ? iteration.getPrimaryResult().getScore()
                : sides.get("java").getScore() / sides.get("c").getScore();
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        int n = sorted.length;
        return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    }

    /** The median of each round. */
    private double[] medians(Subject subject) {
        return scores.get(subject).stream().mapToDouble(Bench::median).toArray();
    }

    /** One for each round. */
    private double[] values(Ratio ratio) {
        double[] values = medians(ratio.subject);
        if (ratio.base == null) {
            return values;
        }
        double[] base = medians(ratio.base);
        for (int i = 0; i < values.length; i++) {
            values[i] /= base[i];
        }
        return values;
    }

    private static boolean isRatio(Subject subject) {
        return RATIOS.stream().anyMatch(ratio -> ratio.base == null && ratio.subject.equals(subject));
    }

    private static double min(double[] values) {
        return Arrays.stream(values).min().orElseThrow();
    }

    private static double max(double[] values) {
        return Arrays.stream(values).max().orElseThrow();
    }

    private static boolean isKept(Ratio ratio, double[] values) {
        return median(values) <= ratio.bound;
    }

    private boolean report(List<Ratio> ratios) {
        System.out.println("\nTime of lock and unlock (set and clear) in ns: median of rounds [min..max]");
        for (Subject subject : scores.keySet()) {
            if (isRatio(subject)) {
                continue;
            }
            double[] times = medians(subject);
            print("  %-28s %9.1f [%.1f..%.1f]%n", subject, median(times), min(times), max(times));
        }
        System.out.println("\nRatios of times: median of rounds [min..max]; less is faster");
        boolean ok = true;
        for (Ratio ratio : ratios) {
            double[] values = values(ratio);
            String verdict = "";
            if (ratio.isBounded()) {
                boolean kept = isKept(ratio, values);
                ok &= kept;
                verdict = ", bound %s: %s".formatted(ratio.bound, kept ? "ok" : "EXCEEDED");
            }
            print("  %-48s %6.2f [%.2f..%.2f]%s%n", ratio, median(values), min(values), max(values), verdict);
        }
        return ok;
    }

    private static void print(String format, Object... arguments) {
        System.out.printf(Locale.ROOT, format, arguments);
    }

    private String json(Machine machine, List<Ratio> ratios) {
        Json json = new Json();
        json.object(() -> {
            json.put("date", Instant.now().toString());
            json.put("rounds", rounds);
            json.put("quick", quick);
            json.key("machine").object(() -> machine.write(json));
            json.key("scores").array(() -> scores.forEach((subject, iterations) -> json.object(() -> {
                json.put("name", subject.toString());
                json.put("threads", subject.threads);
                json.put("shim", subject.shim);
                json.put("unit", isRatio(subject) ? "ratio" : "ns per operation");
                json.put("median", median(medians(subject)));
                json.key("rounds").array(() -> iterations.forEach(json::value));
            })));
            json.key("ratios").array(() -> ratios.forEach(ratio -> json.object(() -> {
                double[] values = values(ratio);
                json.put("name", ratio.toString());
                json.put("median", median(values));
                json.put("min", min(values));
                json.put("max", max(values));
                json.key("rounds").value(values);
                if (ratio.isBounded()) {
                    json.put("bound", ratio.bound);
                    json.put("ok", isKept(ratio, values));
                }
            })));
        });
        return json.toString();
    }
}
