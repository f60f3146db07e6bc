// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.internal.Calibration;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Predicate;
import java.util.function.ToDoubleFunction;
import java.util.stream.IntStream;

/**
 * What spinning before a sleep brings and what it costs: threads of two JVMs that contend for one {@link SharedMutex},
 * each for some work in it and as much without it, with several settings of {@link LockFile.Builder#spin} in turn. Nothing
 * is judged: with more threads than processors it depends on what else runs there.
 */
final class Spinning {
    private static final int PROCESSES = 2;

    /** For how long a waiter spins. */
    enum Policy {
        NEVER("0", Duration.ZERO), MEASURED("default", null),
        SHORT("2 us", Duration.ofNanos(2_000)), LONG("20 us", Duration.ofNanos(20_000));

        private final String text;
        private final Duration spin;

        Policy(String text, Duration spin) {
            this.text = text;
            this.spin = spin;
        }

        LockFile open(Path directory) throws IOException {
            LockFile.Builder builder = LockFile.builder(directory.resolve(name()));
            return (spin == null ? builder : builder.spin(spin)).open();
        }
    }

    /** What contends, and how: threads in all, and how much they do under the lock, in microseconds of CPU time. */
    record Setting(int threads, int section, Policy policy) {
        @Override
        public String toString() {
            return "spin/%d threads/%d us/%s".formatted(threads, section, policy.text);
        }
    }

    /** Of all processes: acquisitions in a second, and CPU time in ns for one, with the work inside and outside. */
    private record Score(double throughput, double cpu) {
    }

    private final Map<Setting, List<Score>> scores = new LinkedHashMap<>();
    private final List<Double> sleeps = new ArrayList<>();
    private final boolean quick;

    Spinning(Predicate<String> chosen, boolean quick) {
        this.quick = quick;
        for (int threads : new int[] {2, 4}) {
            for (int section : new int[] {0, 1, 10, 100}) {
                for (Policy policy : Policy.values()) {
                    Setting setting = new Setting(threads, section, policy);
                    if (chosen.test(setting.toString())) {
                        scores.put(setting, new ArrayList<>());
                    }
                }
            }
        }
    }

    boolean isEmpty() {
        return scores.isEmpty();
    }

    /** In fresh JVMs; backwards every other time. */
    void measure(boolean backwards) throws IOException {
        if (isEmpty()) {
            return;
        }
        Path directory = Files.createTempDirectory(Path.of("/dev/shm"), "fermata-bench-");
        List<Contender> contenders = new ArrayList<>();
        try {
            for (int i = 0; i < PROCESSES; i++) {
                contenders.add(new Contender(directory));
            }
            for (Contender contender : contenders) {
                sleeps.add(contender.read()[0]);
            }
            List<Setting> order = List.copyOf(scores.keySet());
            order = backwards ? order.reversed() : order;
            for (Setting setting : order) {
                run(contenders, setting, 40);
            }
            for (Setting setting : order) {
                scores.get(setting).add(run(contenders, setting, quick ? 100 : 150));
            }
        } finally {
            contenders.forEach(Contender::end);
            for (Policy policy : Policy.values()) {
                Files.deleteIfExists(directory.resolve(policy.name()));
            }
            Files.delete(directory);
        }
    }

    private static Score run(List<Contender> contenders, Setting setting, int millis) throws IOException {
        for (Contender contender : contenders) {
            contender.write("%s %d %d %d".formatted(
                    setting.policy.name(), setting.section, setting.threads / PROCESSES, millis));
        }
        double acquisitions = 0;
        double throughput = 0;
        double cpu = 0;
        for (Contender contender : contenders) {
            double[] result = contender.read();
            acquisitions += result[0];
            throughput += result[0] / result[1] * 1e9;
            cpu += result[2];
        }
        return new Score(throughput, cpu / acquisitions);
    }

    private double[] values(Setting setting, ToDoubleFunction<Score> value) {
        return scores.get(setting).stream().mapToDouble(value).toArray();
    }

    private double sleep() {
        return Bench.median(sleeps.stream().mapToDouble(Double::doubleValue).toArray());
    }

    void report() {
        if (isEmpty()) {
            return;
        }
        System.out.printf(Locale.ROOT, "%nSpinning before a sleep, threads of 2 JVMs, with as much work under the lock as"
                + " outside; a sleep and wake cost %.1f us; median of rounds [min..max]%n  %-28s %-32s %s%n",
                sleep() / 1000, "", "acquisitions in a second", "CPU time for one, with all work, us");
        for (Setting setting : scores.keySet()) {
            double[] throughput = values(setting, Score::throughput);
            double[] cpu = values(setting, score -> score.cpu / 1000);
            System.out.printf(Locale.ROOT, "  %-28s %-32s %8.2f [%.2f..%.2f]%n", setting,
                    String.format(Locale.ROOT, "%9.0f [%.0f..%.0f]", Bench.median(throughput), Bench.min(throughput),
                            Bench.max(throughput)),
                    Bench.median(cpu), Bench.min(cpu), Bench.max(cpu));
        }
    }

    void write(Json json) {
        json.key("sleepAndWakeInNs").value(sleeps.stream().mapToDouble(Double::doubleValue).toArray());
        json.key("settings").array(() -> scores.keySet().forEach(setting -> json.object(() -> {
            json.put("name", setting.toString());
            json.put("threads", setting.threads);
            json.put("sectionInUs", setting.section);
            json.put("spin", setting.policy.text);
            write(json, "acquisitionsPerSecond", values(setting, Score::throughput));
            write(json, "cpuNsPerAcquisition", values(setting, Score::cpu));
        })));
    }

    private static void write(Json json, String name, double[] rounds) {
        json.key(name).object(() -> {
            json.put("median", Bench.median(rounds));
            json.put("min", Bench.min(rounds));
            json.put("max", Bench.max(rounds));
            json.key("rounds").value(rounds);
        });
    }

    /** One of the processes: does what it is told, a line for each run, and answers with one of numbers. */
    static final class Contender {
        private final Process process;
        private final BufferedReader answers;

        Contender(Path directory) throws IOException {
            process = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(),
                    "--enable-native-access=ALL-UNNAMED", "-XX:+UseSerialGC", "-Xmx64m",
                    "-cp", System.getProperty("java.class.path"), Contender.class.getName(), directory.toString())
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            answers = process.inputReader();
        }

        void write(String line) throws IOException {
            process.outputWriter().write(line + "\n");
            process.outputWriter().flush();
        }

        double[] read() throws IOException {
            String line = answers.readLine();
            if (line == null) {
                throw new IOException("a process that contends has ended");
            }
            return List.of(line.split(" ")).stream().mapToDouble(Double::parseDouble).toArray();
        }

        void end() {
            process.destroyForcibly().onExit().join();
        }

        private static final int STEPS = 1 << 16; // of work, some 60 us

        private static int done; // so that the work is not left out

        public static void main(String[] args) throws Exception {
            Map<Policy, LockFile> files = new EnumMap<>(Policy.class);
            for (Policy policy : Policy.values()) {
                files.put(policy, policy.open(Path.of(args[0])));
            }
            double stepsInMicrosecond = stepsInMicrosecond(); // by then it is known what a sleep costs
            System.out.println(Calibration.sleep());
            BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
            String line;
            while ((line = steps.readLine()) != null) {
                String[] step = line.split(" ");
                SharedMutex mutex = files.get(Policy.valueOf(step[0])).mutex(step[1]); // has learned of these sections only
                System.out.println(run(mutex, (int) (Integer.parseInt(step[1]) * stepsInMicrosecond),
                        Integer.parseInt(step[2]), Integer.parseInt(step[3]) * 1_000_000L));
            }
        }

        private static double stepsInMicrosecond() {
            double best = 0;
            for (int i = 0; i < 1500; i++) {
                long start = System.nanoTime();
                work(STEPS);
                best = Turn.best(best, System.nanoTime() - start, STEPS);
            }
            return 1000 / best;
        }

        /** By one thread. */
        private record Used(long acquisitions, long cpu) {
        }

        private static String run(SharedMutex mutex, int section, int threads, long nanos) throws Exception {
            long start = System.nanoTime();
            long acquisitions = 0;
            long cpu = 0;
            try (var executor = Executors.newFixedThreadPool(threads)) {
                Callable<Used> loop = () -> contend(mutex, section, start + nanos);
                for (Future<Used> each : executor.invokeAll(IntStream.range(0, threads).mapToObj(i -> loop).toList())) {
                    acquisitions += each.get().acquisitions;
                    cpu += each.get().cpu;
                }
            }
            return acquisitions + " " + (System.nanoTime() - start) + " " + cpu;
        }

        private static Used contend(SharedMutex mutex, int section, long end) {
            ThreadMXBean threads = ManagementFactory.getThreadMXBean(); // a process's time is in steps of 10 ms
            long cpu = threads.getCurrentThreadCpuTime();
            long acquisitions = 0;
            while (System.nanoTime() < end) {
                mutex.lock();
                work(section);
                mutex.unlock();
                work(section);
                acquisitions++;
            }
            return new Used(acquisitions, threads.getCurrentThreadCpuTime() - cpu);
        }

        private static void work(int steps) {
            int x = 1;
            for (int i = 0; i < steps; i++) {
                x = x * 31 + 1 ^ x >>> 3; // each waits for the one before
            }
            if (x == 0) {
                done++;
            }
        }
    }
}
