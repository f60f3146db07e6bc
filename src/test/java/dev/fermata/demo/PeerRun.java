// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.testing.ContractLock;
import dev.fermata.word.SpinLock;
import dev.fermata.word.WordMutex;
import dev.fermata.word.WordReadWriteLock;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** Peers on one record in a file of their own; closing ends them and removes the file. */
final class PeerRun implements AutoCloseable {
    static final long OFFSET = 4096;
    static final long FILE_SIZE = OFFSET + DemoRecord.SIZE;

    /** What a peer left behind. */
    record Ended(Language language, int exitCode, String output) {
    }

    private record Started(Language language, Process process, Path output) {
    }

    private final Path directory;
    private Path file;
    private final List<String> jvmOptions;
    private final Arena arena = Arena.ofShared();
    private final DemoRecord record;
    private final List<Started> started = new ArrayList<>();

    PeerRun() throws IOException {
        this(List.of());
    }

    /** The peers in Java get the options for their JVMs. What a JVM writes when it crashes is removed as well. */
    PeerRun(List<String> jvmOptions) throws IOException {
        directory = Files.createTempDirectory(Path.of("/dev/shm"), "fermata-test-");
        file = directory.resolve("record");
        this.jvmOptions = Stream.concat(jvmOptions.stream(), Stream.of(
                "-XX:ErrorFile=" + directory.resolve("hs_err_%p.log"), "-XX:-CreateCoredumpOnCrash")).toList();
        Files.write(file, new byte[(int) FILE_SIZE]);
        record = DemoRecord.map(file, OFFSET, arena);
        record.gate().testAndSet();
    }

    Path file() {
        return file;
    }

    DemoRecord record() {
        return record;
    }

    Process start(Language language, long iterations, Mode mode, int threads) throws IOException {
        return startAt(language, OFFSET, iterations, mode, threads);
    }

    Process startAt(Language language, long offset, long iterations, Mode mode, int threads) throws IOException {
        return start(List.of(), language, offset, iterations, mode, threads);
    }

    /** Starts a peer under another program, such as a tracer. */
    Process start(List<String> under, Language language, long offset, long iterations, Mode mode, int threads)
            throws IOException {
        var missing = PeerProcess.missing(language);
        assumeTrue(missing.isEmpty(), missing.orElse(""));
        List<String> command = new ArrayList<>(under);
        command.addAll(PeerProcess.command(language, file, offset, iterations, mode, threads, jvmOptions));
        Path output = directory.resolve("output-" + started.size());
        Process process = new ProcessBuilder(command)
                .redirectErrorStream(true).redirectOutput(output.toFile()).start();
        started.add(new Started(language, process, output));
        return process;
    }

    /** The word that the peers contend for. */
    static ContractLock lock(DemoRecord record, Mode mode) {
        return switch (mode) {
            case MUTEX -> new ContractLock.Mutex(WordMutex.at(record.memory(), DemoRecord.LOCK_WORD));
            case SPIN -> new ContractLock.Spin(SpinLock.at(record.memory(), DemoRecord.LOCK_WORD));
            case RW -> new ContractLock.Exclusive(WordReadWriteLock.at(record.memory(), DemoRecord.LOCK_WORD));
            case NAMED -> throw new IllegalArgumentException("mode named has no lock word");
        };
    }

    void openGate() {
        record.gate().clear();
    }

    /** Waits until that many threads stand at the gate. */
    void awaitGate(int threads) throws InterruptedException, IOException {
        while (allSlots().filter(slot -> slot.state() == DemoRecord.State.AT_GATE).count() < threads) {
            for (Started peer : started) {
                requireAlive(peer);
            }
            Thread.sleep(1);
        }
    }

    long mismatches() {
        return allSlots().mapToLong(DemoRecord.Slot::mismatches).sum();
    }

    long acquisitions() {
        return allSlots().mapToLong(DemoRecord.Slot::acquisitions).sum();
    }

    long acquisitions(Process process) {
        return slots(process).mapToLong(DemoRecord.Slot::acquisitions).sum();
    }

    /** Renames the file; peers that are started from now on open it by the new name. */
    void rename() throws IOException {
        file = Files.move(file, directory.resolve("renamed"));
    }

    /** SIGKILL. The run is that of the others from now on. */
    void kill(Process process) {
        process.destroyForcibly().onExit().join();
        started.removeIf(peer -> peer.process() == process);
    }

    void truncate() throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            channel.truncate(0);
        }
    }

    /** Waits until every process has got that many acquisitions since this was called. */
    void awaitAcquisitions(long each) throws InterruptedException, IOException {
        Map<Started, Long> before = new HashMap<>();
        started.forEach(peer -> before.put(peer, acquisitions(peer.process())));
        for (Started peer : started) {
            while (acquisitions(peer.process()) < before.get(peer) + each) {
                requireAlive(peer);
                Thread.sleep(1);
            }
        }
    }

    private Stream<DemoRecord.Slot> slots(Process process) {
        return allSlots().filter(slot -> slot.pid() == process.pid());
    }

    private Stream<DemoRecord.Slot> allSlots() {
        return Stream.iterate(0, i -> i < record.slotsUsed(), i -> i + 1).map(record::slot);
    }

    /** Waits until a thread of every process sleeps on the lock word. */
    void awaitAsleep() throws IOException, InterruptedException {
        for (Started peer : started) {
            awaitAsleep(peer.process());
        }
    }

    /** Waits until a thread of the process sleeps on the lock word. */
    void awaitAsleep(Process process) throws IOException, InterruptedException {
        Started peer = started.stream().filter(p -> p.process() == process).findFirst().orElseThrow();
        while (true) {
            requireAlive(peer);
            List<Long> bases = mappings(process.pid()).toList();
            try (Stream<Path> tasks = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
                if (tasks.anyMatch(task -> bases.stream().anyMatch(base -> sleepsOn(task, base)))) {
                    return;
                }
            }
            Thread.sleep(1);
        }
    }

    /** Where the process has mapped the record. */
    private Stream<Long> mappings(long pid) throws IOException {
        return Files.readString(Path.of("/proc/" + pid + "/maps")).lines()
                .filter(line -> line.endsWith(file.toString()))
                .map(line -> line.split(" +"))
                .map(fields -> Long.parseUnsignedLong(fields[0], 0, fields[0].indexOf('-'), 16)
                        + OFFSET - Long.parseUnsignedLong(fields[2], 16));
    }

    private static boolean sleepsOn(Path task, long address) {
        try { // the number of the system call, then its arguments in hexadecimal
            String[] call = Files.readString(task.resolve("syscall")).split(" ");
            return call.length > 1 && call[1].equals("0x" + Long.toHexString(address));
        } catch (IOException endedMeanwhile) {
            return false;
        }
    }

    private static void requireAlive(Started peer) throws IOException {
        if (!peer.process().isAlive()) {
            throw new AssertionError(peer.language() + " ended early: " + Files.readString(peer.output()));
        }
    }

    /** Waits for all to end. */
    List<Ended> await() throws InterruptedException, IOException {
        return await(Duration.ofDays(1));
    }

    /** Waits for all to end; kills those that have not done so in time. */
    List<Ended> await(Duration limit) throws InterruptedException, IOException {
        Instant end = Instant.now().plus(limit);
        List<Ended> ended = new ArrayList<>();
        for (Started peer : started) {
            if (!peer.process().waitFor(Duration.between(Instant.now(), end))) {
                peer.process().destroyForcibly();
            }
            int exitCode = peer.process().waitFor();
            ended.add(new Ended(peer.language(), exitCode,
                    Files.readString(peer.output(), StandardCharsets.UTF_8).strip()));
        }
        return ended;
    }

    @Override
    public void close() throws IOException {
        for (Started peer : started) {
            peer.process().descendants().forEach(ProcessHandle::destroyForcibly);
            peer.process().destroyForcibly().onExit().join();
        }
        arena.close();
        try (Stream<Path> files = Files.list(directory)) {
            for (Path each : files.toList()) {
                Files.delete(each);
            }
        }
        Files.delete(directory);
    }
}
