// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A place for a lock file that does not exist yet, in a directory that is removed in the end. */
public record LockPath(Path directory, Path file) implements AutoCloseable {
    public static LockPath create() throws IOException {
        Path memory = Path.of("/dev/shm");
        Path directory = Files.isWritable(memory) ? Files.createTempDirectory(memory, "fermata-locks-")
                : Files.createTempDirectory("fermata-locks-");
        return new LockPath(directory, directory.resolve("locks"));
    }

    @Override
    public void close() throws IOException {
        List<Path> all;
        try (Stream<Path> tree = Files.walk(directory)) {
            all = tree.sorted(Comparator.reverseOrder()).toList();
        }
        for (Path path : all) {
            Files.deleteIfExists(path);
        }
    }
}
