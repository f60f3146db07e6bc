// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.PeerRun.Ended;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.ContractLock;
import java.io.IOException;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Processes in several languages on one word. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PeersTest {
    @Retention(RetentionPolicy.RUNTIME)
    @EnumSource(value = Mode.class, names = "NAMED", mode = EnumSource.Mode.EXCLUDE)
    @interface EachModeOfAWord {
    }

    static Stream<Arguments> pairsOfLanguages() {
        return Mode.OF_A_WORD.stream().flatMap(mode -> Stream.of(Language.values())
                .flatMap(one -> Stream.of(Language.values())
                        .filter(other -> one.ordinal() <= other.ordinal())
                        .map(other -> Arguments.of(one, other, mode))));
    }

    @ParameterizedTest(name = "{0} and {1}, {2}")
    @MethodSource("pairsOfLanguages")
    void everyPairOfLanguagesCountsExactlyOnOneWord(Language one, Language other, Mode mode) throws Exception {
        try (PeerRun run = new PeerRun()) {
            run.start(one, 20_000, mode, 2);
            run.start(other, 20_000, mode, 2);
            assertExact(run, 4 * 20_000);
        }
    }

    @ParameterizedTest
    @EachModeOfAWord
    void moreProcessesThanProcessorsCountExactly(Mode mode) throws Exception {
        try (PeerRun run = new PeerRun()) {
            long iterations = mode == Mode.MUTEX ? 60_000 : 15_000;
            for (Language language : Language.values()) {
                run.start(language, iterations, mode, 2);
                run.start(language, iterations, mode, 1);
            }
            assertExact(run, 9 * iterations);
        }
    }

    private static void assertExact(PeerRun run, long expected) throws IOException, InterruptedException {
        run.openGate();
        for (Ended peer : run.await()) {
            assertEquals(0, peer.exitCode(), peer.output());
            assertTrue(peer.output().contains("peer: PASS language=" + peer.language()), peer.output());
        }
        assertEquals(expected, run.record().counter());
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void aPeerNoticesThatSomebodyElseIsInside(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            run.record().setOwnerSlot(4711);
            run.start(language, 1, Mode.MUTEX, 1);
            run.openGate();
            Ended peer = run.await().getFirst();
            assertEquals(1, peer.exitCode(), peer.output());
            assertTrue(peer.output().contains("peer: FAIL"), peer.output());
            assertTrue(peer.output().contains("mismatches=1"), peer.output());
        }
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void aPeerRefusesARecordOfAnotherMode(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            run.record().setMode(Mode.SPIN);
            run.start(language, 1, Mode.MUTEX, 1);
            assertRefused(run, "mode");
        }
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void aPeerRefusesAFileThatIsTooShort(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            run.startAt(language, PeerRun.FILE_SIZE - DemoRecord.SIZE + DemoRecord.ALIGNMENT, 1, Mode.MUTEX, 1);
            assertRefused(run, Long.toString(PeerRun.FILE_SIZE));
        }
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void aPeerRefusesAMisalignedRecord(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            run.startAt(language, 4, 1, Mode.MUTEX, 1);
            assertRefused(run, "multiple of 64");
        }
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void aPeerRefusesMoreThreadsThanSlotsAreLeft(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            run.record().claimSlot(Language.JAVA);
            run.start(language, 1, Mode.MUTEX, DemoRecord.SLOTS);
            assertRefused(run, "slots");
        }
    }

    private static void assertRefused(PeerRun run, String reason) throws IOException, InterruptedException {
        Ended peer = run.await().getFirst();
        assertEquals(2, peer.exitCode(), peer.output());
        assertEquals(1, peer.output().lines().count(), peer.output());
        assertTrue(peer.output().startsWith("peer: ") && peer.output().contains(reason), peer.output());
    }

    @ParameterizedTest
    @EachModeOfAWord
    void aTruncatedFileEndsEveryPeerWithAnError(Mode mode) throws Exception {
        try (PeerRun run = new PeerRun()) {
            for (Language language : Language.values()) {
                run.start(language, Long.MAX_VALUE, mode, 2);
            }
            run.openGate();
            run.awaitAcquisitions(mode == Mode.MUTEX ? 200_000 : 20_000);
            run.truncate();
            for (Ended peer : run.await()) {
                assertEquals(3, peer.exitCode(), peer.language() + ": " + peer.output());
                assertTrue(peer.output().contains("peer: DAMAGED"), peer.output());
            }
        }
    }

    @Test
    void aLockThatAnotherLanguageHoldsIsWaitedForAsleepAndWokenFrom() throws Exception {
        for (Language language : Language.values()) {
            try (PeerRun run = new PeerRun()) {
                var mutex = dev.fermata.word.WordMutex.at(run.record().memory(), DemoRecord.LOCK_WORD);
                mutex.lock();
                Process peer = run.start(language, 1, Mode.MUTEX, 1);
                run.openGate();
                run.awaitAsleep(peer);
                assertTrue(mutex.toString().contains("with waiters"), mutex.toString());
                mutex.unlock();
                assertEquals(List.of(0), run.await().stream().map(Ended::exitCode).toList());
                assertEquals(1, run.record().counter());
            }
        }
    }

    /** Takes the lock of a run, says so, and keeps it for as long as it lives, which is not longer than its parent. */
    static final class Holder {
        public static void main(String[] arguments) throws IOException {
            DemoRecord record = DemoRecord.map(Path.of(arguments[0]), PeerRun.OFFSET, Arena.global());
            PeerRun.lock(record, Mode.valueOf(arguments[1])).lock();
            System.out.println("inside");
            System.in.read();
        }
    }

    /** PROTOCOL.md, section 1: a word held by a dead process stays held. Whoever knows better can release it. */
    @ParameterizedTest
    @EachModeOfAWord
    void aHolderThatIsKilledLeavesTheWordLockedUntilSomebodyElseReleasesIt(Mode mode) throws Exception {
        try (PeerRun run = new PeerRun()) {
            for (Language language : Language.values()) {
                run.start(language, Long.MAX_VALUE, mode, 1);
            }
            run.openGate();
            run.awaitAcquisitions(1000);
            try (ChildJvm holder = ChildJvm.start(Holder.class, List.of(ChildJvm.NATIVE_ACCESS),
                    run.file().toString(), mode.name())) {
                assertEquals("inside", holder.readLine());
                holder.kill();
            }
            run.awaitAsleep();
            long before = run.record().counter();
            ContractLock lock = PeerRun.lock(run.record(), mode);
            assertFalse(lock.tryLock());
            long begin = System.nanoTime();
            assertFalse(lock.tryLock(100, TimeUnit.MILLISECONDS));
            assertTrue(System.nanoTime() - begin >= TimeUnit.MILLISECONDS.toNanos(100));
            assertEquals(before, run.record().counter());

            lock.unlock(); // for the dead
            run.awaitAcquisitions(1000);
            assertTrue(lock.tryLock(60, TimeUnit.SECONDS));
            run.awaitAsleep(); // so all have reported what they did
            assertEquals(run.acquisitions(), run.record().counter());
            assertEquals(0, run.mismatches());
        }
    }

    @ParameterizedTest
    @EachModeOfAWord
    void aPeerThatIsKilledOutsideTheLockTakesNothingWithIt(Mode mode) throws Exception {
        try (PeerRun run = new PeerRun()) {
            long iterations = 50_000;
            Process victim = run.start(Language.JAVA, Long.MAX_VALUE, mode, 1);
            run.awaitGate(1);
            run.openGate();
            run.awaitAcquisitions(100);
            ContractLock lock = PeerRun.lock(run.record(), mode);
            assertTrue(lock.tryLock(60, TimeUnit.SECONDS)); // so it is not the victim that holds it
            for (Language language : Language.values()) {
                run.start(language, iterations, mode, 1);
            }
            long others = Language.values().length * iterations;
            run.awaitAsleep();
            run.kill(victim);
            long ofVictim = run.acquisitions(victim);
            lock.unlock();
            for (Ended peer : run.await()) {
                assertEquals(0, peer.exitCode(), peer.output());
            }
            long unreported = run.record().counter() - others - ofVictim;
            assertTrue(unreported == 0 || unreported == 1, "not reported: " + unreported);
        }
    }

    @ParameterizedTest
    @EachModeOfAWord
    void aFileThatIsRenamedUnderRunningPeersStaysTheSameFile(Mode mode) throws Exception {
        try (PeerRun run = new PeerRun()) {
            for (Language language : Language.values()) {
                run.start(language, 50_000, mode, 1);
            }
            ContractLock lock = PeerRun.lock(run.record(), mode);
            lock.lock();
            run.openGate();
            run.awaitAsleep();
            run.rename();
            for (Language language : Language.values()) {
                run.start(language, 50_000, mode, 1);
            }
            run.awaitAsleep();
            lock.unlock();
            assertExact(run, 6 * 50_000);
        }
    }
}
