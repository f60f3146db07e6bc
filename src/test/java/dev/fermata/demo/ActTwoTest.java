// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.LockFile;
import dev.fermata.LockInfo;
import dev.fermata.testing.LockPath;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Processes are killed while they hold a named mutex, and the record behind it half written. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ActTwoTest {
    private final ByteArrayOutputStream output = new ByteArrayOutputStream();
    private LockPath place;
    private LockFile file;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.builder(place.file()).label("test").open();
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    private ActTwo act(int kills, Consumer<Halves> repair, long limitSeconds) {
        return new ActTwo(file, kills, repair, limitSeconds, new PrintStream(output, true, StandardCharsets.UTF_8));
    }

    private String play(int kills, Consumer<Halves> repair) throws Exception {
        try (ActTwo act = act(kills, repair, 60)) {
            return act.play();
        }
    }

    @Test
    void theSurvivorRepairsAfterEveryKillAndGoesOn() throws Exception {
        assertNull(play(7, Halves::repair)); // more than are started at a time
        String said = output.toString(StandardCharsets.UTF_8);
        for (int kill = 1; kill <= 7; kill++) {
            assertTrue(said.contains("\"victim " + kill + "\", thread"), said);
            assertTrue(said.contains("died at %d|%d;".formatted(2 * kill, 2 * kill - 1)), said);
        }
        assertTrue(said.contains("7 kills; the record is whole: 14|14"), said);
        LockInfo info = file.info(Halves.LOCK).orElseThrow();
        assertEquals(7, info.recovered());
        assertEquals(21, info.acquisitions());
        assertTrue(info.slept() >= 7, info.toString());
        assertEquals(LockInfo.State.FREE, info.state());
    }

    @Test
    void aRecordThatIsNotRepairedIsAFailure() throws Exception {
        String failure = play(3, halves -> { });
        assertEquals("act two: the record is 2|1 after the repair, found 2|1; expected equal halves", failure);
    }

    @Test
    void aRepairThatCountsAnUpdateTwiceIsAFailure() throws Exception {
        String failure = play(2, halves -> {
            halves.repair();
            halves.update();
        });
        assertEquals("act two: the record is 6|6, expected 4|4", failure);
    }

    @Test
    void aRepairThatThrowsIsAFailure() throws Exception {
        String failure = play(1, halves -> {
            throw new IllegalArgumentException("cannot repair");
        });
        assertTrue(failure.contains("cannot repair"), failure);
    }

    @Test
    void aVictimThatDoesNotComeIsAFailure() throws Exception {
        file.mutex(Halves.LOCK, 128).lock();
        try (ActTwo act = act(1, Halves::repair, 1)) {
            String failure = act.play();
            assertTrue(failure.contains("\"nothing\""), failure);
        } finally {
            file.mutex(Halves.LOCK).unlock();
        }
    }

    @Test
    void closingEndsTheVictims() throws Exception {
        ActTwo act = act(3, halves -> { }, 60);
        act.play(); // fails at the first
        assertTrue(file.participants().size() > 2);
        act.close();
        while (file.participants().size() > 1) {
            Thread.sleep(1);
        }
    }
}
