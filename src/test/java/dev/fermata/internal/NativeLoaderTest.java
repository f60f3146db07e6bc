// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static dev.fermata.testing.ChildJvm.NATIVE_ACCESS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.Fermata;
import dev.fermata.testing.ChildJvm;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
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
    private static final String LIBC = "Fermata: libc's syscall and Thread.onSpinWait (";

    @TempDir
    Path directory;

    /** Prints what was found, and what lies in the directories named by the arguments. */
    static final class About {
        public static void main(String[] directories) throws IOException {
            System.out.println(Fermata.about());
            for (String directory : directories) {
                try (Stream<Path> left = Files.list(Path.of(directory))) {
                    left.filter(path -> path.getFileName().toString().startsWith("fermata-")).forEach(path ->
                            System.out.println("left behind: " + path));
                }
            }
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
    void nothingIsLeftInTheTemporaryDirectoryWhileTheProcessRuns() throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        ChildJvm.End end = ChildJvm.run(About.class,
                List.of(NATIVE_ACCESS, "-Djava.io.tmpdir=" + directory), directory.toString());
        assertContains(FROM_THE_JAR, end.output());
        assertEquals(1, end.output().lines().count(), end.output());
        assertIsEmpty(directory);
    }

    @ParameterizedTest
    @ValueSource(strings = {"/nonexistent", "/proc", "/dev/null"})
    void aTemporaryDirectoryThatCannotBeUsedIsPassedOver(String unusable) throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        ChildJvm.End end = ChildJvm.run(About.class, List.of(NATIVE_ACCESS, "-Djava.io.tmpdir=" + unusable),
                Map.of("XDG_RUNTIME_DIR", directory.toString()), directory.toString());
        assertContains(FROM_THE_JAR, end.output());
        assertIsEmpty(directory);
    }

    @Test
    void theLastDirectoryIsTheOneOfSharedMemory() throws Exception {
        assumeTrue(BackEnds.shim() != null, "no shim was built for this machine");
        ChildJvm.End end = ChildJvm.run(About.class, List.of(NATIVE_ACCESS, "-Djava.io.tmpdir=/nonexistent"),
                Map.of("XDG_RUNTIME_DIR", "/nonexistent"));
        assertContains(FROM_THE_JAR, end.output());
    }
}
