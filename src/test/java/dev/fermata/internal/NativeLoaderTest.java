// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static dev.fermata.testing.ChildJvm.NATIVE_ACCESS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.Fermata;
import dev.fermata.LockFile;
import dev.fermata.testing.ChildJvm;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.WatchKey;
import java.nio.file.WatchService;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class NativeLoaderTest {
    private static final String FROM_THE_JAR = "Fermata: shim from the jar's /META-INF/native/linux-";
    private static final String IN_MEMORY = "mapped: /memfd:libfermata.so";
    private static final String LIBC = "Fermata: libc's syscall and Thread.onSpinWait (";

    @TempDir
    Path directory;

    @TempDir
    Path other;

    /** Prints what was found, and the file that the shim is mapped from. */
    static final class About {
        public static void main(String[] arguments) throws IOException {
            System.out.println(Fermata.about());
            try (Stream<String> mappings = Files.lines(Path.of("/proc/self/maps"))) {
                mappings.filter(mapping -> mapping.contains("libfermata.so"))
                        .map(mapping -> "mapped: " + mapping.substring(mapping.indexOf('/'))).distinct()
                        .forEach(System.out::println);
            }
        }
    }

    /** Opens a lock file. */
    static final class Opening {
        public static void main(String[] arguments) throws IOException {
            LockFile.open(Path.of(arguments[0])).close();
        }
    }

    private static String about(String... options) throws Exception {
        ChildJvm.End end = ChildJvm.run(About.class, Stream.concat(
                Stream.of(NATIVE_ACCESS), Arrays.stream(options)).toList());
        assertEquals(0, end.code(), end.output());
        return end.output();
    }

    private static void assertContains(String part, String output) {
        assertTrue(output.contains(part), output);
    }

    private static void assertIsEmpty(Path directory) throws IOException {
        try (Stream<Path> left = Files.list(directory)) {
            assertEquals(List.of(), left.toList());
        }
    }

    @Test
    void anUnknownBackEndIsRefusedByNameOfTheProperty() throws Exception {
        ChildJvm.End end = ChildJvm.run(About.class, List.of(NATIVE_ACCESS, "-Ddev.fermata.native=bogus"));
        assertNotEquals(0, end.code());
        assertContains("unknown value -Ddev.fermata.native=bogus; expected ffm or libc", end.output());
    }

    @Test
    void libcCanBeChosen() throws Exception {
        assertEquals(LIBC + "chosen by -Ddev.fermata.native=libc)", about("-Ddev.fermata.native=libc"));
    }

    @Test
    void theCallThatSleepsOnSeveralWordsCanBeDoneWithout() throws Exception {
        assertEquals(LIBC + "chosen by -Ddev.fermata.native=libc); without futex_waitv (chosen by -Ddev.fermata.waitv=off):"
                + " waits for several words look every 2 ms",
                about("-Ddev.fermata.native=libc", "-Ddev.fermata.waitv=off"));
        ChildJvm.End end = ChildJvm.run(About.class, List.of(NATIVE_ACCESS, "-Ddev.fermata.waitv=bogus"));
        assertNotEquals(0, end.code());
        assertContains("unknown value -Ddev.fermata.waitv=bogus; expected on or off", end.output());
    }

    @Test
    void theShimCanBeChosen() throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        assertContains(FROM_THE_JAR, about("-Ddev.fermata.native=ffm"));
    }

    @Test
    void aMissingShimIsReplacedByLibcAndTheReasonIsTold() throws Exception {
        String output = about("-Ddev.fermata.shim=/nonexistent");
        assertContains(LIBC + "no usable shim: cannot read /nonexistent)", output);
        assertContains("no usable shim: cannot read /nonexistent; using libc", output);
    }

    @Test
    void aFileThatIsNoLibraryIsReplacedByLibc() throws Exception {
        Path text = Files.writeString(directory.resolve("libfermata.so"), "not a library\n");
        assertContains(LIBC + "no usable shim: ", about("-Ddev.fermata.shim=" + text));
    }

    @Test
    void aLibraryThatIsNotTheShimIsReplacedByLibc() throws Exception {
        Path other = Path.of(System.getProperty("java.home"), "lib", "libjava.so");
        assertContains(LIBC + "no usable shim: no function fermata_abi; not Fermata's shim)",
                about("-Ddev.fermata.shim=" + other));
    }

    @ParameterizedTest
    @ValueSource(strings = {"ffm", "libc"})
    void refusedNativeAccessNamesTheOptionThatAllowsIt(String backEnd) throws Exception {
        ChildJvm.End end = ChildJvm.run(About.class, List.of("--illegal-native-access=deny",
                "-Ddev.fermata.native=" + backEnd, "-Djava.io.tmpdir=" + directory));
        assertNotEquals(0, end.code());
        assertContains("java.lang.UnsupportedOperationException: native access is refused; start java with "
                + "--enable-native-access=dev.fermata", end.output());
        assertIsEmpty(directory);
    }

    @Test
    void refusedNativeAccessNamesTheOptionWhereALockFileIsOpened() throws Exception {
        ChildJvm.End end = ChildJvm.run(Opening.class, List.of("--illegal-native-access=deny"),
                directory.resolve("locks").toString());
        assertNotEquals(0, end.code());
        assertContains("java.lang.UnsupportedOperationException: native access is refused; start java with "
                + "--enable-native-access=dev.fermata", end.output());
        assertIsEmpty(directory);
    }

    @Test
    void theShimIsLoadedOutOfMemoryAndNoFileComes() throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        List<String> created = new ArrayList<>();
        String output;
        try (WatchService watch = directory.getFileSystem().newWatchService()) {
            directory.register(watch, StandardWatchEventKinds.ENTRY_CREATE);
            output = about("-Djava.io.tmpdir=" + directory);
            Files.createFile(directory.resolve("last"));
            while (!created.contains("last")) {
                WatchKey key = watch.take();
                key.pollEvents().forEach(event -> created.add(event.context().toString()));
                key.reset();
            }
        }
        assertEquals(List.of("last"), created);
        assertContains(FROM_THE_JAR, output);
        assertContains(IN_MEMORY, output);
    }

    @Test
    void aShimInMemoryNeedsNoTemporaryDirectory() throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        ChildJvm.End end = ChildJvm.run(About.class, List.of(NATIVE_ACCESS, "-Djava.io.tmpdir=/nonexistent"),
                Map.of("XDG_RUNTIME_DIR", "/nonexistent"));
        assertContains(FROM_THE_JAR, end.output());
        assertContains(IN_MEMORY, end.output());
    }

    /** Tells what a child finds that the kernel refuses some calls, as under seccomp; strace answers in its place. */
    private String aboutWithout(String calls, List<String> environment, String... options) throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        assumeTrue(new ProcessBuilder("sh", "-c", "strace -o /dev/null true").start().waitFor() == 0,
                "no strace, or none that may trace (Debian: apt-get install strace)");
        Path trace = other.resolve("trace");
        List<String> program = new ArrayList<>(List.of("strace", "-f", "-o", trace.toString(),
                "-e", "trace=" + calls, "-e", "inject=" + calls + ":error=EACCES", "env"));
        program.addAll(environment);
        ChildJvm.End end = ChildJvm.runUnder(program, About.class,
                Stream.concat(Stream.of(NATIVE_ACCESS), Arrays.stream(options)).toList());
        assertEquals(0, end.code(), end.output());
        assertContains("memfd_create(\"libfermata.so\", MFD_CLOEXEC) = -1 EACCES", Files.readString(trace));
        return end.output();
    }

    @Test
    void withoutFilesInMemoryItComesByWayOfTheTemporaryDirectoryAndNothingIsLeft() throws Exception {
        String output = aboutWithout("memfd_create", List.of(), "-Djava.io.tmpdir=" + directory);
        assertContains(FROM_THE_JAR, output);
        assertTrue(output.lines().anyMatch(line ->
                line.startsWith("mapped: " + directory + "/fermata-") && line.endsWith(" (deleted)")), output);
        assertIsEmpty(directory);
    }

    @ParameterizedTest
    @ValueSource(strings = {"/nonexistent", "/proc", "/dev/null"})
    void aTemporaryDirectoryThatCannotBeUsedIsPassedOver(String unusable) throws Exception {
        String output = aboutWithout("memfd_create",
                List.of("XDG_RUNTIME_DIR=" + directory), "-Djava.io.tmpdir=" + unusable);
        assertContains(FROM_THE_JAR, output);
        assertContains("mapped: " + directory + "/fermata-", output);
        assertIsEmpty(directory);
    }

    @Test
    void theLastDirectoryIsTheOneOfSharedMemory() throws Exception {
        String output = aboutWithout("memfd_create",
                List.of("XDG_RUNTIME_DIR=/nonexistent"), "-Djava.io.tmpdir=/nonexistent");
        assertContains(FROM_THE_JAR, output);
        assertContains("mapped: /dev/shm/fermata-", output);
    }

    @Test
    void whereNoPlaceIsGoodLibcTellsWhy() throws Exception {
        String output = aboutWithout("memfd_create,/^mkdir",
                List.of("XDG_RUNTIME_DIR=/nonexistent"), "-Djava.io.tmpdir=" + directory);
        assertContains(LIBC + "no usable shim: no file in memory: Permission denied (errno 13); ", output);
        for (Path parent : List.of(directory, Path.of("/nonexistent"), Path.of("/dev/shm"))) {
            assertContains("; " + parent + "/fermata-", output);
        }
    }
}
