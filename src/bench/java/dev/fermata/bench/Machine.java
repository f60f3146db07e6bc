// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.Fermata;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Where and beside what something was measured. */
record Machine(String cpu, int cores, String kernel, String jdk, String fermata, String load, String others) {
    private static final Duration SAMPLE = Duration.ofMillis(500);

    static Machine now() throws IOException {
        return new Machine(
                cpuModel(),
                Runtime.getRuntime().availableProcessors(),
                Files.readString(Path.of("/proc/sys/kernel/osrelease")).strip(),
                System.getProperty("java.vendor.version", "") + " " + Runtime.version(),
                Fermata.about(),
                Files.readString(Path.of("/proc/loadavg")).strip(),
                busy());
    }

    private static String cpuModel() throws IOException {
        try (Stream<String> lines = Files.lines(Path.of("/proc/cpuinfo"))) {
            return lines.filter(line -> line.startsWith("model name"))
                    .map(line -> line.substring(line.indexOf(':') + 1).strip())
                    .findFirst().orElse(System.getProperty("os.arch"));
        }
    }

    /** Other processes that use a tenth of a core or more. */
    private static String busy() {
        record Usage(ProcessHandle process, Duration cpu) {
        }

        List<Usage> before = ProcessHandle.allProcesses()
                .filter(process -> process.pid() != ProcessHandle.current().pid())
                .map(process -> new Usage(process, cpu(process)))
                .toList();
        Instant end = Instant.now().plus(SAMPLE);
        while (Instant.now().isBefore(end)) {
            LockSupport.parkUntil(end.toEpochMilli());
        }
        return before.stream()
                .filter(usage -> cpu(usage.process).minus(usage.cpu).compareTo(SAMPLE.dividedBy(10)) > 0)
                .map(usage -> usage.process.info().command().map(path -> Path.of(path).getFileName().toString())
                        .orElse("?"))
                .sorted().collect(Collectors.joining(", "));
    }

    private static Duration cpu(ProcessHandle process) {
        return process.info().totalCpuDuration().orElse(Duration.ZERO);
    }

    void write(Json json) {
        json.put("cpu", cpu);
        json.put("cores", cores);
        json.put("kernel", kernel);
        json.put("jdk", jdk);
        json.put("fermata", fermata);
        json.put("loadAverageAtStart", load);
        json.put("busyProcessesAtStart", others);
    }

    @Override
    public String toString() {
        return "%s, %d cores, Linux %s, %s%n%s%nload average %s; busy beside this: %s".formatted(
                cpu, cores, kernel, jdk, fermata, load, others.isEmpty() ? "nothing" : others);
    }
}
