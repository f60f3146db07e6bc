// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.net.URL;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Named;

/** Both ways to the kernel, whichever of them this process has chosen. */
final class BackEnds {
    private static final Arena FOR_EVER = Arena.global();

    private BackEnds() {
    }

    static Stream<Named<NativeCalls>> all() throws Exception {
        NativeCalls libc = new LibcCalls("for a test");
        NativeCalls shim = shim();
        return shim == null
                ? Stream.of(Named.of("libc", libc)) : Stream.of(Named.of("libc", libc), Named.of("shim", shim));
    }

    /** Both, and both once more as where {@code futex_waitv} is missing. */
    static Stream<Named<NativeCalls>> allAndPolling() throws Exception {
        return Stream.concat(all(), all().map(
                named -> Named.of(named.getName() + ", polling", new PollingCalls(named.getPayload(), "for a test"))));
    }

    /** The shim as it was built, or null where this machine has none. */
    static NativeCalls shim() throws Exception {
        String arch = System.getProperty("os.arch").equals("amd64") ? "x86_64" : System.getProperty("os.arch");
        URL library = NativeCalls.class.getResource("/META-INF/native/linux-" + arch + "/libfermata.so");
        if (library == null) {
            return null;
        }
        return new ShimCalls(SymbolLookup.libraryLookup(Path.of(library.toURI()), FOR_EVER), "the build");
    }
}
