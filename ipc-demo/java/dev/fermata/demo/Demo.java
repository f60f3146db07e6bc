// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.Fermata;
import dev.fermata.LockFile;
import dev.fermata.LockInfo;
import dev.fermata.SharedMutex;
import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.DemoRecord.Slot;
import dev.fermata.demo.DemoRecord.State;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * The main job on real input, in one lock file. Act one: JVMs, a C and a Rust program contend for one word, further
 * JVMs for a named mutex, and the sums must be exact. Act two: {@link ActTwo}.
 */
@Command(name = "demo", mixinStandardHelpOptions = true,
        description = "One lock file. Act one: 3 JVMs with 2 threads each, a C and a Rust process on a lock word, 3"
                + " more JVMs on a named mutex. Act two: JVMs are killed while they hold a named mutex, and a survivor"
                + " goes on.")
public final class Demo implements Callable<Integer> {
    private static final int JVMS = 3;
    private static final int THREADS_OF_A_JVM = 2;
    private static final long START_SECONDS = 60;
    private static final long STEP_SECONDS = 20;

    @Option(names = "--iterations", defaultValue = "2000000",
            description = "Acquisitions of each thread; default ${DEFAULT-VALUE}.")
    private long iterations;

    @Option(names = "--mode", defaultValue = "mutex",
            description = "What the lock word is: mutex, spin or rw; default ${DEFAULT-VALUE}.")
    private Mode mode;

    @Option(names = "--kills", defaultValue = "20", description = "JVMs killed in act two; default ${DEFAULT-VALUE}.")
    private int kills;

    @Option(names = "--keep", description = "Keep the file.")
    private boolean keep;

    private final List<Member> members = new CopyOnWriteArrayList<>();
    private final boolean terminal = System.console() != null && System.console().isTerminal();
    private volatile ActTwo actTwo;
    private boolean ending;

    /** A record, and how the lock is taken that protects it. */
    private record Contest(SharedMutex mutex, DemoRecord record, Mode mode) {
        static Contest on(LockFile locks, String name, Mode mode) {
            SharedMutex mutex = locks.mutex(name, DemoRecord.SIZE);
            DemoRecord record = DemoRecord.of(mutex);
            record.gate().testAndSet();
            return new Contest(mutex, record, mode);
        }
    }

    /** One process of act one. */
    private record Member(Language language, int threads, Contest contest, Process process) {
        long pid() {
            return process.pid();
        }

        Stream<Slot> slots() {
            DemoRecord record = contest.record();
            return Stream.iterate(0, i -> i < Math.min(record.slotsUsed(), DemoRecord.SLOTS), i -> i + 1)
                    .map(record::slot).filter(slot -> slot.pid() == pid());
        }

        long acquisitions() {
            return slots().mapToLong(Slot::acquisitions).sum();
        }

        long contended() {
            return slots().mapToLong(Slot::contended).sum();
        }

        long mismatches() {
            return slots().mapToLong(Slot::mismatches).sum();
        }
    }

    public static void main(String[] args) {
        System.exit(new CommandLine(new Demo()).setCaseInsensitiveEnumValuesAllowed(true).execute(args));
    }

    @Override
    public Integer call() throws IOException, InterruptedException {
        if (iterations < 1 || kills < 1 || !Mode.OF_A_WORD.contains(mode)) {
            System.err.printf("demo: --iterations and --kills must be 1 or more, --mode one of %s; found %d, %d, %s%n",
                    Mode.OF_A_WORD, iterations, kills, mode);
            return CommandLine.ExitCode.USAGE;
        }
        Path file = Files.createTempFile(Path.of("/dev/shm"), "fermata-demo-", ".locks"); // an empty one is made whole
        Runtime.getRuntime().addShutdownHook(new Thread(() -> cleanUp(file)));
        try (LockFile locks = LockFile.builder(file).capacity(8).payload(4 * DemoRecord.SIZE).label("demo").open()) {
            Contest word = Contest.on(locks, "word record", mode);
            Contest named = Contest.on(locks, "named record", Mode.NAMED);
            System.out.printf("demo: %s%n", Fermata.about());
            System.out.printf("demo: %s%n", file);
            System.out.printf("demo: act one: a lock word, mode %s, at offset %d, and lock \"%s\"%n",
                    mode, word.mutex().payloadOffset(), named.mutex().name());
            String failure = actOne(file, word, named);
            if (failure == null) {
                actTwo = new ActTwo(locks, kills, Halves::repair, STEP_SECONDS, System.out);
                failure = actTwo.play();
            }
            if (failure != null) {
                System.out.println("demo: FAIL " + failure);
                return CommandLine.ExitCode.SOFTWARE;
            }
            System.out.printf("demo: PASS total=%d expected=%d%n",
                    word.record().counter() + named.record().counter(), expected(word) + expected(named));
            return CommandLine.ExitCode.OK;
        }
    }

    private void cleanUp(Path file) {
        synchronized (this) {
            ending = true; // starts nothing more
        }
        members.forEach(member -> member.process().destroyForcibly().onExit().join());
        if (actTwo != null) {
            actTwo.close();
        }
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

    // ---- act one ----

    /** What went wrong, or {@code null}. */
    private String actOne(Path file, Contest word, Contest named) throws IOException, InterruptedException {
        for (int i = 0; i < JVMS; i++) {
            start(Language.JAVA, THREADS_OF_A_JVM, word, file);
        }
        start(Language.C, 1, word, file);
        start(Language.RUST, 1, word, file);
        for (int i = 0; i < JVMS; i++) {
            start(Language.JAVA, THREADS_OF_A_JVM, named, file);
        }
        String failure = awaitAtGate();
        if (failure != null) {
            return failure;
        }
        long begin = System.nanoTime();
        word.record().gate().clear();
        named.record().gate().clear();
        watch(begin);
        return verdict(word, named, System.nanoTime() - begin);
    }

    private synchronized void start(Language language, int threads, Contest contest, Path file) throws IOException {
        if (ending) {
            return;
        }
        var missing = PeerProcess.missing(language);
        if (missing.isPresent()) {
            System.out.println("demo: " + language + " skipped: " + missing.get());
            return;
        }
        long offset = contest.mutex().payloadOffset();
        List<String> command = contest.mode() == Mode.NAMED
                ? PeerProcess.named(file, contest.mutex().name(), offset, iterations, threads, List.of())
                : PeerProcess.command(language, file, offset, iterations, contest.mode(), threads, List.of());
        members.add(new Member(
                language, threads, contest, new ProcessBuilder(command).redirectErrorStream(true).start()));
    }

    private long expected(Contest contest) {
        return members.stream().filter(member -> member.contest() == contest).mapToLong(Member::threads).sum()
                * iterations;
    }

    /** Waits until every thread stands at the gate; what went wrong, or {@code null}. */
    private String awaitAtGate() throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        for (Member member : members) {
            while (member.slots().filter(slot -> slot.state() == State.AT_GATE).count() < member.threads()) {
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
    private void watch(long begin) throws InterruptedException {
        boolean first = true;
        while (members.stream().anyMatch(member -> member.process().isAlive())) {
            if (terminal) {
                System.out.print((first ? "" : "\033[" + (members.size() + 2) + "A") + table());
            } else {
                System.out.print(line(System.nanoTime() - begin));
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

    private String line(long nanos) {
        var line = new StringBuilder("demo: %5.1f s".formatted(nanos / 1e9));
        double total = Math.max(1, members.stream().mapToLong(Member::acquisitions).sum());
        for (Member member : members) {
            line.append("  %s %s:%d %d %.0f%% slow %d".formatted(member.contest().mode(), member.language(),
                    member.pid(), member.acquisitions(), 100 * member.acquisitions() / total, member.contended()));
        }
        return line.append(System.lineSeparator()).toString();
    }

    private String table() {
        var table = new StringBuilder("%-6s %-8s %8s %8s %14s %7s %14s %11s%n".formatted(
                "lock", "process", "pid", "threads", "acquisitions", "share", "slow path", "mismatches"));
        double total = Math.max(1, members.stream().mapToLong(Member::acquisitions).sum());
        for (Member member : members) {
            table.append("%-6s %-8s %8d %8d %,14d %6.1f%% %,14d %11d%n".formatted(member.contest().mode(),
                    member.language(), member.pid(), member.threads(), member.acquisitions(),
                    100 * member.acquisitions() / total, member.contended(), member.mismatches()));
        }
        return table.append("%-6s %-8s %8s %8d %,14d %7s %,14d %11d%n".formatted("both", "all", "",
                members.stream().mapToInt(Member::threads).sum(), (long) total, "",
                members.stream().mapToLong(Member::contended).sum(),
                members.stream().mapToLong(Member::mismatches).sum())).toString();
    }

    /** What went wrong, or {@code null}. */
    private String verdict(Contest word, Contest named, long nanos) throws IOException, InterruptedException {
        long total = word.record().counter() + named.record().counter();
        LockInfo info = named.mutex().info();
        System.out.print(table());
        System.out.printf("demo: %.1f s, %.1f million acquisitions a second%n", nanos / 1e9, total * 1e3 / nanos);
        System.out.printf("demo: lock \"%s\" was waited for %,d times, asleep %,d times, at most for %.1f ms%n",
                info.name(), info.contended(), info.slept(), info.longestWait().toNanos() / 1e6);
        for (Member member : members) {
            int exit = member.process().waitFor();
            if (exit != 0) {
                return "%s pid %d ended with exit code %d: %s".formatted(
                        member.language(), member.pid(), exit, output(member));
            }
        }
        for (Contest contest : List.of(word, named)) {
            if (contest.record().counter() != expected(contest)) {
                return "total=%d expected=%d in mode %s".formatted(
                        contest.record().counter(), expected(contest), contest.mode());
            }
        }
        return info.acquisitions() == expected(named) ? null
                : "lock \"%s\" counts %d acquisitions, expected %d".formatted(
                        info.name(), info.acquisitions(), expected(named));
    }
}
