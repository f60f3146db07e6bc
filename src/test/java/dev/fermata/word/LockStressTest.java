// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.util.concurrent.TimeUnit.MICROSECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Futex;
import dev.fermata.internal.Word;
import dev.fermata.testing.ContractLock;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** More threads than processors, each with a mapping and a lock object of its own. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LockStressTest {
    private static final int THREADS = Math.max(8, Runtime.getRuntime().availableProcessors() + 4);
    private static final int ITERATIONS = 10_000;
    private static final long WORD = 0;
    private static final long COUNTER = 64;
    private static final long OWNER = 128;

    private SharedFile file;

    @BeforeEach
    void map() throws Exception {
        file = SharedFile.create();
    }

    @AfterEach
    void unmap() throws Exception {
        file.close();
    }

    interface Factory {
        ContractLock at(MemorySegment segment);
    }

    static Stream<Named<Factory>> locks() {
        return Stream.of(
                Named.of("SpinLock", segment -> new ContractLock.Spin(SpinLock.at(segment, WORD))),
                Named.of("SpinLock that does not spin",
                        segment -> new ContractLock.Spin(SpinLock.at(segment, WORD, 0))),
                Named.of("WordMutex", segment -> new ContractLock.Mutex(WordMutex.at(segment, WORD))),
                Named.of("WordMutex with counter and owner", segment -> new ContractLock.Mutex(
                        WordMutex.at(segment, WORD).withSlowPathCounter(WORD + 4).withOwnerWord(WORD + 8))),
                Named.of("WordReadWriteLock, exclusive",
                        segment -> new ContractLock.Exclusive(WordReadWriteLock.at(segment, WORD))));
    }

    @ParameterizedTest
    @MethodSource("locks")
    void threadsNeverMeetInsideAndNoneIsForgotten(Factory factory) throws Exception {
        List<Waiter<Long>> threads = new ArrayList<>();
        for (int i = 1; i <= THREADS; i++) {
            MemorySegment mine = file.map();
            int id = i;
            threads.add(Waiter.call(() -> hammer(factory.at(mine), mine, id)));
        }
        long acquisitions = 0;
        for (Waiter<Long> thread : threads) {
            acquisitions += thread.result();
        }
        assertTrue(acquisitions > 0);
        assertEquals(acquisitions, file.segment().get(JAVA_LONG, COUNTER));
        assertEquals(0, file.segment().get(JAVA_INT, WORD));
    }

    /** Takes the lock many times and returns how often that succeeded. */
    private static long hammer(ContractLock lock, MemorySegment segment, int id) {
        SplittableRandom random = new SplittableRandom(id);
        long acquisitions = 0;
        for (int i = 0; i < ITERATIONS; i++) {
            if (!take(lock, random.nextInt(100))) {
                continue;
            }
            try {
                enter(segment, id);
                linger(random.nextInt(1000));
                leave(segment, id);
                acquisitions++;
            } finally {
                lock.unlock();
            }
        }
        return acquisitions;
    }

    private static boolean take(ContractLock lock, int percent) {
        if (percent < 5) {
            return lock.tryLock();
        } else if (percent < 20) {
            return lock.tryLock(20, MICROSECONDS);
        }
        lock.lock();
        return true;
    }

    /** Plain accesses: only the lock orders them. */
    private static void enter(MemorySegment segment, int id) {
        assertEquals(0, segment.get(JAVA_INT, OWNER), "somebody is inside");
        segment.set(JAVA_INT, OWNER, id);
        segment.set(JAVA_LONG, COUNTER, segment.get(JAVA_LONG, COUNTER) + 1);
    }

    private static void leave(MemorySegment segment, int id) {
        assertEquals(id, segment.get(JAVA_INT, OWNER), "somebody came in");
        segment.set(JAVA_INT, OWNER, 0);
    }

    private static void linger(int permille) {
        if (permille < 2) {
            LockSupport.parkNanos(50_000);
        } else if (permille < 30) {
            Thread.yield();
        } else if (permille < 300) {
            for (int i = 0; i < 10; i++) {
                Thread.onSpinWait();
            }
        }
    }

    @Test
    void readersSeeNoWriterAndWritersSeeNobody() throws Exception {
        List<Waiter<Long>> threads = new ArrayList<>();
        for (int i = 1; i <= THREADS; i++) {
            MemorySegment mine = file.map();
            int id = i;
            threads.add(Waiter.call(() -> readAndWrite(WordReadWriteLock.at(mine, WORD), mine, id)));
        }
        long writes = 0;
        for (Waiter<Long> thread : threads) {
            writes += thread.result();
        }
        assertEquals(writes, file.segment().get(JAVA_LONG, COUNTER));
        assertEquals(0, file.segment().get(JAVA_INT, WORD));
    }

    /** Reads mostly, writes at times, and returns how often it wrote. */
    private static long readAndWrite(WordReadWriteLock lock, MemorySegment segment, int id) {
        SplittableRandom random = new SplittableRandom(id);
        ContractLock shared = new ContractLock.Shared(lock);
        ContractLock exclusive = new ContractLock.Exclusive(lock);
        long writes = 0;
        for (int i = 0; i < ITERATIONS; i++) {
            boolean write = random.nextInt(10) == 0;
            if (!take(write ? exclusive : shared, random.nextInt(100))) {
                continue;
            }
            long before = segment.get(JAVA_LONG, COUNTER);
            if (write) {
                enter(segment, id);
                linger(random.nextInt(1000));
                leave(segment, id);
                writes++;
                if (random.nextBoolean()) {
                    exclusive.unlock();
                    continue;
                }
                lock.downgrade();
                before++;
            }
            assertEquals(0, segment.get(JAVA_INT, OWNER), "a writer is inside");
            linger(random.nextInt(1000));
            assertEquals(before, segment.get(JAVA_LONG, COUNTER), "a writer came in");
            shared.unlock();
        }
        return writes;
    }

    @Test
    void twoThreadsHandAFlagToAndFroWithoutAStall() throws Exception {
        AtomicFlag flag = AtomicFlag.at(file.segment(), WORD);
        int rounds = 5_000;
        Waiter<Void> other = Waiter.run(() -> {
            for (int i = 0; i < rounds; i++) {
                flag.awaitSet();
                flag.clear();
            }
        });
        for (int i = 0; i < rounds; i++) {
            flag.awaitCleared();
            assertEquals(false, flag.testAndSet());
        }
        other.result();
    }

    @Test
    void aFlagWakesExactlyAsOftenAsItChangesThoughManyCompete() throws Exception {
        AtomicInteger wakes = new AtomicInteger();
        AtomicFlag flag = new AtomicFlag(Word.at(file.segment(), WORD), counting(wakes, new AtomicInteger()));
        List<Waiter<Integer>> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            threads.add(Waiter.call(() -> {
                int changes = 0;
                for (int n = 0; n < ITERATIONS; n++) {
                    changes += flag.testAndSet() ? 0 : 1;
                    changes += flag.clear() ? 1 : 0;
                }
                return changes;
            }));
        }
        int changes = 0;
        for (Waiter<Integer> thread : threads) {
            changes += thread.result();
        }
        assertEquals(changes, wakes.get());
    }

    @Test
    void oneUnlockWakesOneOfTwoHundredWaiters() throws Exception {
        MemorySegment segment = file.segment();
        AtomicInteger wakes = new AtomicInteger();
        AtomicInteger woken = new AtomicInteger();
        WordMutex mutex = new WordMutex(segment, Word.at(segment, WORD), counting(wakes, woken), null, null, 0);
        AtomicInteger inside = new AtomicInteger();
        mutex.lock();
        List<Waiter<Void>> waiters = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            waiters.add(Waiter.run(() -> {
                mutex.lock();
                inside.incrementAndGet();
            }));
        }
        for (Waiter<Void> waiter : waiters) {
            waiter.awaitAsleepOn(segment, WORD);
        }
        for (int n = 1; n <= 200; n++) {
            mutex.unlock();
            while (inside.get() < n) {
                Thread.yield();
            }
            assertEquals(n, wakes.get());
            assertTrue(n > 1 ? woken.get() <= n : woken.get() == 1, woken + " woken by " + n + " unlocks");
            assertEquals(n, inside.get());
        }
        for (Waiter<Void> waiter : waiters) {
            waiter.result();
        }
        mutex.unlock();
    }

    private static Futex counting(AtomicInteger wakes, AtomicInteger woken) {
        return new Futex() {
            @Override
            public Result wait(Word word, int expected, long deadline) {
                return SYSTEM.wait(word, expected, deadline);
            }

            @Override
            public Result waitAny(Word[] words, int[] expected, long deadline) {
                return SYSTEM.waitAny(words, expected, deadline);
            }

            @Override
            public Result guard(Word[] words, int[] expected, long deadline) {
                return SYSTEM.guard(words, expected, deadline);
            }

            @Override
            public int wake(Word word, int count) {
                wakes.incrementAndGet();
                int n = SYSTEM.wake(word, count);
                woken.addAndGet(n);
                return n;
            }
        };
    }
}
