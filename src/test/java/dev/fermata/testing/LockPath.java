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

    /** Cuts the file; if it is to grow again, there are zeros at once. */
    public void truncate(long left, boolean grown) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            long size = channel.size();
            channel.truncate(left);
            if (grown) {
                channel.write(ByteBuffer.allocate(1), size - 1);
            }
        }
    }

    /** Takes pages out of the file: they read as zeros. */
    public void punch(long offset, long length) throws IOException, InterruptedException {
        Process tool = new ProcessBuilder("fallocate", "--punch-hole", "--offset", Long.toString(offset),
                "--length", Long.toString(length), file.toString()).inheritIO().start();
        if (tool.waitFor() != 0) {
            throw new IOException("fallocate ended with " + tool.exitValue());
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
