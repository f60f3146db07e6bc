// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Chooses the {@link NativeCalls} and the {@link Posix} of this process. */
final class NativeLoader {
    private static final String BACK_END = "dev.fermata.native";
    private static final String SHIM = "dev.fermata.shim";
    private static final String WAITV = "dev.fermata.waitv";
    private static final String LIBRARY = "libfermata.so";
    private static final String NATIVE_ACCESS =
            "native access is refused; start java with --enable-native-access=dev.fermata"
                    + " (or ALL-UNNAMED, where Fermata is on the class path)";

    private NativeLoader() {
    }

    static NativeCalls load() {
        if (!System.getProperty("os.name").equals("Linux")) {
            throw new UnsupportedOperationException(
                    "Fermata needs Linux: its waiting is built on the futex. Found " + System.getProperty("os.name"));
        }
        String choice = System.getProperty(BACK_END, "ffm");
        try {
            return orPolling(switch (choice) {
                case "ffm" -> shimOrLibc();
                case "libc" -> new LibcCalls("chosen by -D" + BACK_END + "=libc");
                default -> throw new IllegalArgumentException(
                        "unknown value -D%s=%s; expected ffm or libc".formatted(BACK_END, choice));
            });
        } catch (IllegalCallerException refused) {
            throw new UnsupportedOperationException(NATIVE_ACCESS, refused);
        }
    }

    /** Through libc, whatever is chosen. */
    static Posix posix() {
        try {
            return new LibcPosix();
        } catch (IllegalCallerException refused) {
            throw new UnsupportedOperationException(NATIVE_ACCESS, refused);
        }
    }

    /** The calls with others in place of {@code futex_waitv} where the kernel has none or a filter refuses it. */
    private static NativeCalls orPolling(NativeCalls calls) {
        String choice = System.getProperty(WAITV, "on");
        return switch (choice) {
            case "on" -> {
                int answer = tryWaitv(calls);
                yield answer == -Posix.EAGAIN ? calls : new PollingCalls(calls, Posix.SYSTEM.describe(-answer));
            }
            case "off" -> new PollingCalls(calls, "chosen by -D" + WAITV + "=off");
            default -> throw new IllegalArgumentException(
                    "unknown value -D%s=%s; expected on or off".formatted(WAITV, choice));
        };
    }

    /** What the kernel says to a wait for a word that has changed. */
    private static int tryWaitv(NativeCalls calls) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment word = arena.allocate(JAVA_INT); // it holds 0
            return calls.futexWaitAny(
                    arena.allocateFrom(JAVA_LONG, word.address()), arena.allocateFrom(JAVA_INT, 1), 1, 0);
        }
    }

    private static NativeCalls shimOrLibc() {
        String path = System.getProperty(SHIM);
        try {
            return path != null ? open(Path.of(path), path) : unpack();
        } catch (IOException | IllegalArgumentException | UnsatisfiedLinkError unusable) {
            String why = "no usable shim: " + unusable.getMessage();
            System.getLogger("dev.fermata").log(path != null ? Level.WARNING : Level.DEBUG, why + "; using libc");
            return new LibcCalls(why);
        }
    }

    /** Loads the shim that is in the jar: out of memory, so that a process that is killed meanwhile leaves no file. */
    private static NativeCalls unpack() throws IOException {
        String arch = switch (System.getProperty("os.arch")) {
            case "amd64", "x86_64" -> "x86_64";
            case String other -> other;
        };
        String resource = "/META-INF/native/linux-" + arch + "/" + LIBRARY;
        byte[] shim;
        try (InputStream in = NativeLoader.class.getResourceAsStream(resource)) {
            if (in == null) {
                throw new IOException("the jar has no " + resource);
            }
            shim = in.readAllBytes();
        }
        String origin = "the jar's " + resource;
        List<String> refusals = new ArrayList<>();
        try {
            return openInMemory(shim, origin);
        } catch (IOException | IllegalArgumentException unusable) {
            refusals.add(unusable.getMessage()); // for one, there is no /proc
        }
        for (String parent : candidates()) {
            try {
                return openIn(Path.of(parent), shim, origin);
            } catch (IOException | IllegalArgumentException unusable) {
                refusals.add(unusable.getMessage()); // for one, a /tmp mounted noexec: try the next
            }
        }
        throw new IOException(String.join("; ", refusals));
    }

    /** By way of a file that has no path and is gone with the process. */
    private static NativeCalls openInMemory(byte[] shim, String origin) throws IOException {
        Posix posix = Posix.SYSTEM;
        int fd = posix.memoryFile(LIBRARY);
        if (fd < 0) {
            throw new IOException("no file in memory: " + posix.describe(-fd));
        }
        try (Arena arena = Arena.ofConfined()) {
            int written = posix.write(fd, arena.allocateFrom(JAVA_BYTE, shim), 0);
            if (written != shim.length) {
                throw new IOException("a file in memory takes no " + shim.length + " bytes: "
                        + (written < 0 ? posix.describe(-written) : "only " + written));
            }
            // Two libraries by one path are one to libc, and /proc/self/fd/N is the path that others take.
            String path = "/proc/thread-self/fd/" + fd;
            return new ShimCalls(SymbolLookup.libraryLookup(path, Arena.global()), origin);
        } finally {
            posix.close(fd); // the mapping stays
        }
    }

    /** By way of a directory that only this user can enter; removes both. */
    private static NativeCalls openIn(Path parent, byte[] shim, String origin) throws IOException {
        Path directory = Files.createTempDirectory(parent, "fermata-"); // 0700
        Path library = directory.resolve(LIBRARY);
        try {
            Files.write(library, shim);
            return open(library, origin);
        } finally {
            Files.deleteIfExists(library); // the mapping stays
            Files.deleteIfExists(directory);
        }
    }

    private static List<String> candidates() {
        List<String> parents = new ArrayList<>();
        parents.add(System.getProperty("java.io.tmpdir"));
        if (System.getenv("XDG_RUNTIME_DIR") != null) {
            parents.add(System.getenv("XDG_RUNTIME_DIR"));
        }
        parents.add("/dev/shm");
        return parents;
    }

    private static NativeCalls open(Path library, String origin) throws IOException {
        if (!Files.isReadable(library)) {
            throw new IOException("cannot read " + library);
        }
        return new ShimCalls(SymbolLookup.libraryLookup(library, Arena.global()), origin);
    }
}
