// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import dev.fermata.LockInfo;
import dev.fermata.Participant;
import dev.fermata.SharedMutex;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * JVMs are killed by SIGKILL in the middle of an update, one after the other, each while a thread of this process
 * sleeps on the lock. That one is told, repairs the record and goes on.
 */
final class ActTwo implements AutoCloseable {
    /** How many victims are started at a time; kills begin when all stand ready, so that nothing else runs. */
    private static final int BATCH = 5;
    private static final int KILLED = 128 + 9;
    /** The number of that system call, on all architectures. */
    private static final String FUTEX_WAITV = "449 ";

    private final LockFile file;
    private final int kills;
    private final Consumer<Halves> repair;
    private final long limitSeconds;
    private final PrintStream out;
    private final Halves halves;
    private final SharedMutex mutex;
    private final List<Process> processes = new CopyOnWriteArrayList<>();
    private final List<Victim> ready = new ArrayList<>();
    private final List<Long> waits = new ArrayList<>();

    /** Something is not as it must be. */
    private static final class Failure extends Exception {
        private static final long serialVersionUID = 1L;

        Failure(String message) {
            super(message, null, false, false);
        }
    }

    /** What the handler saw of a death. */
    private record Told(long at, String found) {
    }

    private Told told; // to the survivor

    /** The act; no step of it may take longer than the limit. */
    ActTwo(LockFile file, int kills, Consumer<Halves> repair, long limitSeconds, PrintStream out) {
        this.file = file;
        this.kills = kills;
        this.repair = repair;
        this.limitSeconds = limitSeconds;
        this.out = out;
        this.halves = new Halves(file);
        this.mutex = halves.mutex();
        mutex.onOwnerDeath(abandoned -> {
            told = new Told(System.nanoTime(), halves.toString());
            repair.accept(halves);
        });
    }

    /** What went wrong, or {@code null}. */
    String play() throws IOException, InterruptedException {
        out.printf("demo: act two: %d JVMs are killed, each in mid-update of \"%s\", whose lock a survivor awaits%n",
                kills, mutex.name());
        try {
            for (int kill = 1; kill <= kills; kill++) {
                if (ready.isEmpty()) {
                    startVictims(kill);
                }
                kill(ready.removeFirst(), kill);
            }
            LockInfo info = mutex.info();
            require(info.recovered() == kills, "%d deaths were told, expected %d", info.recovered(), kills);
            require(halves.isWhole() && halves.first() == 2L * kills, "the record is %s, expected %d|%d",
                    halves, 2 * kills, 2 * kills);
        } catch (Failure failure) {
            return "act two: " + failure.getMessage();
        }
        long[] sorted = waits.stream().mapToLong(Long::longValue).sorted().toArray();
        out.printf("demo: kill to acquisition: median %.2f ms, maximum %.2f ms, %d kills; the record is whole: %s%n",
                median(sorted) / 1e6, sorted[sorted.length - 1] / 1e6, kills, halves);
        return null;
    }

    private static double median(long[] sorted) {
        int half = sorted.length / 2;
        return sorted.length % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2.0;
    }

    private static void require(boolean condition, String otherwise, Object... values) throws Failure {
        if (!condition) {
            throw new Failure(otherwise.formatted(values));
        }
    }

    // ---- victims ----

    /** A JVM that is going to be killed, a {@link HalfWriter}. */
    private record Victim(String label, Process process, BufferedReader output) {
        void go() throws IOException {
            process.outputWriter().write('\n');
            process.outputWriter().flush();
        }

        void expect(String line, long limitSeconds) throws IOException, InterruptedException, Failure {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(limitSeconds);
            while (!output.ready() && process.isAlive() && System.nanoTime() < deadline) {
                Thread.sleep(1);
            }
            String found = output.ready() ? output.readLine() : "nothing";
            require(line.equals(found), "%s, pid %d, %s, said \"%s\", expected \"%s\" within %d s", label,
                    process.pid(), process.isAlive() ? "alive" : "ended", found, line, limitSeconds);
        }
    }

    private void startVictims(int from) throws IOException, InterruptedException, Failure {
        for (int number = from; number < Math.min(from + BATCH, kills + 1); number++) {
            List<String> command = PeerProcess.java(
                    List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m"), HalfWriter.class);
            String label = "victim " + number;
            command.addAll(List.of(file.path().toString(), label));
            Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            processes.add(process);
            ready.add(new Victim(label, process, process.inputReader()));
        }
        for (Victim victim : ready) {
            victim.expect("ready", limitSeconds);
        }
    }

    private void kill(Victim victim, int number) throws IOException, InterruptedException, Failure {
        victim.go();
        victim.expect("half", limitSeconds);
        LockInfo held = mutex.info(); // afterwards it is gone
        Participant owner = held.owner().orElseThrow(() -> new Failure("nobody holds the lock: " + held));
        require(owner.pid() == victim.process().pid() && owner.label().equals(victim.label()),
                "the lock is %s, expected \"%s\", pid %d", held, victim.label(), victim.process().pid());
        Survivor survivor = new Survivor();
        survivor.awaitAsleep();
        long killed = System.nanoTime();
        victim.process().destroyForcibly(); // SIGKILL
        Told seen = survivor.result();
        require(victim.process().waitFor() == KILLED, "%s ended with %d, expected %d", victim.label(),
                victim.process().exitValue(), KILLED);
        waits.add(seen.at() - killed);
        out.printf("demo: kill %2d: pid %d \"%s\", %s, died at %s; %.2f ms later the survivor had the lock, and went on"
                + " to %s%n", number, owner.pid(), owner.label(), held.thread(), seen.found(),
                (seen.at() - killed) / 1e6, halves);
    }

    // ---- the survivor ----

    /** A thread of this process that sleeps on the lock, is told, and goes on. */
    private final class Survivor {
        private final FutureTask<Told> task = new FutureTask<>(this::goOn);
        private volatile Path self;

        Survivor() {
            Thread.ofPlatform().daemon().name("survivor").start(task);
        }

        private Told goOn() throws IOException, Failure {
            self = Path.of("/proc").resolve(Files.readSymbolicLink(Path.of("/proc/thread-self")));
            told = null;
            mutex.lock();
            try {
                require(mutex.ownerDied() && told != null, "the survivor has the lock and was told nothing");
                require(halves.isWhole(), "the record is %s after the repair, found %s; expected equal halves",
                        halves, told.found());
                halves.update();
                return told;
            } finally {
                mutex.unlock();
            }
        }

        /** Returns when the thread is asleep, as it was some milliseconds before: it is heir by then. */
        void awaitAsleep() throws InterruptedException, Failure {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(limitSeconds);
            for (int looks = 0; looks < 2; looks = isAsleep() ? looks + 1 : 0) {
                require(!task.isDone(), "the survivor did not wait; the lock is %s", mutex.info());
                require(System.nanoTime() < deadline, "the survivor does not sleep on the lock, after %d s",
                        limitSeconds);
                Thread.sleep(5);
            }
        }

        /** Whether it sleeps on several words: those of the lock, and its owner's lifeline. */
        private boolean isAsleep() {
            try { // the number of the system call, then its arguments in hexadecimal
                return self != null && Files.readString(self.resolve("syscall")).startsWith(FUTEX_WAITV);
            } catch (IOException endedMeanwhile) {
                return false;
            }
        }

        Told result() throws InterruptedException, Failure {
            try {
                return task.get(limitSeconds, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                throw new Failure("the survivor does not have the lock %d s after the kill; it is %s"
                        .formatted(limitSeconds, mutex.info()));
            } catch (ExecutionException e) {
                throw e.getCause() instanceof Failure failure ? failure : new Failure(e.getCause().toString());
            }
        }
    }

    /** Ends all victims. */
    @Override
    public void close() {
        for (Process process : processes) {
            process.destroyForcibly().onExit().join();
        }
    }
}
