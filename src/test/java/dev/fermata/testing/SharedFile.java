// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A file of one page, all zero, that is mapped shared and deleted in the end. */
public final class SharedFile implements AutoCloseable {
    /** Bytes. */
    public static final int SIZE = 4096;

    private final Path path;
    private final FileChannel channel;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;

    private SharedFile(Path path, FileChannel channel) throws IOException {
        this.path = path;
        this.channel = channel;
        channel.truncate(0);
        grow();
        this.segment = map();
    }

    /** A new file. */
    public static SharedFile create() throws IOException {
        Path memory = Path.of("/dev/shm");
        Path path = Files.isWritable(memory)
                ? Files.createTempFile(memory, "fermata-words-", "") : Files.createTempFile("fermata-words-", "");
        path.toFile().deleteOnExit();
        return new SharedFile(path, FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE));
    }

    /** The first mapping. */
    public MemorySegment segment() {
        return segment;
    }

    /** One more mapping, at another address. */
    public MemorySegment map() throws IOException {
        return channel.map(MapMode.READ_WRITE, 0, SIZE, arena);
    }

    public Path path() {
        return path;
    }

    /** Deletes it now; the mappings stay. For a process that may not come to the end of its code. */
    public SharedFile unlink() throws IOException {
        Files.delete(path);
        return this;
    }

    /** Takes the page away. */
    public void truncate() throws IOException {
        channel.truncate(0);
    }

    /** Gives it its size, all new bytes zero. */
    public void grow() throws IOException {
        channel.write(java.nio.ByteBuffer.allocate(1), SIZE - 1);
    }

    /** All of it, as it is. */
    public byte[] bytes() {
        return segment.toArray(ValueLayout.JAVA_BYTE);
    }

    /** Unmaps it. */
    public void closeArena() {
        arena.close();
    }

    @Override
    public void close() throws IOException {
        Files.deleteIfExists(path);
        channel.close();
        try {
            if (arena.scope().isAlive()) {
                arena.close();
            }
        } catch (IllegalStateException asleep) {
            // A thread of a test that failed still sleeps there; the mapping ends with the process.
        }
    }
}
