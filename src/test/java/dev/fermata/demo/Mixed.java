// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.DemoRecord.Slot;
import dev.fermata.demo.MixedMember.Count;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.LockPath;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * All ways to wait at once, on one lock file: platform threads, virtual threads and requests of 3 JVMs on named mutexes,
 * with time-outs, interrupts and cancellations; further threads of theirs, and a C and a Rust program, on a word; run by
 * {@code scripts/stress --mixed}.
 */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Platform threads, virtual threads and requests of 3 JVMs, a C and a Rust program on one lock file.")
public final class Mixed implements Callable<Integer> {
    private static final int JVMS = 3;
    /** Into how many processes, one after the other, the work of a C or Rust peer is cut; slots are limited. */
    private static final int TURNS = 20;
    /** How many seconds a JVM may take for a step: to start, or to come to an end. */
    private static final long LIMIT = 90;

    @Option(names = "--mixed", required = true, arity = "0..1", fallbackValue = "60", paramLabel = "SECONDS",
            description = "For how long; default ${FALLBACK-VALUE}.")
    private int seconds;

    @Option(names = "--symmetric", description = "A symmetric file.")
    private boolean symmetric;

    @Option(names = "--seed", description = "Of the random choices.")
    private long seed = System.nanoTime();

    private final Map<Count, Long> counts = new EnumMap<>(Count.class);
    private final long[] updates = new long[MixedMember.LOCKS];
    private long lost;

    public static void main(String[] args) {
        System.exit(new CommandLine(new Mixed()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        for (Count count : Count.values()) {
            counts.put(count, 0L);
        }
        List<Jvm> jvms = new ArrayList<>();
        List<Peer> peers = new ArrayList<>();
        long word;
        try (LockPath place = LockPath.create()) {
            LockFile.Builder builder = LockFile.builder(place.file()).label("stress")
                    .payload(MixedMember.LOCKS * MixedMember.RECORD + DemoRecord.SIZE);
            try (LockFile file = (symmetric ? builder.symmetric() : builder).open()) {
                List<SharedMutex> mutexes = MixedMember.mutexes(file);
                SharedMutex behind = file.mutex(MixedMember.WORD, DemoRecord.SIZE);
                DemoRecord record = DemoRecord.of(behind);
                record.setMode(Mode.MUTEX);
                record.gate().testAndSet();
                for (int i = 0; i < JVMS; i++) {
                    jvms.add(new Jvm(place.file(), i, seed + i));
                }
                for (Language language : List.of(Language.C, Language.RUST)) {
                    PeerProcess.missing(language).ifPresentOrElse(
                            why -> System.out.println("stress: " + language + " left out: " + why),
                            () -> peers.add(new Peer(language, place.file(), behind.payloadOffset(), record)));
                }
                for (Jvm jvm : jvms) {
                    jvm.ask("start");
                }
                record.gate().clear();
                run(jvms, peers);
                for (Jvm jvm : jvms) {
                    jvm.tell("stop");
                }
                for (Jvm jvm : jvms) {
                    jvm.await("stop");
                }
                for (Peer peer : peers) {
                    peer.finish();
                }
                for (Jvm jvm : jvms) {
                    jvm.ask("check");
                }
                verify(mutexes);
                word = verify(record);
                for (Jvm jvm : jvms) {
                    jvm.tell("end");
                    jvm.awaitEnd();
                }
            } finally {
                jvms.forEach(Jvm::close);
                peers.forEach(Peer::close);
            }
        } catch (StalledException stalled) {
            System.out.println("stress: FAIL " + stalled.getMessage());
            return CommandLine.ExitCode.SOFTWARE;
        }
        boolean pass = lost == 0 && Stream.of(Count.DOUBLES, Count.STALLS, Count.BROKEN).allMatch(c -> counts.get(c) == 0);
        long platform = counts.get(Count.PLATFORM);
        long virtual = counts.get(Count.VIRTUAL);
        long async = counts.get(Count.ASYNC);
        System.out.printf("stress: %s acquisitions=%d word=%d platform=%d virtual=%d async=%d timeouts=%d interrupts=%d"
                + " cancels=%d lost=%d doubles=%d stalls=%d%s%n", pass ? "PASS" : "FAIL", word + platform + virtual + async,
                word, platform, virtual, async, counts.get(Count.TIMEOUTS), counts.get(Count.INTERRUPTS),
                counts.get(Count.CANCELS), lost, counts.get(Count.DOUBLES), counts.get(Count.STALLS),
                pass ? "" : " broken=" + counts.get(Count.BROKEN) + " seed=" + seed);
        return pass ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }

    /** Nothing more is to be expected. */
    private static final class StalledException extends Exception {
        private static final long serialVersionUID = 1L;

        StalledException(String message) {
            super(message);
        }
    }

    private void run(List<Jvm> jvms, List<Peer> peers) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (System.nanoTime() - end < 0) {
            for (Peer peer : peers) {
                peer.look();
            }
            for (Jvm jvm : jvms) {
                if (!jvm.child.process().isAlive()) {
                    throw new StalledException("pid " + jvm.child.pid() + " ended by itself");
                }
            }
            Thread.sleep(20);
        }
    }

    private void count(String[] line) {
        int i = 0;
        for (Count count : Count.values()) {
            counts.merge(count, Long.parseLong(line[i++]), Long::sum);
        }
        for (int lock = 0; lock < MixedMember.LOCKS; lock++) {
            updates[lock] += Long.parseLong(line[i++]);
        }
    }

    private void add(Count what, long n) {
        counts.merge(what, n, Long::sum);
    }

    /** As many updates in each record as were counted; nobody has died. */
    private void verify(List<SharedMutex> mutexes) {
        for (int i = 0; i < MixedMember.LOCKS; i++) {
            SharedMutex mutex = mutexes.get(i);
            if (!mutex.tryLock()) {
                add(Count.STALLS, 1);
                System.out.println("stress: stalled: not to be had in the end: " + mutex);
                continue;
            }
            MemorySegment record = mutex.payload();
            long off = Math.abs(record.get(JAVA_LONG, MixedMember.FIRST) - updates[i])
                    + Math.abs(record.get(JAVA_LONG, MixedMember.SECOND) - updates[i]);
            if (off != 0 || mutex.info().recovered() != 0) {
                lost += off + mutex.info().recovered();
                System.out.printf("stress: %d, %d in the record, %d counted: %s%n", record.get(JAVA_LONG,
                        MixedMember.FIRST), record.get(JAVA_LONG, MixedMember.SECOND), updates[i], mutex);
            }
            mutex.unlock();
        }
    }

    /** The same of the word; how many updates. */
    private long verify(DemoRecord record) {
        Map<Integer, Long> of = new TreeMap<>();
        long sum = 0;
        for (int i = 0; i < record.slotsUsed(); i++) {
            Slot slot = record.slot(i);
            sum += slot.acquisitions();
            add(Count.DOUBLES, slot.mismatches());
            int language = record.memory().get(JAVA_INT, DemoRecord.SLOT + i * DemoRecord.SLOT_SIZE + 4);
            of.merge(language, slot.acquisitions(), Long::sum);
        }
        lost += Math.abs(record.counter() - sum);
        System.out.printf("stress: the word: java %d, c %d, rust %d%n", of.getOrDefault(Language.JAVA.code(), 0L),
                of.getOrDefault(Language.C.code(), 0L), of.getOrDefault(Language.RUST.code(), 0L));
        return sum;
    }

    // ---- processes ----

    /** One of the JVMs; what it says beside its answers is shown. */
    private final class Jvm {
        private final ChildJvm child;
        private final BlockingQueue<String> answers = new LinkedBlockingQueue<>();
        private final Thread reader;

        Jvm(Path file, int number, long seed) throws IOException {
            List<String> options = new ArrayList<>(List.of(ChildJvm.NATIVE_ACCESS,
                    "-Ddev.fermata.native=" + System.getProperty("dev.fermata.native", "ffm")));
            if (number > 0) { // one with C1 only, the others with both compilers
                options.add("-XX:TieredStopAtLevel=4");
            }
            child = ChildJvm.start(MixedMember.class, options, file.toString(), Long.toString(seed));
            reader = Thread.ofVirtual().start(this::read);
        }

        private void read() {
            try (var lines = child.process().inputReader()) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (line.startsWith("> ")) {
                        answers.add(line.substring(2));
                    } else {
                        System.out.println("stress: pid " + child.pid() + ": " + line);
                    }
                }
            } catch (IOException closed) {
                System.out.println("stress: pid " + child.pid() + ": " + closed);
            }
        }

        void tell(String step) throws IOException {
            child.send(step);
        }

        void ask(String step) throws Exception {
            tell(step);
            await(step);
        }

        void await(String step) throws Exception {
            while (true) {
                String answer = answers.poll(LIMIT, TimeUnit.SECONDS);
                if (answer == null) {
                    throw new StalledException(
                            "no answer to " + step + " of pid " + child.pid() + " within " + LIMIT + " s");
                } else if (answer.equals(step)) {
                    return;
                } else {
                    count(answer.substring("counts ".length()).split(" "));
                }
            }
        }

        void awaitEnd() throws Exception {
            if (!child.process().waitFor(LIMIT, TimeUnit.SECONDS) || child.process().exitValue() != 0) {
                throw new StalledException("pid " + child.pid() + " did not end, or not well");
            }
            reader.join();
        }

        void close() {
            child.close();
        }
    }

    /** The processes of a language that contend for the word, one after the other. */
    private final class Peer {
        private final Language language;
        private final Path file;
        private final long offset;
        private final DemoRecord record;
        private long iterations = 20_000;
        private long started;
        private Process process; // or null
        private long acquisitions; // of the process, when it was seen last
        private long moved;

        Peer(Language language, Path file, long offset, DemoRecord record) {
            this.language = language;
            this.file = file;
            this.offset = offset;
            this.record = record;
        }

        /** Starts the next one if it is time; each is to take half of its turn, as processors are for the others, too. */
        void look() throws Exception {
            if (process != null && process.isAlive()) {
                watch();
                return;
            }
            long turn = TimeUnit.SECONDS.toNanos(seconds) / TURNS;
            if (process != null) {
                end();
                double factor = Math.min(turn / 2.0 / (System.nanoTime() - started), 8);
                iterations = Math.clamp((long) (iterations * factor), 1000, 100_000_000);
            }
            if ((started == 0 || System.nanoTime() - started > turn) && record.slotsLeft() > JVMS) {
                process = new ProcessBuilder(PeerProcess.command(
                        language, file, offset, iterations, Mode.MUTEX, 1, List.of())).redirectErrorStream(true).start();
                started = System.nanoTime();
                moved = started;
                acquisitions = 0;
            }
        }

        private long acquisitions() {
            return Stream.iterate(0, i -> i < Math.min(record.slotsUsed(), DemoRecord.SLOTS), i -> i + 1)
                    .map(record::slot).filter(slot -> slot.pid() == process.pid()).mapToLong(Slot::acquisitions).sum();
        }

        private void watch() throws StalledException {
            long now = acquisitions();
            if (now != acquisitions) {
                acquisitions = now;
                moved = System.nanoTime();
            } else if (System.nanoTime() - moved > MixedMember.STALL) {
                throw new StalledException("stalled: " + language + " waits for the word since acquisition " + now);
            }
        }

        private void end() throws IOException {
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
            if (process.exitValue() != 0) {
                add(Count.BROKEN, 1);
                System.out.println("stress: " + language + " ended with " + process.exitValue() + ": " + output);
            }
            lost += Math.abs(iterations - acquisitions());
            process = null;
        }

        void finish() throws Exception {
            while (process != null && process.isAlive()) {
                watch();
                Thread.sleep(20);
            }
            if (process != null) {
                end();
            }
        }

        void close() {
            if (process != null) {
                process.destroyForcibly().onExit().join();
            }
        }
    }
}
