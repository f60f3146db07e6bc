// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A file in memory, most often of one page, mapped shared, as processes that share a lock have it. */
record SharedFile(Path path, Arena arena, MemorySegment page) implements AutoCloseable {
    private static final long SIZE = 4096;
    private static final long LINE = 128; // two cache lines: the second is often fetched with the first

    static SharedFile create() throws IOException {
        return create(SIZE);
    }

    static SharedFile create(long size) throws IOException {
        Path path = Files.createTempFile(Path.of("/dev/shm"), "fermata-bench-", "");
        Files.write(path, new byte[(int) size]);
        return open(path);
    }

    static SharedFile open(Path path) throws IOException {
        Arena arena = Arena.ofShared();
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            return new SharedFile(path, arena, channel.map(MapMode.READ_WRITE, 0, channel.size(), arena));
        }
    }

    /** A cache line of its own for each number. */
    MemorySegment line(int i) {
        return page.asSlice(i * LINE, LINE);
    }

    /** The same as a segment of the kind that lock files use, so that HotSpot sees one kind. */
    MemorySegment reinterpreted(int i) {
        return MemorySegment.ofAddress(line(i).address()).reinterpret(LINE, arena, null);
    }

    @Override
    public void close() throws IOException {
        arena.close();
        Files.deleteIfExists(path);
    }
}
