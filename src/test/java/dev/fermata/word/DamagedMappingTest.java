// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.fermata.DamagedMappingException;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.ContractLock;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What becomes of a file that is truncated while it is mapped. In a child, since a wrong answer can end the JVM. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DamagedMappingTest {
    /** Runs one that prints what goes wrong. */
    private static void assertSilent(Class<?> main, String... options) throws Exception {
        String backEnd = "-Ddev.fermata.native=" + System.getProperty("dev.fermata.native", "ffm");
        ChildJvm.End end = ChildJvm.run(main, Stream.concat(
                Stream.of(ChildJvm.NATIVE_ACCESS, backEnd), Arrays.stream(options)).toList());
        assertEquals("", end.output());
        assertEquals(0, end.code());
    }

    @ParameterizedTest
    @ValueSource(strings = {"-Xmixed", "-Xint", "-Xcomp"})
    void noMethodSucceedsOnALostPageAndTheJvmSurvives(String compilation) throws Exception {
        assertSilent(EveryMethod.class, compilation, "-Dpage.fault.is.damage=true");
    }

    /** Not under -Xcomp: compiled code may be told of the fault so late that it reaches the caller. */
    @ParameterizedTest
    @ValueSource(strings = {"-Xmixed", "-Xint"})
    void aLostPageIsADamagedMappingToEveryMethodThatChangesTheWord(String compilation) throws Exception {
        assertSilent(EveryMethod.class, compilation, "-Dleave.out=true");
    }

    @Test
    void aLostPageIsADamagedMappingToEveryMethodThatOnlyLooks() throws Exception {
        assertSilent(EveryMethod.class);
    }

    @Test
    void theJvmSurvivesThatThePageIsTakenAwayFromUnderABusyLock() throws Exception {
        assertSilent(BusyLocks.class);
    }

    @Test
    void thoseWhoSleepOnALostPageFindThatOut() throws Exception {
        assertSilent(Sleepers.class);
    }

    @Test
    void aPageThatWasLostAndCameBackIsAFreeLock() throws Exception {
        try (SharedFile file = SharedFile.create()) {
            WordMutex mutex = WordMutex.at(file.segment(), 0);
            mutex.lock();
            file.truncate();
            file.grow();
            assertThrows(IllegalMonitorStateException.class, mutex::unlock);
        }
    }

    /** Whether this is one of the ways in which a lost page is told. */
    private static boolean isDamage(Throwable e) {
        if (e instanceof InternalError error && Boolean.getBoolean("page.fault.is.damage")) {
            return DamagedMappingException.of(error) != null;
        }
        return e instanceof DamagedMappingException;
    }

    /** Calls every method once on a lost page, and prints what is not the right answer. */
    static final class EveryMethod {
        private interface Action {
            Object run() throws Exception;
        }

        public static void main(String[] arguments) throws Exception {
            SharedFile file = SharedFile.create().unlink();
            MemorySegment segment = file.segment();
            SpinLock spin = SpinLock.at(segment, 0);
            WordMutex mutex = WordMutex.at(segment, 64).withSlowPathCounter(68).withOwnerWord(72);
            WordReadWriteLock shared = WordReadWriteLock.at(segment, 128);
            WordReadWriteLock exclusive = WordReadWriteLock.at(segment, 192);
            AtomicFlag flag = AtomicFlag.at(segment, 256);
            spin.lock();
            mutex.lock();
            shared.lockShared();
            exclusive.lockExclusive();
            file.truncate();
            expect("SpinLock.tryLock", spin::tryLock);
            expect("SpinLock.lock", () -> run(spin::lock));
            expect("SpinLock.unlock", () -> run(spin::unlock));
            expect("WordMutex.tryLock", mutex::tryLock);
            expect("WordMutex.lock", () -> run(mutex::lock));
            expect("WordMutex.tryLock(1 s)", () -> mutex.tryLock(1, TimeUnit.SECONDS));
            expect("WordMutex.unlock", () -> run(mutex::unlock));
            expect("WordReadWriteLock.tryLockShared", shared::tryLockShared);
            expect("WordReadWriteLock.lockShared", () -> run(shared::lockShared));
            expect("WordReadWriteLock.unlockShared", () -> run(shared::unlockShared));
            expect("WordReadWriteLock.tryLockExclusive", exclusive::tryLockExclusive);
            expect("WordReadWriteLock.lockExclusive", () -> run(exclusive::lockExclusive));
            expect("WordReadWriteLock.unlockExclusive", () -> run(exclusive::unlockExclusive));
            expect("WordReadWriteLock.downgrade", () -> run(exclusive::downgrade));
            expect("AtomicFlag.testAndSet", flag::testAndSet);
            expect("AtomicFlag.clear", flag::clear);
            expect("AtomicFlag.awaitSet", () -> run(flag::awaitSet));
            expect("AtomicFlag.awaitCleared", () -> run(flag::awaitCleared));
            // Compiled by C2, these may return before the JVM tells of the fault, which then reaches the caller.
            if (!Boolean.getBoolean("leave.out")) {
                expect("WordMutex.isLocked", mutex::isLocked);
                expect("WordMutex.owner", mutex::owner);
                expect("WordMutex.slowPathAcquisitions", mutex::slowPathAcquisitions);
                expect("SpinLock.isLocked", spin::isLocked);
                expect("WordReadWriteLock.isExclusive", exclusive::isExclusive);
                expect("WordReadWriteLock.sharedCount", exclusive::sharedCount);
                expect("AtomicFlag.isSet", flag::isSet);
            }
        }

        private static Object run(Runnable action) {
            action.run();
            return "done";
        }

        private static void expect(String name, Action action) {
            try {
                System.out.println(name + " returned " + action.run());
            } catch (Throwable e) {
                if (!isDamage(e)) {
                    System.out.println(name + ": " + e);
                }
            }
        }
    }

    /** Truncates while there are sleepers, whom nobody can wake any more; ends when all have been told. */
    static final class Sleepers {
        public static void main(String[] arguments) throws Exception {
            SharedFile file = SharedFile.create().unlink();
            MemorySegment segment = file.segment();
            SpinLock spin = SpinLock.at(segment, 0);
            WordMutex mutex = WordMutex.at(segment, 64);
            WordReadWriteLock shared = WordReadWriteLock.at(segment, 128);
            WordReadWriteLock exclusive = WordReadWriteLock.at(segment, 192);
            AtomicFlag flag = AtomicFlag.at(segment, 256);
            spin.lock();
            mutex.lock();
            shared.lockShared();
            exclusive.lockExclusive();
            List<Waiter<Void>> sleepers = List.of(
                    Waiter.run(spin::lock).awaitAsleepOn(segment, 0),
                    Waiter.run(mutex::lock).awaitAsleepOn(segment, 64),
                    Waiter.run(shared::lockExclusive).awaitAsleepOn(segment, 128),
                    Waiter.run(exclusive::lockShared).awaitAsleepOn(segment, 192),
                    Waiter.run(flag::awaitSet).awaitAsleepOn(segment, 256));
            file.truncate();
            for (Waiter<Void> sleeper : sleepers) {
                try {
                    System.out.println("returned " + sleeper.result());
                } catch (Throwable e) {
                    if (!isDamage(e)) {
                        System.out.println(e);
                    }
                }
            }
        }
    }

    /** Truncates under a thread that locks and unlocks all the time, and prints how it ended if not rightly. */
    static final class BusyLocks {
        private static final int ROUNDS = 9;
        private static final int BUSY = 20_000;

        public static void main(String[] arguments) throws Exception {
            System.setProperty("page.fault.is.damage", "true");
            for (int i = 0; i < ROUNDS; i++) {
                SharedFile file = SharedFile.create().unlink();
                MemorySegment segment = file.segment();
                ContractLock lock = switch (i % 3) {
                    case 0 -> new ContractLock.Mutex(WordMutex.at(segment, 0));
                    case 1 -> new ContractLock.Shared(WordReadWriteLock.at(segment, 0));
                    default -> new ContractLock.Spin(SpinLock.at(segment, 0));
                };
                AtomicInteger done = new AtomicInteger();
                Waiter<Void> busy = Waiter.run(() -> {
                    while (true) {
                        lock.lock();
                        lock.unlock();
                        done.incrementAndGet();
                    }
                });
                while (done.get() < BUSY) {
                    Thread.onSpinWait();
                }
                file.truncate();
                try {
                    busy.result();
                } catch (Throwable e) {
                    if (!isDamage(e)) {
                        System.out.println(lock.getClass() + ": " + e);
                    }
                }
            }
        }
    }
}
