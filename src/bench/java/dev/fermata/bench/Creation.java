// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.LockFile;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;

/** Creating a file for a million names, beside reserving and writing as much in C. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Creation {
    /** In ns. */
    @State(Scope.Thread)
    @AuxCounters(AuxCounters.Type.EVENTS)
    public static class Sides {
        /** The file, opened, with no names in it. */
        public double create;
        /** A file of that size, reserved and then written once, in C. */
        public double write;
    }

    @Benchmark
    public void creation(Sides sides) throws IOException {
        long start = System.nanoTime();
        LockFile created = Names.builder().open();
        sides.create = Turn.best(sides.create, System.nanoTime() - start, 1);
        long size = Files.size(created.path());
        created.close();
        Files.delete(created.path());

        Path other = Path.of(created.path() + "-c");
        start = System.nanoTime();
        CLoops.reserveAndWrite(other, size);
        sides.write = Turn.best(sides.write, System.nanoTime() - start, 1);
        Files.delete(other);
    }
}
