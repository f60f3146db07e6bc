// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.LockFile;
import dev.fermata.LockInfo;
import dev.fermata.demo.DemoRecord.Language;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The demo as {@code scripts/demo} runs it, but shorter. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DemoTest {
    private Process demo;
    private BufferedReader output;
    private final List<String> lines = new ArrayList<>();

    private void start(String... arguments) throws IOException {
        List<String> command = PeerProcess.java(List.of("-Xmx128m"), Demo.class);
        command.addAll(List.of(arguments));
        demo = new ProcessBuilder(command).redirectErrorStream(true).start();
        output = demo.inputReader();
    }

    @AfterEach
    void end() throws IOException {
        if (demo.isAlive()) {
            demo.toHandle().destroy(); // it ends its peers
        }
        demo.onExit().join();
    }

    private String awaitLine(String containing) throws IOException {
        for (String line = output.readLine(); line != null; line = output.readLine()) {
            lines.add(line);
            if (line.contains(containing)) {
                return line;
            }
        }
        throw new AssertionError("no line with \"" + containing + "\" in " + String.join("\n", lines));
    }

    private void awaitEnd(int exitCode) throws IOException, InterruptedException {
        output.lines().forEach(lines::add);
        assertEquals(exitCode, demo.waitFor(), String.join("\n", lines));
    }

    private Path file() throws IOException {
        return Path.of(awaitLine("/dev/shm/").substring("demo: ".length()));
    }

    private static void assertNobodyUses(Path file) {
        assertEquals(List.of(), ProcessHandle.allProcesses()
                .filter(process -> process.info().commandLine().orElse("").contains(file.toString())).toList());
    }

    @Test
    void bothActsPassAndLeaveNothing() throws Exception {
        start("--iterations", "2000", "--kills", "2");
        Path file = file();
        awaitEnd(0);
        long threads = 12;
        for (Language language : List.of(Language.C, Language.RUST)) {
            threads += PeerProcess.missing(language).isEmpty() ? 1 : 0;
        }
        assertEquals("demo: PASS total=%1$d expected=%1$d".formatted(2000 * threads), lines.getLast());
        assertEquals(2, lines.stream().filter(line -> line.contains("died at")).count());
        assertEquals(3, lines.stream().filter(line -> line.startsWith("named ")).count());
        assertFalse(Files.exists(file));
        assertNobodyUses(file);
    }

    @Test
    void aFileThatIsKeptHasItsLocksAndNoParticipants() throws Exception {
        start("--iterations", "100", "--kills", "1", "--mode", "rw", "--keep");
        Path file = file();
        try {
            awaitEnd(0);
            assertEquals("demo: kept " + file, lines.getLast());
            try (LockFile kept = LockFile.builder(file).readOnly().open()) {
                assertEquals(List.of(), kept.participants());
                assertEquals(1, kept.info(Halves.LOCK).orElseThrow().recovered());
                assertEquals(600, kept.info("named record").orElseThrow().acquisitions());
                assertEquals(LockInfo.State.FREE, kept.info("word record").orElseThrow().state());
            }
        } finally {
            Files.deleteIfExists(file);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"named ", "died at"})
    void aDemoThatIsBrokenOffLeavesNothing(String when) throws Exception {
        start("--iterations", when.equals("named ") ? "1000000000000" : "100", "--kills", "1000");
        Path file = file();
        awaitLine(when);
        demo.toHandle().destroy(); // SIGTERM; destroy() would close the output, too
        awaitEnd(128 + 15);
        assertFalse(Files.exists(file));
        assertNobodyUses(file);
    }

    @Test
    void aModeThatIsNotOneOfAWordIsRefused() throws Exception {
        start("--mode", "named");
        awaitEnd(2);
        assertTrue(lines.getLast().contains("[mutex, spin, rw]"), lines.getLast());
    }
}
