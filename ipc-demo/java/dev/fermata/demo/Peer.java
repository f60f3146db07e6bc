// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.DamagedMappingException;
import dev.fermata.LockFile;
import dev.fermata.LockFileException;
import dev.fermata.LockMismatchException;
import dev.fermata.LockNameException;
import dev.fermata.SharedMutex;
import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Mode;
import dev.fermata.demo.DemoRecord.Slot;
import dev.fermata.demo.DemoRecord.State;
import dev.fermata.word.SpinLock;
import dev.fermata.word.WordMutex;
import dev.fermata.word.WordReadWriteLock;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The peer of PROTOCOL.md, section 7, in Java. */
@Command(name = "peer", mixinStandardHelpOptions = true,
        description = "Takes the lock word at OFFSET of FILE, or the mutex NAME of that lock file, ITERATIONS times a"
                + " thread, and checks that it is alone.")
public final class Peer implements Callable<Integer> {
    private static final int DAMAGED = 3;

    @Parameters(index = "0", paramLabel = "FILE", description = "An existing file with a demo record.")
    private Path file;

    @Parameters(index = "1", paramLabel = "OFFSET", description = "Where the record lies, a multiple of 64.")
    private long offset;

    @Parameters(index = "2", paramLabel = "ITERATIONS", description = "Acquisitions of each thread.")
    private long iterations;

    @Option(names = "--mode", description = "mutex, spin or rw; or named, with --lock; default ${DEFAULT-VALUE}.",
            defaultValue = "mutex")
    private Mode mode;

    @Option(names = "--lock", paramLabel = "NAME",
            description = "In mode named: the mutex, whose payload is the record; OFFSET is where that lies.")
    private String lock;

    @Option(names = "--threads", description = "Threads of this process; default ${DEFAULT-VALUE}.",
            defaultValue = "1")
    private int threads;

    public static void main(String[] args) {
        System.exit(new CommandLine(new Peer())
                .setCaseInsensitiveEnumValuesAllowed(true)
                .setParameterExceptionHandler((error, rest) -> refuse(error.getMessage()))
                .execute(args));
    }

    private static int refuse(String reason) {
        System.err.println("peer: " + reason.lines().findFirst().orElse(""));
        return CommandLine.ExitCode.USAGE;
    }

    @Override
    public Integer call() throws InterruptedException {
        if (iterations < 1 || threads < 1) {
            return refuse("ITERATIONS and --threads must be 1 or more; found %d and %d"
                    .formatted(iterations, threads));
        }
        if ((mode == Mode.NAMED) != (lock != null)) {
            return refuse("--lock goes with --mode named, and only with it; found --mode %s %s"
                    .formatted(mode, lock == null ? "without --lock" : "with --lock " + lock));
        }
        List<Contender> contenders = new ArrayList<>();
        try {
            SharedMutex named = mode == Mode.NAMED ? named() : null;
            DemoRecord record = named == null ? DemoRecord.map(file, offset, Arena.global()) : DemoRecord.of(named);
            if (named != null && named.payloadOffset() != offset) {
                return refuse("OFFSET is %d; expected %d, where the payload of lock \"%s\" lies"
                        .formatted(offset, named.payloadOffset(), lock));
            }
            if (threads > record.slotsLeft()) {
                return refuse("%d threads, but %d slots are left in the record; start with a fresh file"
                        .formatted(threads, record.slotsLeft()));
            }
            record.setMode(mode);
            if (named != null) {
                named.onOwnerDeath(mutex -> record.setOwnerSlot(0)); // who dies inside leaves its id there
            }
            for (int i = 0; i < threads; i++) {
                contenders.add(new Contender(record, record.claimSlot(Language.JAVA),
                        Exclusion.of(record.memory(), mode, named), mode, iterations));
            }
        } catch (LockFileException e) {
            return refuse(e.getMessage());
        } catch (IOException e) {
            return refuse("cannot map %s: %s".formatted(file, e));
        } catch (DemoRecord.UnsuitableException | LockNameException | LockMismatchException e) {
            return refuse(e.getMessage());
        } catch (DamagedMappingException e) {
            System.err.println("peer: DAMAGED " + e.getMessage());
            return DAMAGED;
        } catch (InternalError e) {
            System.err.println("peer: DAMAGED " + DamagedMappingException.of(e).getMessage());
            return DAMAGED;
        }
        List<Thread> started = contenders.stream().map(Thread.ofPlatform()::start).toList();
        for (Thread thread : started) {
            thread.join();
        }
        long mismatches = contenders.stream().mapToLong(c -> c.mismatches).sum();
        System.out.printf("peer: %s language=java threads=%d acquisitions=%d contended=%d mismatches=%d%n",
                mismatches == 0 ? "PASS" : "FAIL", threads, contenders.stream().mapToLong(c -> c.acquisitions).sum(),
                contenders.stream().mapToLong(c -> c.contended).sum(), mismatches);
        return mismatches == 0 ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }

    /** The mutex of mode named. Its file stays open until the process ends. */
    private SharedMutex named() throws LockFileException {
        return LockFile.builder(file).mustExist().label("peer").open().find(lock)
                .orElseThrow(() -> new DemoRecord.UnsuitableException(
                        "there is no lock \"%s\" in %s; expected a mutex with a record".formatted(lock, file)));
    }

    /** What the modes have in common. */
    private interface Exclusion {
        boolean tryLock();

        void lock();

        void unlock();

        static Exclusion of(MemorySegment memory, Mode mode, SharedMutex named) {
            return switch (mode) {
                case MUTEX -> new Exclusion() {
                    private final WordMutex mutex = WordMutex.at(memory, DemoRecord.LOCK_WORD)
                            .withSlowPathCounter(DemoRecord.SLOW_PATH_COUNTER)
                            .withOwnerWord(DemoRecord.OWNER_WORD);

                    @Override
                    public boolean tryLock() {
                        return mutex.tryLock();
                    }

                    @Override
                    public void lock() {
                        mutex.lock();
                    }

                    @Override
                    public void unlock() {
                        mutex.unlock();
                    }
                };
                case SPIN -> new Exclusion() {
                    private final SpinLock lock = SpinLock.at(memory, DemoRecord.LOCK_WORD);

                    @Override
                    public boolean tryLock() {
                        return lock.tryLock();
                    }

                    @Override
                    public void lock() {
                        lock.lock();
                    }

                    @Override
                    public void unlock() {
                        lock.unlock();
                    }
                };
                case RW -> new Exclusion() {
                    private final WordReadWriteLock lock = WordReadWriteLock.at(memory, DemoRecord.LOCK_WORD);

                    @Override
                    public boolean tryLock() {
                        return lock.tryLockExclusive();
                    }

                    @Override
                    public void lock() {
                        lock.lockExclusive();
                    }

                    @Override
                    public void unlock() {
                        lock.unlockExclusive();
                    }
                };
                case NAMED -> new Exclusion() {
                    @Override
                    public boolean tryLock() {
                        return named.tryLock();
                    }

                    @Override
                    public void lock() {
                        named.lock();
                    }

                    @Override
                    public void unlock() {
                        named.unlock();
                    }
                };
            };
        }
    }

    /** One thread of the peer. */
    private static final class Contender implements Runnable {
        private final DemoRecord record;
        private final Slot slot;
        private final Exclusion exclusion;
        private final WordReadWriteLock readers; // or null
        private final long iterations;
        private long acquisitions;
        private long contended;
        private long mismatches;

        Contender(DemoRecord record, Slot slot, Exclusion exclusion, Mode mode, long iterations) {
            this.record = record;
            this.slot = slot;
            this.exclusion = exclusion;
            this.readers = mode == Mode.RW ? WordReadWriteLock.at(record.memory(), DemoRecord.LOCK_WORD) : null;
            this.iterations = iterations;
        }

        @Override
        public void run() {
            try {
                contend();
            } catch (InternalError e) {
                end(DAMAGED, "DAMAGED " + DamagedMappingException.of(e).getMessage());
            } catch (DamagedMappingException | IllegalMonitorStateException e) {
                end(DAMAGED, "DAMAGED " + e.getMessage());
            } catch (RuntimeException | Error e) {
                slot.setState(State.FAILED);
                end(CommandLine.ExitCode.SOFTWARE, "FAIL " + e);
            }
        }

        private static void end(int exitCode, String message) {
            System.err.println("peer: " + message);
            System.exit(exitCode);
        }

        private void contend() {
            record.gate().awaitCleared();
            slot.setState(State.RUNNING);
            while (acquisitions < iterations) {
                if (readers != null && acquisitions % 4 == 0) {
                    look();
                }
                if (!exclusion.tryLock()) {
                    contended++;
                    exclusion.lock();
                }
                increment();
                exclusion.unlock();
                acquisitions++;
                slot.report(acquisitions, contended, mismatches);
            }
            slot.setState(mismatches == 0 ? State.DONE : State.FAILED);
        }

        private void increment() {
            check(record.ownerSlot() == 0);
            record.setOwnerSlot(slot.ownerId());
            record.setCounter(record.counter() + 1);
            check(record.ownerSlot() == slot.ownerId());
            record.setOwnerSlot(0);
        }

        private void look() {
            readers.lockShared();
            long before = record.counter();
            check(record.ownerSlot() == 0);
            check(record.counter() == before);
            readers.unlockShared();
        }

        private void check(boolean alone) {
            if (!alone) {
                mismatches++;
            }
        }
    }
}
