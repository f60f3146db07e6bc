// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What the kernel is asked for, as strace sees it. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StraceTest {
    private static final Pattern MAPPING = Pattern.compile("mmap\\(.*<([^>]+)>, (\\w+)\\) += (0x[0-9a-f]+)");
    private static final Pattern FUTEX = Pattern.compile("futex\\((0x[0-9a-f]+), (\\w+)");

    @BeforeAll
    static void straceIsThere() {
        assumeTrue(List.of(System.getenv("PATH").split(":")).stream()
                .anyMatch(directory -> Files.isExecutable(Path.of(directory, "strace"))),
                "no strace on the PATH (Debian: apt-get install strace)");
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void withoutContentionThereIsNoFutexCallOnTheFile(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            Path trace = trace(run, language, 10_000);
            run.openGate();
            assertEquals(0, run.await().getFirst().exitCode(), run.await().getFirst().output());
            assertEquals(List.of(), futexOperations(trace, run.file()));
        }
    }

    @ParameterizedTest
    @EnumSource(Language.class)
    void waitersUseTheSharedFutexOnly(Language language) throws Exception {
        try (PeerRun run = new PeerRun()) {
            var mutex = dev.fermata.word.WordMutex.at(run.record().memory(), DemoRecord.LOCK_WORD);
            mutex.lock();
            Path trace = trace(run, language, 1);
            run.openGate();
            while (!mutex.toString().contains("with waiters")) {
                Thread.sleep(1);
            }
            mutex.unlock();
            assertEquals(0, run.await().getFirst().exitCode(), run.await().getFirst().output());
            List<String> operations = futexOperations(trace, run.file());
            assertFalse(operations.isEmpty());
            assertEquals(List.of(), operations.stream().filter(op -> op.contains("PRIVATE")).toList());
        }
    }

    /**
     * Runs a peer of one thread under strace, which writes a file a thread: in one file, calls are cut in two. The gate
     * is open before the peer looks, or it would wait there.
     */
    private static Path trace(PeerRun run, Language language, long iterations) throws IOException {
        run.openGate();
        Path trace = run.file().resolveSibling("trace");
        run.start(List.of("strace", "-ff", "-y", "-e", "trace=mmap,futex,futex_waitv", "-o", trace.toString()),
                language, PeerRun.OFFSET, iterations, Mode.MUTEX, 1);
        return trace;
    }

    /** The operations of all futex calls on addresses within a mapping of the file. */
    private static List<String> futexOperations(Path trace, Path file) throws IOException {
        List<String> lines = new ArrayList<>();
        try (DirectoryStream<Path> threads =
                Files.newDirectoryStream(trace.getParent(), trace.getFileName() + ".*")) {
            for (Path thread : threads) {
                lines.addAll(Files.readAllLines(thread));
            }
        }
        List<Long> bases = lines.stream().map(MAPPING::matcher)
                .filter(m -> m.find() && m.group(1).equals(file.toString()))
                .map(m -> Long.decode(m.group(3))).toList();
        assertFalse(bases.isEmpty(), "the trace shows no mapping of the file");
        return lines.stream().map(FUTEX::matcher).filter(Matcher::find)
                .filter(m -> bases.stream().anyMatch(base -> {
                    long at = Long.decode(m.group(1)) - base;
                    return at >= 0 && at < PeerRun.FILE_SIZE;
                }))
                .map(m -> m.group(2)).toList();
    }
}
