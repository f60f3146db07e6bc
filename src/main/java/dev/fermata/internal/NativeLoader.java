// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Chooses the {@link NativeCalls} of this process. */
final class NativeLoader {
    private static final String BACK_END = "dev.fermata.native";
    private static final String SHIM = "dev.fermata.shim";
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
            return switch (choice) {
                case "ffm" -> shimOrLibc();
                case "libc" -> new LibcCalls("chosen by -D" + BACK_END + "=libc");
                default -> throw new IllegalArgumentException(
                        "unknown value -D%s=%s; expected ffm or libc".formatted(BACK_END, choice));
            };
        } catch (IllegalCallerException refused) {
            throw new UnsupportedOperationException(NATIVE_ACCESS, refused);
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

    /** Copies the shim out of the jar into a directory that only this user can enter, loads it, and removes both. */
    private static NativeCalls unpack() throws IOException {
        String arch = switch (System.getProperty("os.arch")) {
            case "amd64", "x86_64" -> "x86_64";
            case String other -> other;
        };
        String resource = "/META-INF/native/linux-" + arch + "/libfermata.so";
        List<String> refusals = new ArrayList<>();
        for (String parent : candidates()) {
            try (InputStream in = NativeLoader.class.getResourceAsStream(resource)) {
                if (in == null) {
                    throw new IOException("the jar has no " + resource);
                }
                Path directory = Files.createTempDirectory(Path.of(parent), "fermata-"); // 0700
                Path library = directory.resolve("libfermata.so");
                try {
                    Files.copy(in, library);
                    return open(library, "the jar's " + resource);
                } finally {
                    Files.deleteIfExists(library); // the mapping stays
                    Files.deleteIfExists(directory);
                }
            } catch (IOException | IllegalArgumentException unusable) {
                refusals.add(unusable.getMessage()); // for one, a /tmp mounted noexec: try the next
            }
        }
        throw new IOException(String.join("; ", refusals));
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
