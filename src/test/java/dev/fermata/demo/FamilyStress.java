// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import dev.fermata.demo.Scenario.Tally;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.LockPath;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Every primitive in several processes that are killed at random; run by {@code scripts/stress --all}. */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Each primitive in processes that are killed at random and replaced.")
public final class FamilyStress implements Callable<Integer> {
    private static final List<Scenario> ALL = List.of(
            new SequenceScenario(),
            new ElectionScenario(),
            new StripedScenario());
    private static final int THREADS = 2;
    private static final long LINE = 64;
    private static final String TALLIES = "tallies";
    /** How long nothing may move. */
    private static final long STALL = TimeUnit.SECONDS.toNanos(10);

    @Option(names = "--all", defaultValue = "50", arity = "0..1", fallbackValue = "50",
            description = "How many processes are killed for each primitive; default ${FALLBACK-VALUE}.")
    private int kills;

    @Option(names = "--only", description = "One primitive.")
    private String only;

    @Option(names = "--symmetric", description = "A symmetric file.")
    private boolean symmetric;

    @Option(names = "--seed", description = "Of the random choices.")
    private long seed = System.nanoTime();

    public static void main(String[] args) {
        System.exit(new CommandLine(new FamilyStress()).execute(args));
    }

    private static Scenario scenario(String name) {
        return ALL.stream().filter(scenario -> scenario.name().equals(name)).findAny().orElseThrow(
                () -> new IllegalArgumentException("no such primitive: " + name + "; there are "
                        + ALL.stream().map(Scenario::name).toList()));
    }

    @Override
    public Integer call() throws Exception {
        boolean pass = true;
        for (Scenario scenario : only == null ? ALL : List.of(scenario(only))) {
            pass &= run(scenario);
        }
        return pass ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }

    private boolean run(Scenario scenario) throws Exception {
        Random random = new Random(seed);
        int slots = (kills + scenario.processes()) * THREADS;
        List<ChildJvm> alive = new ArrayList<>();
        long stalls = 0;
        try (LockPath place = LockPath.create()) {
            LockFile.Builder builder = LockFile.builder(place.file()).label("stress").participants(16).payload(1 << 22);
            try (LockFile file = (symmetric ? builder.symmetric() : builder).open()) {
                Tally.All all = new Tally.All(tallies(file, slots), slots);
                scenario.prepare(file);
                int started = 0;
                for (int killed = 0; killed < kills; killed++) {
                    while (alive.size() < scenario.processes()) {
                        alive.add(ChildJvm.start(Member.class, List.of(ChildJvm.NATIVE_ACCESS), place.file().toString(),
                                scenario.name(), Integer.toString(started++ * THREADS), Integer.toString(slots)));
                    }
                    stalls += awaitProgress(scenario, all) ? 0 : 1;
                    Thread.sleep(random.nextInt(150));
                    ChildJvm victim = alive.remove(random.nextInt(alive.size()));
                    if (!victim.process().isAlive()) {
                        throw new AssertionError("a process ended by itself: " + victim.rest());
                    }
                    victim.kill();
                }
                stalls += awaitProgress(scenario, all) ? 0 : 1;
                stalls += ChildJvm.endAll(alive);
                long lost = scenario.lost(file, all);
                long doubles = all.sum(Tally.DOUBLES);
                boolean pass = lost == 0 && doubles == 0 && stalls == 0;
                System.out.printf("stress: %s %s progress=%d kills=%d lost=%d doubles=%d stalls=%d%n",
                        pass ? "PASS" : "FAIL", scenario.name(), all.sum(Tally.PROGRESS), kills, lost, doubles, stalls);
                return pass;
            }
        } finally {
            alive.forEach(ChildJvm::close);
        }
    }

    private static boolean awaitProgress(Scenario scenario, Tally.All all) throws InterruptedException {
        long before = all.sum(Tally.PROGRESS);
        for (long begin = System.nanoTime(); all.sum(Tally.PROGRESS) == before; Thread.sleep(1)) {
            if (System.nanoTime() - begin > STALL) {
                System.out.printf("stress: stalled: %s, progress=%d%n", scenario.name(), before);
                return false;
            }
        }
        return true;
    }

    private static MemorySegment tallies(LockFile file, int slots) {
        return file.mutex(TALLIES, slots * LINE).payload();
    }

    /** One of the processes. */
    static final class Member {
        private Member() {
        }

        public static void main(String[] arguments) throws Exception {
            Scenario scenario = scenario(arguments[1]);
            int first = Integer.parseInt(arguments[2]);
            int slots = Integer.parseInt(arguments[3]);
            AtomicBoolean stop = new AtomicBoolean();
            try (LockFile file = LockFile.builder(Path.of(arguments[0])).label(scenario.name()).open()) {
                scenario.prepare(file);
                List<Thread> threads = new ArrayList<>();
                Tally.All all = new Tally.All(tallies(file, slots), slots);
                for (int slot = first; slot < first + THREADS; slot++) {
                    Tally tally = all.of(slot);
                    threads.add(Thread.ofPlatform().start(() -> run(scenario, file, tally, stop)));
                }
                System.in.read(); // its end is the sign to end
                stop.set(true);
                for (Thread thread : threads) {
                    thread.join();
                }
            }
        }

        private static void run(Scenario scenario, LockFile file, Tally tally, AtomicBoolean stop) {
            Random random = new Random(tally.slot());
            try {
                while (!stop.get()) {
                    scenario.round(file, tally, random);
                }
            } catch (Throwable e) {
                e.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }
    }
}
