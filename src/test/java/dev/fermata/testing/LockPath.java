// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
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

    /** Cuts the file to nothing; if it is to grow again, it is all zeros at once. */
    public void truncate(boolean grown) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            long size = channel.size();
            channel.truncate(0);
            if (grown) {
                channel.write(ByteBuffer.allocate(1), size - 1);
            }
        }
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
