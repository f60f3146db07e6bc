// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.Fermata;
import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import dev.fermata.testing.LockPath;
import java.util.Arrays;
import java.util.concurrent.Callable;
import java.util.concurrent.SynchronousQueue;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** How long after its interrupt a sleeping waiter has left the lock's method; run by {@code scripts/stress --interrupts}. */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Measures the time from an interrupt to the InterruptedException of a sleeping waiter.")
public final class InterruptLatency implements Callable<Integer> {
    @Option(names = "--interrupts", required = true, description = "How many waits are interrupted.")
    private int interrupts;

    @Option(names = "--symmetric", description = "A symmetric file.")
    private boolean symmetric;

    @Option(names = "--polling", description = "As on a kernel without futex_waitv; the median may be any.")
    private boolean polling;

    public static void main(String[] args) {
        System.exit(new CommandLine(new InterruptLatency()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        if (polling) {
            System.setProperty("dev.fermata.waitv", "off"); // read when the first file is opened
        }
        long[] nanos = new long[interrupts];
        try (LockPath place = LockPath.create()) {
            LockFile.Builder builder = LockFile.builder(place.file());
            try (LockFile file = (symmetric ? builder.symmetric() : builder).open()) {
                SharedMutex mutex = file.mutex("m");
                mutex.lock();
                SynchronousQueue<Long> ends = new SynchronousQueue<>();
                Thread waiter = Thread.ofPlatform().daemon().start(() -> {
                    for (int i = 0; i < interrupts; i++) {
                        try {
                            mutex.lockInterruptibly();
                            throw new AssertionError("the lock was not to be had");
                        } catch (InterruptedException e) {
                            long end = System.nanoTime();
                            try {
                                ends.put(end);
                            } catch (InterruptedException impossible) {
                                throw new AssertionError(impossible);
                            }
                        }
                    }
                });
                for (int i = 0; i < interrupts; i++) {
                    Thread.sleep(10); // it has slept for long, and nothing else runs
                    long begin = System.nanoTime();
                    waiter.interrupt();
                    nanos[i] = ends.take() - begin;
                }
                mutex.unlock();
            }
        }
        Arrays.sort(nanos);
        long median = nanos[interrupts / 2];
        boolean met = polling || median < 1_000_000;
        System.out.printf("stress: %s interrupts=%d p50=%.3f ms p99=%.3f ms max=%.3f ms; %s%n", met ? "PASS" : "FAIL",
                interrupts, median / 1e6, nanos[interrupts * 99 / 100] / 1e6, nanos[interrupts - 1] / 1e6, Fermata.about());
        return met ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }
}
