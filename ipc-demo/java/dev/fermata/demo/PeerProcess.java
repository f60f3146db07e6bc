// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.word.WordMutex;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The command lines of the peers, which run as processes of their own. */
public final class PeerProcess {
    /** Where {@code ipc-demo/build} puts the C and the Rust peer. */
    private static final Path PEERS = Path.of(System.getProperty("fermata.peers", "target/peers"));

    private PeerProcess() {
    }

    /** Why there is no peer in that language, or empty if there is one. */
    public static Optional<String> missing(Language language) {
        return switch (language) {
            case JAVA -> Optional.empty();
            case C -> missing(language, "a C compiler (Debian: apt-get install gcc libc6-dev)");
            case RUST -> missing(language, "cargo (Debian: apt-get install cargo)");
        };
    }

    private static Optional<String> missing(Language language, String toolchain) {
        Path program = program(language);
        return Files.isExecutable(program) ? Optional.empty() : Optional.of(
                "%s is not there; it needs %s, and then: ipc-demo/build %s".formatted(program, toolchain, PEERS));
    }

    private static Path program(Language language) {
        return PEERS.resolve(language + "-peer");
    }

    /** The command line of a peer; one in Java gets the options for its JVM. */
    public static List<String> command(Language language, Path file, long offset, long iterations, Mode mode,
            int threads, List<String> jvmOptions) {
        List<String> command = language == Language.JAVA
                ? java(jvmOptions, Peer.class) : new ArrayList<>(List.of(program(language).toString()));
        command.addAll(List.of(file.toString(), Long.toString(offset), Long.toString(iterations),
                "--mode", mode.toString(), "--threads", Integer.toString(threads)));
        return command;
    }

    /** The command line of a Java peer in mode named. */
    public static List<String> named(Path file, String lock, long offset, long iterations, int threads,
            List<String> jvmOptions) {
        List<String> command = command(Language.JAVA, file, offset, iterations, Mode.NAMED, threads, jvmOptions);
        command.addAll(List.of("--lock", lock));
        return command;
    }

    /** A program in a JVM like this one: same Fermata, same native back end. */
    static List<String> java(List<String> options, Class<?> main) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin/java").toString());
        command.addAll(options);
        if (WordMutex.class.getModule().isNamed()) {
            command.addAll(List.of("--module-path", System.getProperty("jdk.module.path"),
                    "--add-modules", "dev.fermata", "--enable-native-access=dev.fermata"));
        } else {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        for (String property : new String[] {"dev.fermata.native", "dev.fermata.shim", "fermata.peers"}) {
            if (System.getProperty(property) != null) {
                command.add("-D" + property + "=" + System.getProperty(property));
            }
        }
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
        return command;
    }
}
