// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.LockFileException.Reason;
import dev.fermata.internal.Layout;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.ConsoleHandler;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Other processes die, or stop, or leave; this one goes on. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RecoveryTest {
    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.open(place.file());
        mutex = file.mutex("m", LockPeer.RECORD);
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    private void reopen(LockFile.Builder builder) throws Exception {
        file.close();
        java.nio.file.Files.deleteIfExists(place.file());
        file = builder.open();
        mutex = file.mutex("m", LockPeer.RECORD);
    }

    private Waiter<String> lockAndUnlock() throws Exception {
        Waiter<String> waiter = Waiter.call(() -> {
            mutex.lock();
            try {
                return mutex.ownerDied() ? "told" : "plain";
            } finally {
                mutex.unlock();
            }
        });
        return waiter.awaitAsleepOn(mutex.memory(), 4);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    @Tag("polling")
    void oneOfTheWaitersIsToldOfADeath(boolean symmetric) throws Exception {
        if (symmetric) {
            reopen(LockFile.builder(place.file()).symmetric());
        }
        try (LockPeer holder = LockPeer.start(place.file());
                LockPeer other = LockPeer.start(place.file())) {
            assertEquals("locked", holder.ask("lock m"));
            other.tell("update m 1");
            List<Waiter<String>> waiters = List.of(lockAndUnlock(), lockAndUnlock());
            holder.kill();
            other.expect("updated");
            int told = 0;
            for (Waiter<String> waiter : waiters) {
                told += waiter.result().equals("told") ? 1 : 0;
            }
            assertEquals(1, mutex.info().recovered());
            assertTrue(told <= 1);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {99, 1 << 20, -1})
    void aLockIsSweptWhateverWasWrittenOverItsIntent(int stray) throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            assertEquals("locked", holder.ask("lock m"));
            mutex.memory().set(JAVA_INT, Layout.E_INTENT, stray);
            holder.kill();
            while (file.participants().size() > 1) {
                Thread.sleep(1); // its slot is freed after the sweep
            }
            assertEquals(Layout.ABANDONED, mutex.memory().get(JAVA_INT, Layout.E_OWNER));
        }
    }

    @Test
    void theNextWhoComesIsToldIfNobodyWaits() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            assertEquals("locked", holder.ask("lock m"));
            assertFalse(mutex.tryLock());
            holder.kill();
        }
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        assertTrue(mutex.ownerDied());
        mutex.unlock();
        mutex.lock();
        assertFalse(mutex.ownerDied());
        mutex.unlock();
    }

    @Test
    void aProbeThatGetsTheLockIsTold() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            holder.kill();
        }
        while (!mutex.tryLock()) {
            Thread.sleep(1);
        }
        assertTrue(mutex.ownerDied());
        mutex.unlock();
    }

    @ParameterizedTest
    @ValueSource(strings = {"exit", "halt"})
    void leavingWithTheLockIsADeath(String how) throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            holder.tell(how);
            holder.child().process().waitFor();
        }
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        assertTrue(mutex.ownerDied());
        mutex.unlock();
    }

    @Test
    void exitingWithoutTheLockIsNone() throws Exception {
        try (LockPeer peer = LockPeer.start(place.file())) {
            assertEquals("updated", peer.ask("update m 1"));
            peer.tell("exit");
            assertEquals(0, peer.child().process().waitFor());
        }
        assertEquals(1, file.participants().size());
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    @Tag("polling")
    void closingWithTheLockHeldAbandonsIt() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            Waiter<String> waiter = lockAndUnlock();
            assertEquals("closed", holder.ask("close"));
            assertEquals("told", waiter.result());
        }
    }

    @Test
    void theHandlerRepairsUnderTheLock() throws Exception {
        AtomicInteger repairs = new AtomicInteger();
        mutex.onOwnerDeath(m -> {
            assertTrue(m.isHeldByCurrentThread());
            LockPeer.repair(m.payload());
            repairs.incrementAndGet();
        });
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            holder.ask("half m");
            Waiter<String> waiter = lockAndUnlock();
            holder.kill();
            waiter.result();
        }
        assertEquals(1, repairs.get());
        assertEquals(0, mutex.payload().get(JAVA_LONG, 0));
    }

    /** The lock is abandoned, and nobody here waits for it. */
    private void abandon() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            holder.kill();
        }
        while (file.participants().size() > 1) {
            Thread.sleep(1);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"acquire", "acquire within", "tryAcquire", "tryLock"})
    void theHandlerRunsOnceHoweverTheLockIsTaken(String how) throws Exception {
        AtomicInteger repairs = new AtomicInteger();
        mutex.onOwnerDeath(m -> repairs.incrementAndGet());
        abandon();
        switch (how) {
            case "acquire" -> mutex.acquire().close();
            case "acquire within" -> mutex.acquire(Duration.ofSeconds(10)).close();
            case "tryAcquire" -> mutex.tryAcquire().orElseThrow().close();
            default -> {
                assertTrue(mutex.tryLock());
                mutex.unlock();
            }
        }
        assertEquals(1, repairs.get());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theHandlerMayDoWhatAHolderMay(boolean token) throws Exception {
        abandon();
        AtomicInteger repairs = new AtomicInteger();
        mutex.onOwnerDeath(m -> {
            assertTrue(m.ownerDied());
            assertTrue(m.fence() > 1);
            m.lock();
            assertEquals(2, m.holdCount());
            m.unlock();
            repairs.incrementAndGet();
        });
        if (token) {
            try (Hold hold = mutex.acquire()) {
                assertTrue(hold.ownerDied());
                assertFalse(mutex.isHeldByCurrentThread());
                assertFalse(mutex.tryLock());
            }
        } else {
            mutex.lock();
            mutex.unlock();
        }
        assertEquals(1, repairs.get());
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aHandlerThatReleasesTheLockGivesItToNobody(boolean again) throws Exception {
        abandon();
        mutex.onOwnerDeath(m -> {
            m.unlock();
            if (again) {
                m.lock();
            }
        });
        assertThrows(IllegalMonitorStateException.class, mutex::lock);
        assertFalse(mutex.isHeldByCurrentThread());
        assertEquals(LockInfo.State.FREE, mutex.info().state());
    }

    @Test
    void aHandlerThatClosesTheFileLeavesTheLockToOthers() throws Exception {
        abandon();
        mutex.onOwnerDeath(m -> file.close());
        assertThrows(LockFileClosedException.class, mutex::lock);
        assertFalse(mutex.isHeldByCurrentThread());
        try (LockPeer next = LockPeer.start(place.file())) {
            assertEquals("locked, owner died", next.ask("lock m"));
        }
    }

    @Test
    void aRepairThatFailsIsNotTakenForADeath() throws Exception {
        reopen(LockFile.builder(place.file()).ownerDeath(OwnerDeath.STRICT));
        abandon();
        OwnerDiedException died = assertThrows(OwnerDiedException.class, mutex::lock);
        assertTrue(died.getMessage().contains("its last owner died with it: pid"), died.getMessage());
        assertThrows(IllegalArgumentException.class, () -> mutex.recover(() -> {
            throw new IllegalArgumentException("cannot repair");
        }));
        OwnerDiedException failed = assertThrows(OwnerDiedException.class, mutex::lock);
        assertTrue(failed.getMessage().contains("could not repair it: pid " + ProcessHandle.current().pid()),
                failed.getMessage());
        assertTrue(mutex.recover(() -> { }));
    }

    @Test
    void aHandlerThatThrowsLeavesTheLockAbandonedForTheNextSleeper() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file());
                LockPeer next = LockPeer.start(place.file())) {
            holder.ask("lock m");
            mutex.onOwnerDeath(m -> {
                throw new IllegalArgumentException("cannot repair");
            });
            Waiter<String> waiter = lockAndUnlock();
            holder.kill();
            assertEquals("cannot repair", assertThrows(IllegalArgumentException.class, waiter::result).getMessage());
            assertEquals("locked, owner died", next.ask("lock m"));
            assertEquals("unlocked", next.ask("unlock m"));
        }
        mutex.lock();
        assertFalse(mutex.ownerDied());
        mutex.unlock();
    }

    @Test
    void whoWasToldAndDiesLeavesItAbandonedAgain() throws Exception {
        for (int i = 0; i < 3; i++) {
            try (LockPeer holder = LockPeer.start(place.file())) {
                assertEquals(i == 0 ? "locked" : "locked, owner died", holder.ask("try m 10000"));
                holder.kill();
            }
        }
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
        assertTrue(mutex.ownerDied());
        mutex.unlock();
        assertEquals(3, mutex.info().recovered());
    }

    @Test
    void aStrictLockRefusesUntilItIsRecovered() throws Exception {
        SharedMutex strict = file.mutex("strict", LockPeer.RECORD, OwnerDeath.STRICT);
        try (LockPeer holder = LockPeer.start(place.file());
                LockPeer other = LockPeer.start(place.file())) {
            holder.ask("lock strict");
            holder.ask("half strict");
            Waiter<Boolean> waiter = Waiter.call(() -> {
                strict.lock();
                return true;
            });
            waiter.awaitAsleepOn(strict.memory(), 4);
            other.tell("lock strict");
            holder.kill();
            OwnerDiedException e = assertThrows(OwnerDiedException.class, waiter::result);
            assertTrue(e.getMessage().contains("pid " + holder.pid()), e.getMessage());
            assertTrue(other.answer().startsWith("OwnerDiedException"));
            assertThrows(OwnerDiedException.class, strict::tryLock);
            assertThrows(OwnerDiedException.class, () -> strict.tryLock(1, TimeUnit.SECONDS));
            assertThrows(OwnerDiedException.class, strict::acquire);
            assertThrows(ArithmeticException.class, () -> strict.recover(() -> {
                throw new ArithmeticException();
            }));
            assertThrows(OwnerDiedException.class, strict::lock);
            assertTrue(strict.recover(() -> LockPeer.repair(strict.payload())));
            assertFalse(strict.recover(() -> {
                throw new AssertionError("there is nothing to repair");
            }));
            assertEquals("locked", other.ask("lock strict"));
            assertEquals("unlocked", other.ask("unlock strict"));
            LockPeer.update(strict);
        }
    }

    /** What is left may be nothing, or header and first participants, or all but most of the index and the locks. */
    @ParameterizedTest
    @CsvSource({"0, false", "0, true", "8192, true", "139264, true"})
    @Tag("polling")
    void aTruncatedFileIsAnErrorInEveryProcess(long left, boolean grown) throws Exception {
        try (LockPeer holder = LockPeer.start(place.file());
                LockPeer waiter = LockPeer.start(place.file());
                LockPeer timed = LockPeer.start(place.file())) {
            holder.ask("lock m");
            waiter.tell("lock m");
            timed.tell("within m 50000");
            SharedMutexTest.awaitHeir(mutex);
            place.truncate(left, grown);
            for (LockPeer peer : List.of(waiter, timed)) {
                assertDamaged(peer.answer());
            }
            for (String step : List.of("unlock m", "lock m", "mutex other")) {
                assertDamaged(holder.ask(step));
            }
            assertThrows(DamagedMappingException.class, mutex::lock);
        }
        LockFileException e = assertThrows(LockFileException.class, () -> LockFile.open(place.file()));
        assertEquals(left == 0 && grown ? Reason.NOT_A_LOCK_FILE : Reason.DAMAGED, e.reason(), e.getMessage());
    }

    private static void assertDamaged(String answer) {
        assertTrue(answer.startsWith("DamagedMappingException "), answer);
    }

    @Test
    void aFileThatLostNothingButItsEndIsDamagedForThoseWhoDoNotWait() throws Exception {
        mutex.lock();
        place.truncate(java.nio.file.Files.size(place.file()) - 4096, true);
        while (true) { // its locks are whole
            try {
                mutex.unlock();
                mutex.lock();
                Thread.sleep(1);
            } catch (DamagedMappingException seen) {
                break;
            }
        }
        assertThrows(DamagedMappingException.class, () -> file.mutex("m"));
    }

    @Test
    void aNameInAHoleOfTheIndexIsNotMadeAgain() throws Exception {
        mutex.lock();
        try (LockPeer known = LockPeer.start(place.file()); LockPeer stranger = LockPeer.start(place.file())) {
            assertEquals("taken", known.ask("try m 0"));
            place.punch(135_168, 32_768); // of 64 participants and 1024 locks
            assertDamaged(stranger.ask("try m 0"));
            assertDamaged(known.ask("mutex other"));
        }
    }

    @Test
    void aNameInAHoleOfTheEntriesIsNotMadeAgain() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file()); LockPeer stranger = LockPeer.start(place.file())) {
            assertEquals("locked", holder.ask("lock m"));
            place.punch(167_936, 4096);
            assertDamaged(stranger.ask("try m 0"));
            assertDamaged(holder.ask("unlock m"));
        }
    }

    @Test
    void anImpossiblePayloadIsDamageAndNoOtherLock() throws Exception {
        try (LockPeer stranger = LockPeer.start(place.file())) {
            for (long size : new long[] {-4_294_967_288L, LockPeer.RECORD + 4096, Long.MAX_VALUE}) {
                mutex.memory().set(JAVA_LONG, Layout.E_PAYLOAD, size);
                assertThrows(DamagedMappingException.class, mutex::info);
            }
            assertDamaged(stranger.ask("mutex m"));
        }
    }

    /** A cell that something else wrote over, whole or half, with its line or alone, is not taken for a death. */
    @ParameterizedTest
    @ValueSource(strings = {"lifeline", "generation", "line"})
    void anOverwrittenCellIsDamageAndNoDeath(String what) throws Exception {
        try (LockPeer holder = LockPeer.start(place.file());
                FileChannel channel =
                        FileChannel.open(place.file(), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            assertEquals("locked", holder.ask("lock m"));
            int slot = mutex.info().owner().orElseThrow().slot();
            long at = Layout.HEADER + (long) slot * Layout.PARTICIPANT;
            ByteBuffer line = ByteBuffer.allocate(Layout.LINE).order(ByteOrder.LITTLE_ENDIAN);
            channel.read(line, at);
            switch (what) {
                case "lifeline" -> line.putInt(0, 0x5aa5_1234); // with the bit that says "died"
                case "generation" -> line.putInt(4, line.getInt(4) + (1 << 20)); // as if many had come after it
                default -> new Random(20_261_203).nextBytes(line.array());
            }
            channel.write(line.flip().limit(Layout.LINE), at);
            assertThrows(DamagedMappingException.class, () -> mutex.tryLock(10, TimeUnit.SECONDS));
        }
    }

    /** Opening meets the damage at any of its steps: the process is stopped there. */
    @ParameterizedTest
    @ValueSource(strings = {"attach: A locked", "attach: U shared", "attach: list set", "attach: claimed",
        "attach: introduced", "attach: A released"})
    void openingAFileThatIsBeingTruncatedEnds(String step) throws Exception {
        try (LockPeer opener = LockPeer.launch("-Ddev.fermata.failpoint=" + step + "#1#stop")) {
            opener.tell("open " + place.file());
            Kernel.awaitStopped(opener.pid());
            place.truncate(0, false);
            Kernel.resume(opener.pid());
            String answer = opener.answer();
            if (answer.equals("opened")) {
                assertDamaged(opener.ask("lock m"));
            } else {
                assertTrue(answer.startsWith("LockFileException ") && answer.contains(place.file().toString()), answer);
            }
        }
    }

    /** Nothing holds up the closing, and the guardian ends. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    @Tag("polling")
    void closingRightAfterATruncationIsSoonDone(boolean noticed) throws Exception {
        mutex.lock();
        place.truncate(0, false);
        if (noticed) {
            assertThrows(DamagedMappingException.class, mutex::unlock);
        }
        file.close();
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("fermata-guardian " + place.file() + " ")) {
                thread.join(5000);
                assertFalse(thread.isAlive(), "the guardian has not ended");
            }
        }
    }

    @Test
    @Tag("polling")
    void aWaiterSleepsBesideTheLifelineOfTheOwner() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            Waiter<String> waiter = lockAndUnlock().awaitAsleepOnSeveral();
            holder.kill();
            assertEquals("told", waiter.result());
        }
    }

    @Test
    @Tag("polling")
    void aDeadWaiterTakesNoWakeWithIt() throws Exception {
        mutex.lock();
        try (LockPeer victim = LockPeer.start(place.file());
                LockPeer other = LockPeer.start(place.file())) {
            victim.tell("lock m");
            victim.awaitAsleep(); // the first in the kernel's queue
            other.tell("update m 1");
            other.awaitAsleep();
            victim.kill();
            mutex.unlock();
            other.expect("updated");
        }
        mutex.lock();
        assertEquals(0, mutex.info().recovered());
        mutex.unlock();
    }

    @Test
    void aStoppedHolderIsNotDead() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            Kernel.stop(holder.pid());
            LockTimeoutException e =
                    assertThrows(LockTimeoutException.class, () -> mutex.lock(Duration.ofMillis(2500)));
            assertTrue(e.getMessage().contains("pid " + holder.pid() + " \"peer\", alive"), e.getMessage());
            Kernel.resume(holder.pid());
            assertEquals("unlocked", holder.ask("unlock m"));
            mutex.lock();
            assertFalse(mutex.ownerDied());
            mutex.unlock();
        }
    }

    /** What is logged of a death names who died, though others take all slots at once, or the file is closed. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theLogNamesTheDeadWhateverComesAtOnce(boolean closed) throws Exception {
        reopen(LockFile.builder(place.file()).participants(2));
        BlockingQueue<String> log = new LinkedBlockingQueue<>();
        Handler handler = new ConsoleHandler() {
            @Override
            public void publish(LogRecord message) {
                log.add(new SimpleFormatter().formatMessage(message));
            }
        };
        Logger logger = Logger.getLogger("dev.fermata");
        logger.addHandler(handler);
        try (LockPeer victim = LockPeer.start(place.file())) {
            victim.ask("lock m");
            victim.kill();
            while (file.participants().size() > 1 || mutex.info().state() != LockInfo.State.ABANDONED) {
                Thread.sleep(1);
            }
            mutex.lock();
            mutex.unlock();
            if (closed) {
                file.close();
            }
            try (LockPeer next = LockPeer.start(place.file())) {
                assertTrue(log.take().contains("pid " + victim.pid() + " \"peer\", dead"));
                assertEquals("locked", next.ask("lock m"));
            }
        } finally {
            logger.removeHandler(handler);
        }
    }

    /** Whoever comes takes the slot that was left the longest time ago. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theDeadAreRememberedAfterOthersHaveCome(boolean alone) throws Exception {
        reopen(LockFile.builder(place.file()).ownerDeath(OwnerDeath.STRICT));
        try (LockPeer victim = LockPeer.start(place.file())) {
            if (alone) {
                file.close();
            }
            victim.ask("lock m");
            victim.kill();
            if (alone) {
                file = LockFile.open(place.file());
                mutex = file.mutex("m");
            }
            while (mutex.info().state() != LockInfo.State.ABANDONED) {
                Thread.sleep(1);
            }
            try (LockPeer next = LockPeer.start(place.file())) {
                String answer = next.ask("try m 0");
                assertTrue(answer.contains("pid " + victim.pid() + " \"peer\", dead"), answer);
            }
            OwnerDiedException e = assertThrows(OwnerDiedException.class, mutex::lock);
            assertTrue(e.getMessage().contains("pid " + victim.pid() + " \"peer\", dead"), e.getMessage());
        }
    }

    @Test
    @Tag("polling")
    void aStoppedHeirHoldsUpNobody() throws Exception {
        mutex.lock();
        try (LockPeer heir = LockPeer.start(place.file())) {
            heir.tell("lock m");
            SharedMutexTest.awaitHeir(mutex);
            Kernel.stop(heir.pid());
            mutex.unlock();
            assertEquals(LockInfo.State.RESERVED, mutex.info().state());
            LockPeer.update(mutex);
            Kernel.resume(heir.pid());
            heir.expect("locked");
            assertEquals("unlocked", heir.ask("unlock m"));
            LockPeer.update(mutex);
        }
    }

    /** As the heir is a process that does not wait at all, this is what something else wrote. */
    @Test
    void aStrayHeirHoldsUpNobody() throws Exception {
        try (LockPeer stray = LockPeer.start(place.file())) {
            Participant participant = file.participants().get(1);
            assertEquals(stray.pid(), participant.pid());
            for (int id : new int[] {participant.id(), file.self().id()}) {
                mutex.lock();
                mutex.memory().set(JAVA_INT, Layout.E_HEIR, id);
                Thread.sleep(2); // since the last hand-over
                mutex.unlock();
                assertEquals(LockInfo.State.RESERVED, mutex.info().state());
                LockPeer.update(mutex);
                assertEquals(LockInfo.State.FREE, mutex.info().state());
            }
        }
    }

    @Test
    @Tag("polling")
    void aStoppedGuardianHoldsUpNobody() throws Exception {
        try (LockPeer stopped = LockPeer.start(place.file());
                LockPeer holder = LockPeer.start(place.file())) {
            Kernel.stop(stopped.pid());
            holder.ask("lock m");
            Waiter<String> waiter = lockAndUnlock();
            holder.kill();
            assertEquals("told", waiter.result());
            Kernel.resume(stopped.pid());
        }
    }

    @Test
    void aThreadThatEndsWithTheLockLeavesItHeld() throws Exception {
        try (LockPeer peer = LockPeer.start(place.file())) {
            assertEquals("left locked", peer.ask("thread m lost-thread"));
            while (!mutex.info().toString().contains("\"lost-thread\", which has ended")) {
                Thread.sleep(10);
            }
            assertFalse(mutex.tryLock());
            assertEquals("taken", peer.ask("try m 10"));
        }
    }

    @Test
    void slotsAreUsedAgainAndAreEnough() throws Exception {
        reopen(LockFile.builder(place.file()).participants(2));
        for (int i = 0; i < 6; i++) {
            try (LockPeer peer = LockPeer.start(place.file())) {
                assertEquals("updated", peer.ask("update m 10"));
                assertEquals(2, file.participants().size());
                if (i % 2 == 0) {
                    peer.kill();
                } else {
                    assertEquals("closed", peer.ask("close"));
                }
            }
        }
        assertEquals(60, mutex.payload().get(JAVA_LONG, 0));
    }

    @Test
    void oneTooManyIsToldWhoIsThere() throws Exception {
        reopen(LockFile.builder(place.file()).participants(1).label("the only one"));
        try (LockPeer peer = LockPeer.launch()) {
            String answer = peer.ask("open " + place.file());
            assertTrue(answer.startsWith("LockFileException"), answer);
            assertTrue(answer.contains("all 1 slots are taken"), answer);
            assertTrue(answer.contains("pid " + ProcessHandle.current().pid() + " \"the only one\""), answer);
        }
    }

    @Test
    @Tag("polling")
    void theLastOneWhoDiesIsRecoveredByTheNextWhoOpens() throws Exception {
        try (LockPeer peer = LockPeer.start(place.file())) {
            peer.ask("lock m");
            peer.ask("half m");
            file.close();
            peer.kill();
        }
        file = LockFile.open(place.file());
        mutex = file.mutex("m", LockPeer.RECORD);
        assertEquals(1, file.participants().size());
        mutex.lock();
        assertTrue(mutex.ownerDied());
        assertEquals(1, mutex.payload().get(JAVA_LONG, 0));
        mutex.unlock();
    }

    @Test
    void manyRushInAfterADeathAndOneIsTold() throws Exception {
        List<LockPeer> rush = new ArrayList<>();
        try (LockPeer holder = LockPeer.start(place.file())) {
            for (int i = 0; i < 6; i++) {
                rush.add(LockPeer.start(place.file()));
            }
            holder.ask("lock m");
            holder.ask("half m");
            for (LockPeer peer : rush) {
                peer.tell("update m 20");
            }
            holder.kill();
            for (LockPeer peer : rush) {
                peer.expect("updated");
            }
            assertEquals(120, mutex.payload().get(JAVA_LONG, 0));
            assertEquals(120, mutex.payload().get(JAVA_LONG, 8));
            assertEquals(1, mutex.info().recovered());
        } finally {
            rush.forEach(LockPeer::close);
        }
    }

    @Test
    void evictionEndsTheHolder() throws Exception {
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            Participant owner = mutex.info().owner().orElseThrow();
            assertEquals(holder.pid(), owner.pid());
            assertEquals("peer", owner.label());
            file.evict(owner);
            holder.awaitDeath();
            assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
            assertTrue(mutex.ownerDied());
            mutex.unlock();
            assertThrows(EvictionException.class, () -> file.evict(owner));
        }
        assertThrows(EvictionException.class, () -> file.evict(file.self()));
    }

    /** Exactly as much room as is needed, though all want all of it at the same time. */
    @Test
    void processesThatMakeTheSameLocksNeedNoMoreRoomThanOne() throws Exception {
        long lines = IntStream.range(0, 300).mapToLong(LockPeer.LINES::applyAsLong).sum();
        for (int round = 0; round < 2; round++) {
            reopen(LockFile.builder(place.file()).participants(4).capacity(301).payload((lines + 1) * 64));
            List<LockPeer> peers = new ArrayList<>();
            try {
                for (int i = 0; i < 3; i++) {
                    peers.add(LockPeer.start(place.file()));
                }
                for (LockPeer peer : peers) {
                    peer.tell("fill 300");
                }
                for (LockPeer peer : peers) {
                    peer.expect("filled");
                }
            } finally {
                peers.forEach(LockPeer::close);
            }
            assertEquals(301, file.names().size());
        }
    }

    @Test
    void evictionHitsNobodyElse() throws Exception {
        try (LockPeer peer = LockPeer.start(place.file());
                LockFile look = LockFile.builder(place.file()).readOnly().open();
                LockFile other = LockFile.open(place.directory().resolve("other"))) {
            assertRefused(look, file.self(), "it is this process");
            Participant here = file.participants().get(1);
            assertEquals(peer.pid(), here.pid());
            assertRefused(other, here, "no participant", "it is dead already", "its id is that of");
            Participant there = other.self(); // the id is one of this file, too
            assertRefused(file, new Participant(here.id(), there.slot(), there.pid(), there.pidNamespace(),
                    there.startTicks(), there.uid(), there.language(), there.label(), there.attached(), true),
                    "its id is that of");
            for (int id : new int[] {0, 1, 2, -1, 255, 0x1ff, Integer.MAX_VALUE}) {
                assertRefused(file, new Participant(id, 1, here.pid(), here.pidNamespace(), here.startTicks(), 0, "Java",
                        "", here.attached(), true), "can have id");
            }
            assertEquals("made", peer.ask("mutex alive"));
        }
    }

    private static void assertRefused(LockFile file, Participant participant, String... reasons) {
        EvictionException e = assertThrows(EvictionException.class, () -> file.evict(participant));
        assertTrue(List.of(reasons).stream().anyMatch(e.getMessage()::contains), e.getMessage());
    }

    @Test
    void readingTheFileByOtherMeansLeavesTheLockHeld() throws Exception {
        try (LockPeer peer = LockPeer.start(place.file())) {
            mutex.lock();
            java.nio.file.Files.readAllBytes(place.file());
            try (var channel = java.nio.channels.FileChannel.open(place.file(),
                    java.nio.file.StandardOpenOption.READ, java.nio.file.StandardOpenOption.WRITE)) {
                channel.size();
            }
            assertEquals("taken", peer.ask("try m 1500"));
            assertEquals(2, file.participants().size());
            assertTrue(file.self().alive());
            mutex.unlock();
            assertEquals("locked", peer.ask("try m 1000"));
        }
    }

    @Test
    void aChildOfTheHolderDoesNotHideItsDeath() throws Exception {
        try (ChildJvm holder = ChildJvm.start(HolderWithChild.class, List.of(ChildJvm.NATIVE_ACCESS),
                place.file().toString())) {
            long sleeper = Long.parseLong(holder.readLine());
            try {
                holder.kill();
                assertTrue(ProcessHandle.of(sleeper).orElseThrow().isAlive());
                assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
                assertTrue(mutex.ownerDied());
                mutex.unlock();
            } finally {
                ProcessHandle.of(sleeper).ifPresent(ProcessHandle::destroyForcibly);
            }
        }
    }

    /** Holds the lock and has a child of its own. */
    static final class HolderWithChild {
        public static void main(String[] arguments) throws Exception {
            LockFile.open(java.nio.file.Path.of(arguments[0])).mutex("m").lock();
            System.out.println(new ProcessBuilder("sleep", "60").start().pid());
            Thread.sleep(60_000);
        }
    }
}
