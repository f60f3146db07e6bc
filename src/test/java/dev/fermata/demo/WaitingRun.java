// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.LockPath;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * What it costs others that somebody waits: the time to a safepoint of a JVM whose threads wait, the system calls of the
 * threads that wait for others, the memory of those who wait without a thread of the kernel's; run by
 * {@code scripts/stress --waiting}. Nothing depends on the figures but the words "kept" and "exceeded".
 */
@Command(name = "stress", mixinStandardHelpOptions = true, description = "Measures what waiting costs.")
public final class WaitingRun implements Callable<Integer> {
    private static final String HELD = "held";
    private static final int COLLECTIONS = 50;
    /** Above an idle JVM's, in ms. */
    private static final double SAFEPOINT_BOUND = 10;
    private static final double CALLS_BOUND = 1;
    /** Above ReentrantLock's, in bytes. */
    private static final long MEMORY_BOUND = 400;
    private static final int SECONDS = 20;
    private static final Pattern REACHED = Pattern.compile("Safepoint \"\\w*Collect\\w*\".* Reaching safepoint: (\\d+) ns");
    private static final Pattern CALL = Pattern.compile("(?:(\\d+) +)?(\\d+\\.\\d+) (\\w+)\\(.*");

    @Option(names = "--waiting", required = true, description = "All measurements.")
    private boolean all;

    @Option(names = "--rounds", defaultValue = "3",
            description = "Of the JVMs whose safepoints are measured; default ${DEFAULT-VALUE}.")
    private int rounds;

    public static void main(String[] args) {
        System.exit(new CommandLine(new WaitingRun()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        boolean kept = safepoints();
        if (Stream.of(System.getenv("PATH").split(":")).anyMatch(on -> Files.isExecutable(Path.of(on, "strace")))) {
            calls(0, 1); // what there is without any
            kept &= calls(1000, 1);
            kept &= calls(1000, 1000);
        } else {
            System.out.println("stress: system calls left out: no strace on the PATH (Debian: apt-get install strace)");
        }
        kept &= memory();
        System.out.printf("stress: PASS measured; bounds were %s%n", kept ? "kept" : "exceeded");
        return CommandLine.ExitCode.OK;
    }

    private static String verdict(boolean kept) {
        return kept ? "kept" : "exceeded";
    }

    private static ChildJvm start(LockPath place, List<String> options, String... arguments) throws IOException {
        List<String> all = new ArrayList<>(List.of("-XX:TieredStopAtLevel=4", "-Xmx512m", ChildJvm.NATIVE_ACCESS,
                "-Ddev.fermata.native=" + System.getProperty("dev.fermata.native", "ffm")));
        all.addAll(options);
        return ChildJvm.start(WaitingCrowd.class, all,
                Stream.concat(Stream.of(place.file().toString()), Stream.of(arguments)).toArray(String[]::new));
    }

    // ---- safepoints ----

    private boolean safepoints() throws Exception {
        Map<String, List<Double>> millis = new LinkedHashMap<>();
        try (LockPath place = LockPath.create(); LockFile file = LockFile.open(place.file())) {
            SharedMutex held = file.mutex(HELD);
            held.lock();
            for (int round = 0; round < rounds; round++) {
                for (String crowd : WaitingCrowd.CROWDS) {
                    Path log = place.directory().resolve("safepoints");
                    try (ChildJvm child = start(place, List.of("-Xlog:safepoint:file=" + log), "collect", crowd,
                            Integer.toString(COLLECTIONS))) {
                        child.awaitSuccess();
                    }
                    List<Double> found = Files.readString(log).lines().map(REACHED::matcher).filter(Matcher::find)
                            .map(m -> Long.parseLong(m.group(1)) / 1e6).toList();
                    if (found.size() < COLLECTIONS) {
                        throw new AssertionError(found.size() + " collections in the log, expected " + COLLECTIONS);
                    }
                    millis.computeIfAbsent(crowd, key -> new ArrayList<>())
                            .addAll(found.subList(found.size() - COLLECTIONS, found.size()));
                    Files.delete(log);
                }
            }
            held.unlock();
        }
        double[] idle = sorted(millis.get(WaitingCrowd.IDLE));
        boolean kept = true;
        for (var of : millis.entrySet()) {
            double[] found = sorted(of.getValue());
            boolean within = quantile(found, 0.99) - quantile(idle, 0.99) <= SAFEPOINT_BOUND;
            kept &= within || of.getKey().equals(WaitingCrowd.REENTRANT);
            System.out.printf("stress: time to safepoint, %s: p50=%.3f ms p99=%.3f ms max=%.3f ms of %d; p99 above idle"
                    + " %.3f ms, bound %.0f ms: %s%n", of.getKey(), quantile(found, 0.5), quantile(found, 0.99),
                    found[found.length - 1], found.length, quantile(found, 0.99) - quantile(idle, 0.99), SAFEPOINT_BOUND,
                    verdict(within));
        }
        return kept;
    }

    private static double[] sorted(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).toArray();
        Arrays.sort(sorted);
        return sorted;
    }

    private static double quantile(double[] sorted, double q) {
        return sorted[(int) Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
    }

    // ---- system calls ----

    private static boolean calls(int requests, int locks) throws Exception {
        try (LockPath place = LockPath.create();
                LockFile file = LockFile.builder(place.file()).capacity(2000).open()) {
            for (int i = 0; i < locks; i++) {
                file.mutex(HELD + i).lock();
            }
            try (ChildJvm child = start(place, List.of(), "ask", Integer.toString(locks), Integer.toString(requests))) {
                expect(child, "> asked");
                Thread.sleep(3000); // until it is quiet
                Map<Long, String> threads = threads(child.pid());
                Map<Long, Long> before = switches(child.pid(), threads);
                Thread.sleep(SECONDS * 1000);
                Map<Long, Long> after = switches(child.pid(), threads);
                Map<Long, Map<String, Long>> calls = trace(place, threads);
                double most = 0;
                for (String name : threads.values().stream().sorted().distinct().toList()) {
                    List<Long> tids = threads.keySet().stream().filter(tid -> threads.get(tid).equals(name)).toList();
                    double[] perSecond = sorted(tids.stream().map(tid -> calls.getOrDefault(tid, Map.of()).values()
                            .stream().mapToLong(n -> n).sum() / (double) SECONDS).toList());
                    double[] sleeps = sorted(tids.stream().map(
                            tid -> (after.get(tid) - before.get(tid)) / (double) SECONDS).toList());
                    Map<String, Long> byName = tids.stream().flatMap(
                            tid -> calls.getOrDefault(tid, Map.of()).entrySet().stream()).collect(Collectors.groupingBy(
                                    Map.Entry::getKey, TreeMap::new, Collectors.summingLong(Map.Entry::getValue)));
                    most = Math.max(most, perSecond[perSecond.length - 1]);
                    System.out.printf("stress: %d requests on %d locks, %d threads %s: system calls a second of each:"
                            + " min=%.2f median=%.2f max=%.2f, sleeps median=%.2f max=%.2f; of all in %d s %s%n",
                            requests, locks, tids.size(), name, perSecond[0], quantile(perSecond, 0.5),
                            perSecond[perSecond.length - 1], quantile(sleeps, 0.5), sleeps[sleeps.length - 1], SECONDS,
                            byName);
                }
                System.out.printf("stress: %d requests on %d locks: at most %.2f calls a second of each, bound %.0f: %s%n",
                        requests, locks, most, CALLS_BOUND, verdict(most <= CALLS_BOUND));
                return most <= CALLS_BOUND;
            }
        }
    }

    private static void expect(ChildJvm child, String answer) throws IOException {
        String line;
        do { // lines of a log
            line = child.readLine();
        } while (!line.equals(answer));
    }

    /** Reactors and guardians, by their ids; the kernel knows 15 bytes of a name. */
    private static Map<Long, String> threads(long pid) throws IOException {
        Map<Long, String> threads = new TreeMap<>();
        try (Stream<Path> tasks = Files.list(Path.of("/proc/" + pid + "/task"))) {
            for (Path task : tasks.toList()) {
                String name = Files.readString(task.resolve("comm")).strip();
                if (name.startsWith("fermata-")) {
                    threads.put(Long.parseLong(task.getFileName().toString()), name);
                }
            }
        }
        return threads;
    }

    private static Map<Long, Long> switches(long pid, Map<Long, String> threads) throws IOException {
        Map<Long, Long> switches = new TreeMap<>();
        for (long tid : threads.keySet()) {
            String status = Files.readString(Path.of("/proc/" + pid + "/task/" + tid + "/status"));
            Matcher matcher = Pattern.compile("\nvoluntary_ctxt_switches:\\s+(\\d+)").matcher(status);
            switches.put(tid, matcher.find() ? Long.parseLong(matcher.group(1)) : 0);
        }
        return switches;
    }

    /** How often each thread calls what, as strace sees it; not the call that strace interrupts at first. */
    private static Map<Long, Map<String, Long>> trace(LockPath place, Map<Long, String> threads) throws Exception {
        Path trace = place.directory().resolve("trace");
        List<String> command = new ArrayList<>(List.of("strace", "-ttt", "-o", trace.toString()));
        threads.keySet().forEach(tid -> command.addAll(List.of("-p", Long.toString(tid))));
        Process strace = new ProcessBuilder(command).redirectErrorStream(true).start();
        try {
            BufferedReader lines = strace.inputReader();
            for (int attached = 0; attached < threads.size(); attached++) {
                if (lines.readLine() == null) {
                    throw new AssertionError("strace ended with " + strace.waitFor());
                }
            }
            double begin = System.currentTimeMillis() / 1e3 + 2;
            Thread.sleep((SECONDS + 3) * 1000);
            strace.destroy();
            strace.waitFor();
            Map<Long, Map<String, Long>> calls = new TreeMap<>();
            try (Stream<String> traced = Files.lines(trace)) {
                traced.map(CALL::matcher).filter(Matcher::matches).forEach(m -> {
                    double at = Double.parseDouble(m.group(2));
                    if (at >= begin && at < begin + SECONDS) {
                        Long by = m.group(1) == null ? threads.keySet().iterator().next() : Long.valueOf(m.group(1));
                        calls.computeIfAbsent(by, tid -> new TreeMap<>())
                                .merge(m.group(3), 1L, Long::sum);
                    }
                });
            }
            return calls;
        } finally {
            strace.destroyForcibly();
        }
    }

    // ---- memory ----

    private static boolean memory() throws Exception {
        Map<String, List<Long>> bytes = new LinkedHashMap<>();
        for (String kind : WaitingCrowd.KINDS) { // a full collection is to leave nothing that is dead
            try (LockPath place = LockPath.create()) {
                LockFile.builder(place.file()).capacity(2000).open().close();
                try (ChildJvm child = start(place, List.of("-XX:MarkSweepDeadRatio=0"), "weigh", kind, "1000", "10000")) {
                    String answer;
                    do { // lines of a log
                        answer = child.readLine();
                    } while (!answer.startsWith("> bytes "));
                    bytes.put(kind, Stream.of(answer.substring("> bytes ".length()).split(" ")).map(Long::valueOf).toList());
                }
            }
        }
        long reentrant = median(bytes.get(WaitingCrowd.KINDS.getFirst()));
        boolean kept = true;
        for (var of : bytes.entrySet()) {
            long above = median(of.getValue()) - reentrant;
            kept &= above <= MEMORY_BOUND;
            System.out.printf("stress: bytes of heap for each of 10000 waiters on 1000 locks, %s: %d, which is %d above"
                    + " ReentrantLock's, %.2f times as much, bound %d: %s; round by round %s%n", of.getKey(),
                    median(of.getValue()), above, (double) median(of.getValue()) / reentrant, MEMORY_BOUND,
                    verdict(above <= MEMORY_BOUND), of.getValue());
        }
        return kept;
    }

    /** Of the second half: in the first one some code is interpreted still, which takes more. */
    private static long median(List<Long> bytes) {
        List<Long> warm = bytes.subList(bytes.size() / 2, bytes.size()).stream().sorted().toList();
        return warm.get(warm.size() / 2);
    }
}
