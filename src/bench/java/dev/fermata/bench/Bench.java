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
import java.util.function.DoubleBinaryOperator;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
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
 * the extremes show the noise. Where a bound is to be kept, both sides run in turn in one JVM, a moment each: they are
 * the sides of one benchmark. A limit of a time is reported, and fails nothing; {@link Spinning} is only reported, too.
 */
@Command(name = "bench", mixinStandardHelpOptions = true, sortOptions = false,
        description = "Measures the locks beside the same loops in C, java.util.concurrent and libc.")
public final class Bench implements Callable<Integer> {
    /** One benchmark in one setting: what a JVM is started for. */
    private record Run(String method, int threads, boolean shim) {
        @Override
        public String toString() {
            return method + (threads == 1 ? "" : "/" + threads + " threads") + (shim ? "" : "/no shim");
        }
    }

    /** What has a time: a run, or a side of one that times several things in turn. */
    private record Subject(Run run, String side) {
        static Subject alone(String method) {
            return new Subject(new Run(method, 1, true), "");
        }

        static Subject contended(String method) {
            return new Subject(new Run(method, 2, true), "");
        }

        static Subject withoutShim(String method) {
            return new Subject(new Run(method, 1, false), "");
        }

        static Subject side(String method, String side) {
            return new Subject(new Run(method, 1, true), side);
        }

        boolean isSide() {
            return !side.isEmpty();
        }

        @Override
        public String toString() {
            return run + (isSide() ? "/" + side : "");
        }
    }

    /** Time of a subject over time of a base. Above the bound it is a failure. */
    private record Ratio(Subject subject, Subject base, double bound) {
        Ratio(Subject subject, Subject base) {
            this(subject, base, Double.POSITIVE_INFINITY);
        }

        /** Of two sides of a run. */
        Ratio(String method, String side, String base, double bound) {
            this(Subject.side(method, side), Subject.side(method, base), bound);
        }

        Ratio(String method, String side, String base) {
            this(method, side, base, Double.POSITIVE_INFINITY);
        }

        boolean isBounded() {
            return bound < Double.POSITIVE_INFINITY;
        }

        /** Both were timed in turn in one JVM. */
        boolean isWithinRun() {
            return subject.isSide() && subject.run.equals(base.run);
        }

        @Override
        public String toString() {
            return subject + " : " + (isWithinRun() ? base.side : base);
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
            new Ratio("wordMutexBesideC", "java", "c", 1.2),
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
            new Ratio(Subject.alone("pingPong"), Subject.alone("cPingPong")),
            new Ratio("sharedMutex", "lock", "pthreadRobust", 0.8),
            new Ratio("sharedMutex", "lock", "reentrantLock", 1.0),
            new Ratio("symmetricMutex", "lock", "pthreadRobust"),
            new Ratio("symmetricMutex", "lock", "reentrantLock"),
            new Ratio(Subject.alone("sharedHold"), Subject.side("sharedMutex", "lock")),
            new Ratio("safeguards", "readBack", "bare"),
            new Ratio("safeguards", "holder", "readBack"),
            new Ratio("safeguards", "events", "holder"),
            new Ratio("safeguards", "heir", "events"),
            new Ratio("safeguards", "stamps", "heir"),
            new Ratio("safeguards", "stillMine", "stamps"),
            new Ratio("safeguards", "sharedMutex", "stillMine"),
            new Ratio("names", "lookUp", "misses", 1.5),
            new Ratio("names", "find", "misses"),
            new Ratio("names", "known", "lookUp"),
            new Ratio("names", "reopen", "lookUp"),
            new Ratio("creation", "create", "write"));

    /** Times that are reported beside a limit, in ns. */
    private static final Map<Subject, Double> LIMITS =
            Map.of(Subject.side("names", "known"), 250.0, Subject.side("names", "reopen"), 5e6);

    @Option(names = "--quick", description = "fewer and shorter rounds: at most 3 minutes instead of 12")
    private boolean quick;

    @Option(names = "--rounds", paramLabel = "N", description = "how many rounds, if there is time (7, quick: 2)")
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
    public Integer call() throws IOException {
        if (rounds == 0) {
            rounds = quick ? 2 : 7;
        }
        Predicate<String> chosen = Pattern.compile(only).asPredicate();
        List<Ratio> ratios = RATIOS.stream().filter(r -> chosen.test(r.toString())).toList();
        Spinning spinning = new Spinning(chosen, quick);
        if (ratios.isEmpty() && spinning.isEmpty()) {
            System.err.println("bench: no ratio matches " + only);
            return 2;
        }
        for (Ratio ratio : ratios) {
            if (ratio.isWithinRun()) { // then each step is reported after the one before
                scores.putIfAbsent(ratio.base, new ArrayList<>());
            }
            scores.putIfAbsent(ratio.subject, new ArrayList<>());
            scores.putIfAbsent(ratio.base, new ArrayList<>());
        }
        Machine machine = Machine.now();
        System.out.println(machine);
        List<Run> order = scores.keySet().stream().map(Subject::run).distinct().toList();
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
            order.forEach(this::measure);
            spinning.measure(round % 2 == 0);
            order = order.reversed();
        }
        Files.createDirectories(output.toAbsolutePath().getParent());
        Files.writeString(output, json(machine, ratios, spinning));
        boolean ok = ratios.isEmpty() || report(ratios);
        spinning.report();
        System.out.println("written to " + output);
        return ok ? 0 : 1;
    }

    private void measure(Run run) {
        OptionsBuilder options = new OptionsBuilder();
        options.include("\\." + run.method + "$")
                .forks(1)
                .threads(run.threads)
                .warmupIterations(3)
                .warmupTime(TimeValue.milliseconds(200))
                .measurementIterations(quick ? 4 : 5)
                .measurementTime(TimeValue.milliseconds(quick ? 100 : 200))
                .shouldFailOnError(true)
                .verbosity(VerboseMode.SILENT)
                .jvmArgs("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow", "-Xmx1536m",
                        "-D" + CLoops.LIBRARY + "=" + library.toAbsolutePath(),
                        "-Ddev.fermata.native=" + (run.shim ? "ffm" : "libc"));
        RunResult result;
        try {
            result = new Runner(options.build()).runSingle();
        } catch (RunnerException e) {
            throw new IllegalStateException(run + " has failed", e);
        }
        scores.forEach((subject, rounds) -> {
            if (subject.run.equals(run)) {
                rounds.add(result.getBenchmarkResults().iterator().next().getIterationResults().stream()
                        .mapToDouble(iteration -> score(iteration, subject.side))
                        .toArray());
            }
        });
    }

    private static double score(IterationResult iteration, String side) {
        Result<?> result = side.isEmpty() ? iteration.getPrimaryResult() : iteration.getSecondaryResults().get(side);
        return result.getScore();
    }

    static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        int n = sorted.length;
        return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    }

    /** The median of each round. */
    private double[] medians(Subject subject) {
        return scores.get(subject).stream().mapToDouble(Bench::median).toArray();
    }

    /** One for each round; within a run the median of its iterations'. */
    private double[] compare(Ratio ratio, DoubleBinaryOperator comparison) {
        double[] values = new double[rounds];
        for (int round = 0; round < rounds; round++) {
            double[] subject = scores.get(ratio.subject).get(round);
            double[] base = scores.get(ratio.base).get(round);
            values[round] = ratio.isWithinRun()
                    ? median(IntStream.range(0, subject.length)
                            .mapToDouble(i -> comparison.applyAsDouble(subject[i], base[i])).toArray())
                    : comparison.applyAsDouble(median(subject), median(base));
        }
        return values;
    }

    private double[] values(Ratio ratio) {
        return compare(ratio, (subject, base) -> subject / base);
    }

    /** How much more time the subject takes, in ns. */
    private double difference(Ratio ratio) {
        return median(compare(ratio, (subject, base) -> subject - base));
    }

    static double min(double[] values) {
        return Arrays.stream(values).min().orElseThrow();
    }

    static double max(double[] values) {
        return Arrays.stream(values).max().orElseThrow();
    }

    private static boolean isKept(Ratio ratio, double[] values) {
        return median(values) <= ratio.bound;
    }

    private boolean report(List<Ratio> ratios) {
        System.out.println("\nTime of lock and unlock, or of what the name says, in ns: median of rounds [min..max]");
        for (Subject subject : scores.keySet()) {
            double[] times = medians(subject);
            Double limit = LIMITS.get(subject);
            String verdict = limit == null ? ""
                    : ", limit %.0f: %s".formatted(limit, median(times) <= limit ? "ok" : "above");
            print("  %-28s %9.1f [%.1f..%.1f]%s%n", subject, median(times), min(times), max(times), verdict);
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
            if (ratio.isWithinRun()) {
                verdict = String.format(Locale.ROOT, ", %+.1f ns", difference(ratio)) + verdict;
            }
            print("  %-48s %6.2f [%.2f..%.2f]%s%n", ratio, median(values), min(values), max(values), verdict);
        }
        return ok;
    }

    private static void print(String format, Object... arguments) {
        System.out.printf(Locale.ROOT, format, arguments);
    }

    private String json(Machine machine, List<Ratio> ratios, Spinning spinning) {
        Json json = new Json();
        json.object(() -> {
            json.put("date", Instant.now().toString());
            json.put("rounds", rounds);
            json.put("quick", quick);
            json.key("machine").object(() -> machine.write(json));
            json.key("scores").array(() -> scores.forEach((subject, iterations) -> json.object(() -> {
                json.put("name", subject.toString());
                json.put("threads", subject.run.threads);
                json.put("shim", subject.run.shim);
                json.put("unit", "ns per operation");
                json.put("median", median(medians(subject)));
                if (LIMITS.containsKey(subject)) {
                    json.put("limit", LIMITS.get(subject));
                }
                json.key("rounds").array(() -> iterations.forEach(json::value));
            })));
            json.key("ratios").array(() -> ratios.forEach(ratio -> json.object(() -> {
                double[] values = values(ratio);
                json.put("name", ratio.toString());
                json.put("median", median(values));
                json.put("min", min(values));
                json.put("max", max(values));
                json.key("rounds").value(values);
                if (ratio.isWithinRun()) {
                    json.put("differenceInNs", difference(ratio));
                }
                if (ratio.isBounded()) {
                    json.put("bound", ratio.bound);
                    json.put("ok", isKept(ratio, values));
                }
            })));
            json.key("spinning").object(() -> spinning.write(json));
        });
        return json.toString();
    }
}
