// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.Fermata;
import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.DemoRecord.Slot;
import dev.fermata.demo.DemoRecord.State;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** The main job on real input: JVMs, a C and a Rust program contend for one word, and the sum must be exact. */
@Command(name = "demo", mixinStandardHelpOptions = true,
        description = "3 JVMs with 2 threads each, a C and a Rust process on one lock word of one file.")
public final class Demo implements Callable<Integer> {
    private static final int JVMS = 3;
    private static final int THREADS_OF_A_JVM = 2;
    private static final long OFFSET = 4096;
    private static final long START_SECONDS = 60;

    @Option(names = "--iterations", defaultValue = "2000000",
            description = "Acquisitions of each thread; default ${DEFAULT-VALUE}.")
    private long iterations;

    @Option(names = "--mode", defaultValue = "mutex", description = "mutex, spin or rw; default ${DEFAULT-VALUE}.")
    private Mode mode;

    @Option(names = "--keep", description = "Keep the file.")
    private boolean keep;

    private final List<Member> members = new ArrayList<>();
    private final boolean terminal = System.console() != null && System.console().isTerminal();

    /** One process of the demo. */
    private record Member(Language language, int threads, Process process) {
        long pid() {
            return process.pid();
        }

        Stream<Slot> slots(DemoRecord record) {
            return Stream.iterate(0, i -> i < Math.min(record.slotsUsed(), DemoRecord.SLOTS), i -> i + 1)
                    .map(record::slot).filter(slot -> slot.pid() == pid());
        }

        long acquisitions(DemoRecord record) {
            return slots(record).mapToLong(Slot::acquisitions).sum();
        }

        long contended(DemoRecord record) {
            return slots(record).mapToLong(Slot::contended).sum();
        }

        long mismatches(DemoRecord record) {
            return slots(record).mapToLong(Slot::mismatches).sum();
        }
    }

    public static void main(String[] args) {
        System.exit(new CommandLine(new Demo()).setCaseInsensitiveEnumValuesAllowed(true).execute(args));
    }

    @Override
    public Integer call() throws IOException, InterruptedException {
        if (iterations < 1) {
            System.err.println("demo: --iterations must be 1 or more, found " + iterations);
            return CommandLine.ExitCode.USAGE;
        }
        Path file = Files.createTempFile(Path.of("/dev/shm"), "fermata-demo-", ".record");
        Thread cleaner = new Thread(() -> cleanUp(file));
        Runtime.getRuntime().addShutdownHook(cleaner);
        Files.write(file, new byte[(int) (OFFSET + DemoRecord.SIZE)]);
        System.out.printf("demo: %s%ndemo: %s, record at offset %d, mode %s%n", Fermata.about(), file, OFFSET, mode);
        try (Arena arena = Arena.ofShared()) {
            DemoRecord record = DemoRecord.map(file, OFFSET, arena);
            record.gate().testAndSet();
            start(file);
            String failure = awaitAtGate(record);
            if (failure == null) {
                long begin = System.nanoTime();
                record.gate().clear();
                watch(record, begin);
                failure = verdict(record, System.nanoTime() - begin);
            }
            if (failure != null) {
                System.out.println("demo: FAIL " + failure);
                return CommandLine.ExitCode.SOFTWARE;
            }
            System.out.printf("demo: PASS total=%d expected=%d%n", record.counter(), expected());
            return CommandLine.ExitCode.OK;
        }
    }

    private void cleanUp(Path file) {
        members.forEach(member -> member.process().destroyForcibly());
        try {
            if (keep) {
                System.out.println("demo: kept " + file);
            } else {
                Files.deleteIfExists(file);
            }
        } catch (IOException e) {
            System.err.println("demo: cannot remove " + file + ": " + e);
        }
    }

    private void start(Path file) throws IOException {
        for (int i = 0; i < JVMS; i++) {
            start(Language.JAVA, THREADS_OF_A_JVM, file);
        }
        start(Language.C, 1, file);
        start(Language.RUST, 1, file);
    }

    private void start(Language language, int threads, Path file) throws IOException {
        var missing = PeerProcess.missing(language);
        if (missing.isPresent()) {
            System.out.println("demo: " + language + " skipped: " + missing.get());
            return;
        }
        List<String> command = PeerProcess.command(language, file, OFFSET, iterations, mode, threads, List.of());
        members.add(new Member(language, threads, new ProcessBuilder(command).redirectErrorStream(true).start()));
    }

    private long expected() {
        return members.stream().mapToLong(Member::threads).sum() * iterations;
    }

    /** Waits until every thread stands at the gate; what went wrong, or {@code null}. */
    private String awaitAtGate(DemoRecord record) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        for (Member member : members) {
            while (member.slots(record).filter(slot -> slot.state() == State.AT_GATE).count() < member.threads()) {
                if (!member.process().isAlive()) {
                    return "%s pid %d ended at start: %s".formatted(member.language(), member.pid(), output(member));
                }
                if (System.nanoTime() > deadline) {
                    return "%s pid %d did not start within %d s".formatted(
                            member.language(), member.pid(), START_SECONDS);
                }
                Thread.sleep(5);
            }
        }
        return null;
    }

    private static String output(Member member) throws IOException {
        return new String(member.process().getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    }

    /** Shows who gets how much until all are done. */
    private void watch(DemoRecord record, long begin) throws InterruptedException {
        boolean first = true;
        while (members.stream().anyMatch(member -> member.process().isAlive())) {
            if (terminal) {
                System.out.print((first ? "" : "\033[" + (members.size() + 2) + "A") + table(record));
            } else {
                System.out.print(line(record, System.nanoTime() - begin));
            }
            System.out.flush();
            first = false;
            for (int i = 0; i < (terminal ? 4 : 20) && members.stream().anyMatch(m -> m.process().isAlive()); i++) {
                Thread.sleep(50);
            }
        }
        if (terminal && !first) {
            System.out.print("\033[" + (members.size() + 2) + "A\033[J");
        }
    }

    private String line(DemoRecord record, long nanos) {
        var line = new StringBuilder("demo: %5.1f s".formatted(nanos / 1e9));
        double total = Math.max(1, members.stream().mapToLong(member -> member.acquisitions(record)).sum());
        for (Member member : members) {
            line.append("  %s:%d %d %.0f%% slow %d".formatted(member.language(), member.pid(),
                    member.acquisitions(record), 100 * member.acquisitions(record) / total, member.contended(record)));
        }
        return line.append(System.lineSeparator()).toString();
    }

    private String table(DemoRecord record) {
        var table = new StringBuilder("%-8s %8s %8s %14s %7s %14s %11s%n".formatted(
                "process", "pid", "threads", "acquisitions", "share", "slow path", "mismatches"));
        double total = Math.max(1, members.stream().mapToLong(member -> member.acquisitions(record)).sum());
        for (Member member : members) {
            table.append("%-8s %8d %8d %,14d %6.1f%% %,14d %11d%n".formatted(member.language(), member.pid(),
                    member.threads(), member.acquisitions(record), 100 * member.acquisitions(record) / total,
                    member.contended(record), member.mismatches(record)));
        }
        return table.append("%-8s %8s %8d %,14d %6s %,15d %11d%n".formatted("all", "",
                members.stream().mapToInt(Member::threads).sum(), (long) total, "",
                members.stream().mapToLong(member -> member.contended(record)).sum(),
                members.stream().mapToLong(member -> member.mismatches(record)).sum())).toString();
    }

    /** What went wrong, or {@code null}. */
    private String verdict(DemoRecord record, long nanos) throws IOException, InterruptedException {
        System.out.print(table(record));
        System.out.printf("demo: %.1f s, %.1f million acquisitions a second%n",
                nanos / 1e9, record.counter() * 1e3 / nanos);
        for (Member member : members) {
            int exit = member.process().waitFor();
            if (exit != 0) {
                return "%s pid %d ended with exit code %d: %s".formatted(
                        member.language(), member.pid(), exit, output(member));
            }
        }
        return record.counter() == expected() ? null
                : "total=%d expected=%d".formatted(record.counter(), expected());
    }
}
