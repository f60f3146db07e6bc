// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.util.concurrent.TimeUnit.HOURS;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.DamagedMappingException;
import dev.fermata.internal.Futex.Result;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.SignalStorm;
import dev.fermata.testing.Waiter;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the protocols expect of the kernel, through both ways to it, and where a call of it is missing. */
@ParameterizedClass
@MethodSource("backEnds")
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FutexTest {
    private static final long OFFSET = 64;
    private static final long FIRST_SECOND_OF_THE_CLOCK = 1_000_000_000;

    @Parameter
    NativeCalls calls;

    private SharedFile file;
    private Futex futex;
    private Word word;

    static Stream<Named<NativeCalls>> backEnds() throws Exception {
        return BackEnds.allAndPolling();
    }

    @BeforeEach
    void map() throws Exception {
        futex = new Futex.SystemFutex(calls);
        file = SharedFile.create();
        word = Word.at(file.segment(), OFFSET);
    }

    @AfterEach
    void unmap() throws Exception {
        file.close();
    }

    private Waiter<Result> asleep(int expected, long deadline) throws Exception {
        return Waiter.call(() -> futex.wait(word, expected, deadline)).awaitAsleepOn(file.segment(), OFFSET);
    }

    @Test
    void aWakeWithoutASleeperWakesNobody() {
        assertEquals(0, futex.wake(word, 1));
        assertEquals(0, futex.wake(word, Futex.ALL));
    }

    @Test
    void aWaitForAnotherValueReturnsAtOnce() {
        assertEquals(Result.CHANGED, futex.wait(word, 1, Deadline.NEVER));
    }

    @Test
    void aSleeperIsWoken() throws Exception {
        Waiter<Result> sleeper = asleep(0, Deadline.NEVER);
        assertEquals(1, futex.wake(word, 1));
        assertEquals(Result.WOKEN, sleeper.result());
    }

    @Test
    void aSleeperWithADeadlineIsWokenBeforeIt() throws Exception {
        Waiter<Result> sleeper = asleep(0, Deadline.after(1, HOURS));
        assertEquals(1, futex.wake(word, 1));
        assertEquals(Result.WOKEN, sleeper.result());
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, Integer.MIN_VALUE, Integer.MAX_VALUE})
    void allThirtyTwoBitsOfTheExpectedValueAreCompared(int value) {
        word.storeRelaxed(value);
        assertEquals(Result.TIMED_OUT, futex.wait(word, value, FIRST_SECOND_OF_THE_CLOCK));
        assertEquals(Result.CHANGED, futex.wait(word, value ^ Integer.MIN_VALUE, FIRST_SECOND_OF_THE_CLOCK));
    }

    @Test
    void aWakeOfTwoWakesTwoOfThree() throws Exception {
        List<Waiter<Result>> sleepers =
                List.of(asleep(0, Deadline.NEVER), asleep(0, Deadline.NEVER), asleep(0, Deadline.NEVER));
        assertEquals(2, futex.wake(word, 2));
        assertEquals(1, futex.wake(word, Futex.ALL));
        for (Waiter<Result> sleeper : sleepers) {
            assertEquals(Result.WOKEN, sleeper.result());
        }
    }

    @Test
    void aWakeDoesNotReachTheSleepersOfTheWordBeside() throws Exception {
        Waiter<Result> sleeper = asleep(0, Deadline.NEVER);
        assertEquals(0, futex.wake(Word.at(file.segment(), OFFSET + 4), Futex.ALL));
        assertEquals(1, futex.wake(word, Futex.ALL));
        sleeper.result();
    }

    @Test
    void aWakeThroughAnotherMappingOfTheFileReachesTheSleeper() throws Exception {
        Waiter<Result> sleeper = asleep(0, Deadline.NEVER);
        assertEquals(1, futex.wake(Word.at(file.map(), OFFSET), 1));
        assertEquals(Result.WOKEN, sleeper.result());
    }

    @Test
    void aWaitEndsAtItsDeadlineAndNotBefore() {
        long deadline = Deadline.after(50, MILLISECONDS);
        assertEquals(Result.TIMED_OUT, futex.wait(word, 0, deadline));
        assertTrue(System.nanoTime() >= deadline);
    }

    @ParameterizedTest
    @ValueSource(longs = {FIRST_SECOND_OF_THE_CLOCK, 1, 0, -1, Long.MIN_VALUE})
    void aDeadlineInThePastReturnsAtOnce(long deadline) {
        assertEquals(Result.TIMED_OUT, futex.wait(word, 0, deadline));
    }

    @Test
    void aDeadlineIsAbsolute() {
        assertEquals(Result.TIMED_OUT, futex.wait(word, 0, System.nanoTime() - 1));
    }

    @Test
    void signalsInterruptAWaitButNeverEndItBeforeItsDeadline() throws Exception {
        long deadline = Deadline.after(500, MILLISECONDS);
        List<Result> results = new ArrayList<>();
        Waiter<Long> sleeper = Waiter.call(() -> {
            do {
                results.add(futex.wait(word, 0, deadline));
            } while (results.getLast() == Result.INTERRUPTED);
            return System.nanoTime();
        });
        try (SignalStorm<Long> storm = SignalStorm.on(sleeper)) {
            assertTrue(storm.result() >= deadline);
            assertTrue(storm.sent() > 10, "too few signals: " + storm.sent());
        }
        assertEquals(Result.TIMED_OUT, results.getLast());
        assertTrue(results.size() > 10, "too few interruptions: " + results.size());
    }

    @Test
    void aSignalInterruptsAWaitWithoutADeadline() throws Exception {
        Waiter<Result> sleeper = asleep(0, Deadline.NEVER);
        try (SignalStorm<Result> storm = SignalStorm.on(sleeper)) {
            assertEquals(Result.INTERRUPTED, storm.result());
        }
    }

    @Test
    void anInterruptedSleepIsNoError() throws Exception {
        Waiter<Void> sleeper = Waiter.run(() -> futex.sleep(word, 0, Deadline.NEVER));
        sleeper.awaitAsleepOn(file.segment(), OFFSET);
        try (SignalStorm<Void> storm = SignalStorm.on(sleeper)) {
            storm.result();
        }
    }

    @Test
    void processesWithDifferentMappingsWakeEachOther() throws Exception {
        String mine = Long.toHexString(file.segment().address() + OFFSET);
        try (ChildJvm child = ChildJvm.start(Peer.class, options(), file.path().toString(), mine)) {
            String[] asleep = child.readLine().split(" ");
            long theirs = Long.parseLong(asleep[1], 16);
            assertNotEquals(file.segment().address() + OFFSET, theirs);
            while (!Kernel.isAsleepOn(child.pid(), Integer.parseInt(asleep[0]), theirs)) {
                LockSupport.parkNanos(100_000);
            }
            assertEquals(1, futex.wake(word, Futex.ALL));
            assertEquals("WOKEN", child.readLine());
            assertEquals(Result.WOKEN, futex.wait(word, 0, Deadline.NEVER)); // the child wakes until somebody sleeps
            child.awaitSuccess();
        }
    }

    private List<String> options() {
        return List.of(ChildJvm.NATIVE_ACCESS,
                "-Ddev.fermata.native=" + (calls.describe().startsWith("libc") ? "libc" : "ffm"),
                "-Ddev.fermata.waitv=" + (calls instanceof PollingCalls ? "off" : "on"));
    }

    /** Sleeps on the word, then wakes one who sleeps there. */
    static final class Peer {
        public static void main(String[] arguments) throws Exception {
            try (FileChannel channel = FileChannel.open(
                    Path.of(arguments[0]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                MemorySegment segment = channel.map(MapMode.READ_WRITE, 0, SharedFile.SIZE, Arena.global());
                if (Long.toHexString(segment.address() + OFFSET).equals(arguments[1])) {
                    segment = channel.map(MapMode.READ_WRITE, 0, SharedFile.SIZE, Arena.global());
                }
                Word word = Word.at(segment, OFFSET);
                System.out.println(Kernel.tid() + " " + Long.toHexString(segment.address() + OFFSET));
                System.out.println(Futex.SYSTEM.wait(word, 0, Deadline.NEVER));
                while (Futex.SYSTEM.wake(word, 1) == 0) {
                    LockSupport.parkNanos(100_000);
                }
            }
        }
    }

    @Test
    void aLostPageIsATypedResultOfEveryCall() throws Exception {
        file.truncate();
        assertEquals(Result.FAULT, futex.wait(word, 0, FIRST_SECOND_OF_THE_CLOCK));
        assertEquals(Result.FAULT, futex.waitAny(new Word[] {word}, new int[] {0}, FIRST_SECOND_OF_THE_CLOCK));
        assertThrows(DamagedMappingException.class, () -> futex.sleep(word, 0, FIRST_SECOND_OF_THE_CLOCK));
        DamagedMappingException e = assertThrows(DamagedMappingException.class, () -> futex.wake(word, 1));
        assertTrue(e.getMessage().contains("offset " + OFFSET), e.getMessage());
    }

    @Test
    void aMisalignedWordIsATypedResultOfEveryCall() {
        MemorySegment misaligned = file.segment().asSlice(OFFSET + 1, 4);
        assertEquals(Result.INVALID,
                Futex.SystemFutex.result(calls.futexWait(misaligned, 0, FIRST_SECOND_OF_THE_CLOCK)));
        assertEquals(Result.INVALID, Futex.SystemFutex.result(calls.futexWake(misaligned.address(), 1)));
    }

    @Test
    void aMissingCallIsATypedResultAndAnUnknownErrorIsNot() {
        assertEquals(Result.UNSUPPORTED, Futex.SystemFutex.result(-38));
        assertThrows(IllegalStateException.class, () -> Futex.SystemFutex.result(-1));
    }

    private Word[] words(int n) {
        Word[] words = new Word[n];
        Arrays.setAll(words, i -> Word.at(file.segment(), 4L * i));
        return words;
    }

    /** A thread that waits for all of these words to change from 0. */
    private Waiter<Integer> asleepOnAll(Word... words) throws Exception {
        MemorySegment addresses = Arena.ofAuto().allocate(ValueLayout.JAVA_LONG, words.length);
        for (int i = 0; i < words.length; i++) {
            addresses.setAtIndex(ValueLayout.JAVA_LONG, i, words[i].segment().address());
        }
        MemorySegment values = Arena.ofAuto().allocate(ValueLayout.JAVA_INT, words.length);
        Waiter<Integer> sleeper =
                Waiter.call(() -> calls.futexWaitAny(addresses, values, words.length, Deadline.NEVER));
        return sleeper.awaitAsleepOn(words[0].segment(), 0);
    }

    @Test
    void aWaitOnSeveralWordsIsWokenByEachOfThemAndTellsWhich() throws Exception {
        for (int i = 0; i < 3; i++) {
            Waiter<Integer> sleeper = asleepOnAll(words(3));
            words(3)[i].storeRelaxed(1);
            futex.wake(words(3)[i], Futex.ALL);
            assertEquals(i, sleeper.result());
            words(3)[i].storeRelaxed(0);
        }
    }

    @Test
    void aWaitOnSeveralWordsIsWokenWithoutAChange() throws Exception {
        for (int i = 0; i < (calls instanceof PollingCalls ? 1 : 3); i++) { // which sleeps on the first word only
            Waiter<Integer> sleeper = asleepOnAll(words(3));
            while (futex.wake(words(3)[i], Futex.ALL) == 0) {
                assertTrue(calls instanceof PollingCalls, "there is a sleeper, and it was not woken");
            }
            assertEquals(i, sleeper.result());
        }
    }

    @Test
    void aWaitOnSeveralWordsOutlastsManyLooks() throws Exception {
        Waiter<Integer> sleeper = asleepOnAll(words(3));
        Thread.sleep(50);
        assertFalse(sleeper.isDone());
        words(3)[2].storeRelaxed(1);
        futex.wake(words(3)[2], 1);
        assertEquals(2, sleeper.result());
    }

    @Test
    void aPageThatIsLostDuringAWaitOnSeveralWordsIsFoundByTheNext() throws Exception {
        Word intact = Word.at(Arena.ofAuto().allocate(ValueLayout.JAVA_INT), 0);
        Waiter<Result> sleeper = Waiter.call(() -> {
            Result result;
            do {
                long until = Deadline.after(20, MILLISECONDS);
                result = futex.waitAny(new Word[] {intact, word}, new int[2], until);
            } while (result == Result.TIMED_OUT);
            return result;
        });
        sleeper.awaitAsleepOn(intact.segment(), 0);
        file.truncate();
        assertEquals(Result.FAULT, sleeper.result());
    }

    /** Compiled code steps over an access to a lost page, and is told later. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1})
    void aLostPageIsNeverTakenForAChange(int expected) throws Exception {
        Word intact = Word.at(Arena.ofAuto().allocate(ValueLayout.JAVA_INT), 0);
        Word[] words = {intact, word};
        for (int i = 0; i < 20_000; i++) {
            assertEquals(expected == 0 ? Result.TIMED_OUT : Result.CHANGED,
                    futex.waitAny(words, new int[] {0, expected}, 1));
        }
        file.truncate();
        for (int i = 0; i < 1_000; i++) {
            assertEquals(Result.FAULT, futex.waitAny(words, new int[] {0, expected}, 1));
        }
    }

    @Test
    void aWaitOnSeveralWordsReturnsAtOnceIfOneOfThemHasAnotherValue() {
        assertEquals(Result.CHANGED, futex.waitAny(words(3), new int[] {0, 0, 1}, Deadline.NEVER));
    }

    @Test
    void aWaitOnSeveralWordsComparesAllThirtyTwoBits() {
        word.storeRelaxed(-1);
        assertEquals(Result.TIMED_OUT, futex.waitAny(new Word[] {word}, new int[] {-1}, FIRST_SECOND_OF_THE_CLOCK));
    }

    @Test
    void aWaitOnSeveralWordsEndsAtItsDeadlineAndNotBefore() {
        long deadline = Deadline.after(50, MILLISECONDS);
        assertEquals(Result.TIMED_OUT, futex.waitAny(words(3), new int[3], deadline));
        assertTrue(System.nanoTime() >= deadline);
        assertEquals(Result.TIMED_OUT, futex.waitAny(words(3), new int[3], Long.MIN_VALUE));
    }

    @Test
    void aWaitOnAtMost128WordsIsPossible() {
        assertEquals(Result.TIMED_OUT, futex.waitAny(words(128), new int[128], FIRST_SECOND_OF_THE_CLOCK));
        assertEquals(Result.INVALID, futex.waitAny(words(129), new int[129], FIRST_SECOND_OF_THE_CLOCK));
        assertEquals(Result.INVALID, futex.waitAny(new Word[0], new int[0], FIRST_SECOND_OF_THE_CLOCK));
    }

    @Test
    void theArenaCannotBeClosedDuringAWait() throws Exception {
        Waiter<Result> sleeper = asleep(0, Deadline.NEVER);
        assertThrows(IllegalStateException.class, file::closeArena);
        assertEquals(1, futex.wake(word, 1));
        assertEquals(Result.WOKEN, sleeper.result());
        file.closeArena();
    }

    @Test
    void memoryThatItsLastUserHasClosedHasNobodyToWakeAndCannotBeWaitedOn() {
        file.closeArena();
        assertEquals(0, futex.wake(word, 1));
        assertThrows(IllegalStateException.class, () -> futex.wait(word, 0, FIRST_SECOND_OF_THE_CLOCK));
    }

    @Test
    void aGuardThatIsWokenWakesAllOthersOnEveryWordButItsFirst() throws Exception {
        Word[] words = words(3);
        List<Waiter<Result>> guards = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            guards.add(Waiter.call(() -> futex.guard(words, new int[3], Deadline.NEVER)));
            guards.getLast().awaitAsleepOn(words[0].segment(), 0);
        }
        List<Waiter<Result>> beside = new ArrayList<>();
        for (Word each : words) {
            beside.add(Waiter.call(() -> futex.wait(each, 0, Deadline.NEVER)));
            beside.getLast().awaitAsleepOn(each.segment(), 0);
        }
        words[1].storeRelaxed(1);
        words[2].storeRelaxed(1); // as if that one had died, too
        futex.wake(words[1], 1); // the kernel takes the one who came first
        for (Waiter<Result> guard : guards) {
            assertEquals(Result.WOKEN, guard.result());
        }
        assertEquals(Result.WOKEN, beside.get(1).result());
        assertEquals(Result.WOKEN, beside.get(2).result());
        assertFalse(beside.get(0).isDone());
        assertEquals(1, futex.wake(words[0], Futex.ALL));
        beside.get(0).result();
    }

    @Test
    void aGuardThatIsWokenByItsFirstWordPassesOnWhatItMayHaveTakenFromTheOthers() throws Exception {
        Word[] words = words(2);
        Waiter<Result> guard = Waiter.call(() -> futex.guard(words, new int[2], Deadline.NEVER));
        guard.awaitAsleepOn(words[0].segment(), 0);
        Waiter<Result> beside = Waiter.call(() -> futex.wait(words[1], 0, Deadline.NEVER));
        beside.awaitAsleepOn(words[1].segment(), 0);
        words[1].storeRelaxed(1);
        futex.wake(words[0], 1);
        assertEquals(Result.WOKEN, guard.result());
        assertEquals(Result.WOKEN, beside.result());
    }

    @Test
    void aGuardThatIsNotWokenWakesNobody() throws Exception {
        try (Arena arena = Arena.ofShared()) {
            MemorySegment addresses = arena.allocateFrom(ValueLayout.JAVA_LONG,
                    file.segment().address(), file.segment().address() + OFFSET);
            MemorySegment values = arena.allocateFrom(ValueLayout.JAVA_INT, 0, 0);
            Waiter<Result> beside = asleep(0, Deadline.NEVER);
            assertEquals(-110, calls.guard(addresses, values, 2, FIRST_SECOND_OF_THE_CLOCK));
            assertFalse(beside.isDone());
            assertEquals(1, futex.wake(word, Futex.ALL));
            beside.result();
        }
    }
}
