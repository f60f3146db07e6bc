// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.LockFile;
import dev.fermata.internal.Attachment;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Settings;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * A file of a million names, looked up in random order: each costs two cache misses, of a word of the index and then
 * of the entry that it names. Beside it, in turn, a loop in C that does only that, in memory of the same size from the
 * same kind of file. In both the next place depends on what was found.
 *
 * <p>The names go into the file without an object for each: a million mutexes would be a matter of the heap.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Names {
    private static final int NAMES = 1_000_000;
    /** The names of a turn, made before it is timed: they are in the cache, the file's words are not. */
    private static final int BATCH = 1000;

    private final int[] order = new SplittableRandom(1).ints(0, NAMES).distinct().limit(NAMES).toArray();
    private final String[] names = new String[BATCH];
    private Path path;
    private LockFile file;
    private Attachment attachment;
    private SharedFile memory;
    private long indexLength;
    private int next;

    static LockFile.Builder builder() {
        return LockFile.builder(Path.of("/dev/shm", "fermata-bench-" + System.nanoTime())).capacity(NAMES);
    }

    @Setup
    public void open() throws IOException {
        file = builder().open();
        path = file.path();
        attach();
        for (int i = 0; i < NAMES; i++) {
            attachment.insert(name(i), Layout.MUTEX, 0, 0, 0);
        }
        memory = SharedFile.create(Files.size(path));
        fill(memory.page());
    }

    /** The same attachment as the file's. */
    private void attach() throws IOException {
        attachment = Attachment.open(path, new Settings(1, 1, 0, false, 0, false, false, false, "", 0, 0));
    }

    /** Random entries in the index, and whatever in the entries. */
    private void fill(MemorySegment words) {
        indexLength = Layout.indexLength(NAMES);
        SplittableRandom random = new SplittableRandom(2);
        for (long i = 0; i < indexLength; i++) {
            words.setAtIndex(ValueLayout.JAVA_LONG, i, random.nextLong(NAMES));
        }
        for (long i = indexLength * Long.BYTES; i < words.byteSize(); i += Long.BYTES) {
            words.set(ValueLayout.JAVA_LONG, i, i);
        }
    }

    @TearDown
    public void close() throws IOException {
        attachment.release();
        file.close();
        Files.delete(path);
        memory.close();
    }

    private static String name(int i) {
        return "account/" + i;
    }

    private void takeNames() throws IOException {
        if (next + BATCH > NAMES) { // all have been used: forget them
            attachment.release();
            file.close();
            file = LockFile.open(path);
            attach();
            next = 0;
        }
        for (int i = 0; i < BATCH; i++) {
            names[i] = name(order[next++]);
        }
    }

    private void renewNames() {
        for (int i = 0; i < BATCH; i++) {
            names[i] = new String(names[i].toCharArray()); // without the hash code that the other has stored
        }
    }

    private void lookUp() {
        int found = 0;
        for (int i = 0; i < BATCH; i++) {
            found = attachment.find(names[i + (found >> 31)]); // the sign is 0, but that has to be waited for
        }
        require(found >= 0);
    }

    private void find() {
        for (int i = 0; i < BATCH; i++) {
            require(file.find(names[i]).isPresent());
        }
    }

    private void known() {
        for (int i = 0; i < BATCH; i++) {
            require(file.mutex(names[i]) != null);
        }
    }

    private static void require(boolean condition) {
        if (!condition) {
            throw new AssertionError("a name was not found");
        }
    }

    /** In ns. */
    @State(Scope.Thread)
    @AuxCounters(AuxCounters.Type.EVENTS)
    public static class Sides {
        /** The entry of a name. */
        public double lookUp;
        /** The two cache misses of that, in C. */
        public double misses;
        /** The mutex of a name that this process has not used before: looked up, and an object made. */
        public double find;
        /** The mutex of a name that it has just used. */
        public double known;
        /** Opening a file that the process has open. */
        public double reopen;
    }

    @Benchmark
    public void names(Sides sides) throws IOException {
        takeNames();
        long start = System.nanoTime();
        lookUp();
        sides.lookUp = Turn.best(sides.lookUp, System.nanoTime() - start, BATCH);

        start = System.nanoTime();
        CLoops.misses(memory.page(), indexLength, NAMES, BATCH);
        sides.misses = Turn.best(sides.misses, System.nanoTime() - start, BATCH);

        takeNames();
        start = System.nanoTime();
        find();
        sides.find = Turn.best(sides.find, System.nanoTime() - start, BATCH);

        renewNames();
        start = System.nanoTime();
        known();
        sides.known = Turn.best(sides.known, System.nanoTime() - start, BATCH);

        start = System.nanoTime();
        LockFile second = LockFile.open(path);
        sides.reopen = Turn.best(sides.reopen, System.nanoTime() - start, 1);
        second.close();
    }
}
