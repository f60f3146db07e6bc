// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.LockFile;
import dev.fermata.LockInfo;
import dev.fermata.Participant;
import dev.fermata.SharedMutex;
import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.DemoRecord.Slot;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.LockPath;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Peers on a named mutex, and those of all languages on a word, in the payloads of one lock file. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class NamedPeersTest {
    private static final String NAMED = "named record";
    /** A longer one lies before its payload, which then begins in the middle of a page. */
    private static final String WORD = "a record with a lock word in its payload";

    private record Started(Process process, Path output) {
    }

    private LockPath place;
    private LockFile file;
    private SharedMutex named;
    private DemoRecord record;
    private final List<Started> started = new ArrayList<>();

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.builder(place.file()).label("test").open();
        named = file.mutex(NAMED, DemoRecord.SIZE);
        record = DemoRecord.of(named);
        record.gate().testAndSet();
    }

    @AfterEach
    void close() throws Exception {
        for (Started peer : started) {
            peer.process().destroyForcibly().onExit().join();
        }
        file.close();
        place.close();
    }

    private Process start(List<String> command) throws IOException {
        Path output = place.directory().resolve("output-" + started.size());
        Process process = new ProcessBuilder(command)
                .redirectErrorStream(true).redirectOutput(output.toFile()).start();
        started.add(new Started(process, output));
        return process;
    }

    private Process start(Language language, long offset, long iterations, Mode mode, int threads)
            throws IOException {
        var missing = PeerProcess.missing(language);
        assumeTrue(missing.isEmpty(), missing.orElse(""));
        return start(PeerProcess.command(language, place.file(), offset, iterations, mode, threads, List.of()));
    }

    private Process startNamed(long iterations, int threads) throws IOException {
        return start(PeerProcess.named(
                place.file(), NAMED, named.payloadOffset(), iterations, threads, List.of()));
    }

    private Stream<Slot> slots() {
        return IntStream.range(0, record.slotsUsed()).mapToObj(record::slot);
    }

    private long acquisitions(Process process) {
        return slots().filter(slot -> slot.pid() == process.pid()).mapToLong(Slot::acquisitions).sum();
    }

    private void awaitAcquisitions(Process process, long more) throws Exception {
        long enough = acquisitions(process) + more;
        while (acquisitions(process) < enough) {
            assertTrue(process.isAlive(), "a peer ended early");
            Thread.sleep(1);
        }
    }

    private String end(int index, int exitCode) throws Exception {
        Started peer = started.get(index);
        int found = peer.process().waitFor();
        String output = Files.readString(peer.output()).strip();
        assertEquals(exitCode, found, output);
        return output;
    }

    @Test
    void peersCountExactlyUnderANamedMutex() throws Exception {
        for (int i = 0; i < 3; i++) {
            startNamed(20_000, 2);
        }
        record.gate().clear();
        for (int i = 0; i < 3; i++) {
            String output = end(i, 0);
            assertTrue(output.contains("peer: PASS language=java threads=2 acquisitions=40000"), output);
        }
        assertEquals(120_000, record.counter());
        assertEquals(120_000, named.info().acquisitions());
        assertEquals(LockInfo.State.FREE, named.info().state());
        assertEquals(List.of("test"), file.participants().stream().map(Participant::label).toList());
    }

    @ParameterizedTest
    @EnumSource(value = Mode.class, names = "NAMED", mode = EnumSource.Mode.EXCLUDE)
    void allLanguagesCountExactlyOnAWordInAPayloadBesideTheNamedMutex(Mode mode) throws Exception {
        SharedMutex owner = file.mutex(WORD, DemoRecord.SIZE);
        DemoRecord word = DemoRecord.of(owner);
        word.gate().testAndSet();
        long expected = 0;
        for (Language language : Language.values()) {
            start(language, owner.payloadOffset(), 20_000, mode, 2);
            expected += 2 * 20_000;
        }
        startNamed(20_000, 2);
        word.gate().clear();
        record.gate().clear();
        for (int i = 0; i < started.size(); i++) {
            end(i, 0);
        }
        assertEquals(expected, word.counter());
        assertEquals(40_000, record.counter());
        assertEquals(0, owner.info().acquisitions());
    }

    @Test
    void aPeerNoticesThatSomebodyElseIsInside() throws Exception {
        record.setOwnerSlot(4711);
        startNamed(1, 1);
        record.gate().clear();
        String output = end(0, 1);
        assertTrue(output.contains("peer: FAIL") && output.contains("mismatches=1"), output);
    }

    @Test
    void aPeerWaitsForTheMutexAndIsCountedAsContended() throws Exception {
        named.lock();
        startNamed(1, 1);
        record.gate().clear();
        while (slots().noneMatch(slot -> slot.state() == DemoRecord.State.RUNNING)) {
            Thread.sleep(1);
        }
        Thread.sleep(100);
        assertEquals(0, record.counter());
        named.unlock();
        String output = end(0, 0);
        assertTrue(output.contains("contended=1"), output);
        assertEquals(1, record.counter());
    }

    @Test
    void peersThatAreKilledAnywhereAreRepairedAfter() throws Exception {
        for (int i = 0; i < 2; i++) {
            startNamed(Long.MAX_VALUE, 2);
        }
        record.gate().clear();
        Process survivor = started.get(0).process();
        Process victim = started.get(1).process();
        int kills = 10;
        for (int kill = 0; kill < kills; kill++) {
            awaitAcquisitions(victim, 1_000);
            victim.destroyForcibly().onExit().join();
            awaitAcquisitions(survivor, 1_000);
            victim = startNamed(Long.MAX_VALUE, 2);
        }
        named.lock();
        try {
            assertEquals(0, slots().mapToLong(Slot::mismatches).sum());
            long unreported = record.counter() - slots().mapToLong(Slot::acquisitions).sum();
            long threads = 2 * (kills + 2); // each can be between the two
            assertTrue(unreported >= 0 && unreported <= threads, "not reported: " + unreported);
        } finally {
            named.unlock();
        }
    }

    /** Takes the named mutex, leaves its mark inside, says so, and lives no longer than its parent. */
    static final class Holder {
        public static void main(String[] arguments) throws IOException {
            SharedMutex mutex = LockFile.open(Path.of(arguments[0])).mutex(NAMED);
            mutex.lock();
            DemoRecord.of(mutex).setOwnerSlot(4711);
            System.out.println("inside");
            System.in.read();
        }
    }

    @Test
    void whoIsToldOfADeathInsideClearsTheOwnerSlot() throws Exception {
        try (ChildJvm holder = ChildJvm.start(
                Holder.class, List.of(ChildJvm.NATIVE_ACCESS), place.file().toString())) {
            assertEquals("inside", holder.readLine());
            startNamed(1_000, 2);
            record.gate().clear();
            while (slots().filter(slot -> slot.state() == DemoRecord.State.RUNNING).count() < 2) {
                Thread.sleep(1);
            }
            Thread.sleep(100);
            assertEquals(0, record.counter());
            holder.kill();
            end(0, 0);
            assertEquals(2_000, record.counter());
            assertEquals(1, named.info().recovered());
        }
    }

    private void assertRefused(Process peer, String reason) throws Exception {
        assertEquals(peer, started.getLast().process());
        String output = end(started.size() - 1, 2);
        assertEquals(1, output.lines().count(), output);
        assertTrue(output.startsWith("peer: ") && output.contains(reason), output);
        assertEquals(0, record.slotsUsed());
    }

    private Process start(Path path, String lock, long offset) throws IOException {
        return start(PeerProcess.named(path, lock, offset, 1, 1, List.of()));
    }

    @Test
    void aPeerRefusesWhatIsNotARecordBehindANamedMutex() throws Exception {
        long offset = named.payloadOffset();
        file.mutex("small", 64);
        file.mutex("without");
        Path plain = Files.write(place.directory().resolve("plain"), new byte[8192]);
        Path absent = place.directory().resolve("absent");
        assertRefused(start(place.file(), "absent", offset), "no lock \"absent\"");
        assertRefused(start(place.file(), "", offset), "0 bytes");
        assertRefused(start(place.file(), "small", offset), "64 bytes of payload");
        assertRefused(start(place.file(), "without", offset), "0 bytes of payload");
        assertRefused(start(place.file(), NAMED, offset + 64), "expected " + offset);
        assertRefused(start(plain, NAMED, offset), plain.toString());
        assertRefused(start(absent, NAMED, offset), absent.toString());
    }

    @Test
    void aNameAndTheModeGoTogether() throws Exception {
        long offset = named.payloadOffset();
        assertRefused(start(Language.JAVA, offset, 1, Mode.NAMED, 1), "without --lock");
        List<String> both = PeerProcess.command(Language.JAVA, place.file(), offset, 1, Mode.SPIN, 1, List.of());
        both.addAll(List.of("--lock", NAMED));
        assertRefused(start(both), "--mode spin");
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void aPeerOnAWordRefusesTheRecordOfANamedMutex(Language language) throws Exception {
        record.setMode(Mode.NAMED);
        assertRefused(start(language, named.payloadOffset(), 1, Mode.MUTEX, 1), "4");
    }

    @Test
    void aPeerOnANamedMutexRefusesTheRecordOfAWord() throws Exception {
        record.setMode(Mode.MUTEX);
        assertRefused(start(place.file(), NAMED, named.payloadOffset()), "mode");
    }

    @Test
    void aTruncatedFileEndsEveryPeerWithAnError() throws Exception {
        for (int i = 0; i < 2; i++) {
            startNamed(Long.MAX_VALUE, 2);
        }
        record.gate().clear();
        for (Started peer : started) {
            awaitAcquisitions(peer.process(), 200_000);
        }
        try (FileChannel channel = FileChannel.open(place.file(), StandardOpenOption.WRITE)) {
            channel.truncate(0);
        }
        for (int i = 0; i < started.size(); i++) {
            String output = end(i, 3);
            assertTrue(output.contains("peer: DAMAGED"), output);
        }
    }
}
