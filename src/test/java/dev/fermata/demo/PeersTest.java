// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.PeerRun.Ended;
import java.io.IOException;
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
    static Stream<Arguments> pairsOfLanguages() {
        return Stream.of(Mode.values()).flatMap(mode -> Stream.of(Language.values())
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
    @EnumSource(Mode.class)
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
    @EnumSource(Mode.class)
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
}
