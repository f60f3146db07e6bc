// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Layout;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import dev.fermata.testing.Waiter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A process dies right after a step of the protocol, at every step there is, or stops. Those that remain go on at once,
 * what the lock protects is whole, and who is to be told of the death is told, and nobody else.
 */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FailpointTest {
    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;

    @BeforeEach
    void create() throws Exception {
        place = LockPath.create();
    }

    @AfterEach
    void remove() throws Exception {
        if (file != null) {
            file.close();
        }
        place.close();
    }

    private void open() throws Exception {
        file = LockFile.builder(place.file()).participants(4).capacity(6).payload(4096).open();
        mutex = file.mutex("m", LockPeer.RECORD);
    }

    private void close() {
        file.close();
        file = null;
    }

    private static LockPeer victim(String step, String... options) throws Exception {
        return LockPeer.launch(Stream.concat(Stream.of("-Ddev.fermata.failpoint=" + step), Stream.of(options))
                .toArray(String[]::new));
    }

    private void dies(LockPeer victim, String... steps) throws Exception {
        for (String step : steps) {
            victim.tell(step);
        }
        victim.awaitDeath();
    }

    private String openStep() {
        return "open " + place.file() + " 4";
    }

    /** A thread here that sleeps until it has the lock; then, whether it was told. */
    private Waiter<Boolean> waiter() throws Exception {
        return Waiter.call(() -> {
            mutex.lock();
            boolean told = mutex.ownerDied();
            mutex.unlock();
            return told;
        }).awaitAsleepOn(mutex.memory(), Layout.E_EVENTS);
    }

    /** The lock can be had at once, and with or without the news of a death; the record is whole. */
    private void goesOn(boolean told) throws Exception {
        assertTrue(mutex.tryLock(10, TimeUnit.SECONDS), () -> mutex.toString());
        assertEquals(told, mutex.ownerDied());
        if (told) {
            LockPeer.repair(mutex.payload());
        }
        assertEquals(mutex.payload().get(JAVA_LONG, 8), mutex.payload().get(JAVA_LONG, 0));
        mutex.unlock();
        LockPeer.update(mutex);
        while (file.participants().size() > 1) {
            Thread.sleep(1); // the dead's slot is taken back
        }
        try (LockPeer peer = LockPeer.start(place.file())) {
            assertEquals("updated", peer.ask("update m 3"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"create: opened", "create: reserved", "create: cells written", "create: index written",
        "create: header written", "create: linked", "attach: A locked", "attach: alone", "reset: swept",
        "attach: U shared", "attach: byte locked", "attach: list set", "attach: claimed", "attach: introduced", "attach: A released"})
    void inMakingTheFile(String step) throws Exception {
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep());
        }
        open();
        goesOn(false);
        try (var files = Files.list(place.directory())) {
            assertEquals(List.of(place.file()), files.toList());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"finish: marked", "create: reserved", "create: cells written", "create: index written",
        "create: header written"})
    void inMakingItOfAnEmptyFile(String step) throws Exception {
        Files.createFile(place.file());
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep());
        }
        open();
        goesOn(false);
    }

    @ParameterizedTest
    @ValueSource(strings = {"attach: A locked", "attach: U shared", "attach: byte locked", "attach: list set",
        "attach: claimed", "attach: introduced", "attach: A released"})
    void inAttachingToAFileInUse(String step) throws Exception {
        open();
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep());
        }
        goesOn(false);
    }

    @ParameterizedTest
    @ValueSource(strings = {"reset: cell", "reset: swept", "attach: U shared", "attach: claimed", "recover: barrier",
        "recover: heir", "recover: owner", "recover: swept", "attach: A released"})
    void inOpeningWhatTheLastOneLeftByDying(String step) throws Exception {
        open();
        mutex.lock();
        try (LockPeer holder = LockPeer.start(place.file()); LockPeer waiter = LockPeer.start(place.file())) {
            waiter.tell("lock m");
            waiter.awaitAsleep();
            mutex.unlock();
            waiter.expect("locked");
            assertEquals("half done", waiter.ask("half m"));
            holder.tell("lock m");
            holder.awaitAsleep();
            SharedMutexTest.awaitHeir(mutex);
            close();
            holder.kill();
            waiter.kill();
        }
        if (step.equals("reset: swept")) {
            java.nio.file.Path copy = place.directory().resolve("copy");
            Files.copy(place.file(), copy); // another inode
            Files.move(copy, place.file(), java.nio.file.StandardCopyOption.REPLACE_EXISTING);
        }
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep());
        }
        open();
        goesOn(true);
    }

    @ParameterizedTest
    @ValueSource(strings = {"insert: taken", "insert: reserved", "insert: filled", "insert: published", "insert: used"})
    void inMakingALock(String step) throws Exception {
        open();
        String name = "a-name-that-is-too-long-to-fit-into-the-entry-itself";
        for (int i = 0; i < 3; i++) {
            try (LockPeer victim = victim(step)) {
                dies(victim, openStep(), "mutex " + name + (i == 0 ? "" : i));
            }
        }
        goesOn(false);
        SharedMutex made = file.mutex(name, LockPeer.RECORD);
        made.lock();
        assertFalse(made.ownerDied());
        assertEquals(0, made.payload().get(JAVA_LONG, 0));
        made.unlock();
        for (int i = 0; file.names().size() < 6; i++) {
            file.mutex("further" + i); // no entry was lost
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"insert: taken", "insert: filled", "insert: published"})
    void inRecoveringFromAnInsertion(String step) throws Exception {
        open();
        close();
        try (LockPeer recoverer = LockPeer.launch("-Ddev.fermata.failpoint=recover: intent");
                LockPeer victim = victim(step)) {
            recoverer.tell(openStep());
            recoverer.expect("opened");
            dies(victim, openStep(), "mutex new");
            recoverer.awaitDeath();
        }
        open();
        goesOn(false);
        for (int i = 0; file.names().size() < 6; i++) {
            file.mutex("further" + i);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lock: taken"})
    void withTheLock(String step) throws Exception {
        open();
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep(), "lock m");
        }
        goesOn(true);
    }

    @ParameterizedTest
    @ValueSource(strings = {"unlock: released"})
    void afterTheLock(String step) throws Exception {
        open();
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep(), "update m 1");
        }
        goesOn(false);
    }

    /** The lock's holder is here, and so is another waiter. */
    @ParameterizedTest
    @CsvSource({"lock: registered,try", "lock: registered#2,try", "lock: asleep,try", "lock: asleep#2,try", "lock: heir,try",
        "leave: resigned,try", "leave: registered,try", "lock: registered,virtually try", "lock: registered#2,request",
        "lock: heir,request", "reactor: asleep,virtually try", "reactor: asleep#3,request",
        "leave: resigned,virtually try", "leave: registered,request"})
    void inWaiting(String step, String way) throws Exception {
        open();
        mutex.lock();
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep(), way + (step.startsWith("leave") ? " m 20" : " m 30000")); // before the others time out
        }
        Waiter<Boolean> other = waiter();
        mutex.unlock();
        assertFalse(other.result());
        goesOn(false);
    }

    /** The victim is woken by the unlock, or handed the lock, and dies; another waiter sleeps on. */
    @ParameterizedTest
    @CsvSource({"lock: taken,lock m", "lock: inherited,lock m", "lock: taken,virtually lock m",
        "lock: inherited,request m 60000", "line: offered,virtually lock m", "line: offered,request m 60000"})
    void inGettingTheLockAfterWaiting(String step, String way) throws Exception {
        open();
        mutex.lock();
        try (LockPeer victim = victim(step)) {
            victim.tell(openStep());
            victim.expect("opened");
            victim.tell(way);
            SharedMutexTest.awaitHeir(mutex);
            Waiter<Boolean> other = waiter();
            mutex.unlock();
            victim.awaitDeath();
            assertTrue(other.result());
        }
        goesOn(false);
    }

    /** The victim's reactor offers the lock to one who has no carrier, takes it back, and dies. */
    @Test
    void inWithdrawingAnOffer() throws Exception {
        open();
        mutex.lock();
        try (LockPeer victim = victim("line: withdrawn", "-Djdk.virtualThreadScheduler.parallelism=1",
                "-Djdk.virtualThreadScheduler.maxPoolSize=1")) {
            victim.tell(openStep());
            victim.expect("opened");
            victim.tell("saturate m stop");
            victim.expect("saturated");
            SharedMutexTest.awaitHeir(mutex);
            Waiter<Boolean> other = waiter();
            mutex.unlock();
            victim.awaitDeath();
            assertFalse(other.result());
        }
        goesOn(false);
    }

    /** The victim gives the lock away, and dies; nobody has died inside. */
    @ParameterizedTest
    @ValueSource(strings = {"hand over: reserved", "hand over: changed"})
    void inHandingTheLockOver(String step) throws Exception {
        open();
        try (LockPeer victim = victim(step)) {
            victim.tell(openStep());
            victim.expect("opened");
            victim.tell("lock m");
            victim.expect("locked");
            Waiter<Boolean> heir = waiter();
            SharedMutexTest.awaitHeir(mutex);
            dies(victim, "unlock m");
            assertFalse(heir.result());
        }
        goesOn(false);
    }

    /** The heir is stopped; the victim takes its reservation back, and dies. */
    @ParameterizedTest
    @ValueSource(strings = {"depose: heir", "depose: freed"})
    void inDeposingAnHeir(String step) throws Exception {
        open();
        mutex.lock();
        try (LockPeer heir = LockPeer.start(place.file()); LockPeer victim = victim(step)) {
            heir.tell("lock m");
            SharedMutexTest.awaitHeir(mutex);
            Kernel.stop(heir.pid());
            mutex.unlock();
            dies(victim, openStep(), "lock m");
            assertTrue(mutex.tryLock(10, TimeUnit.SECONDS), () -> mutex.toString());
            assertFalse(mutex.ownerDied());
            mutex.unlock();
            Kernel.resume(heir.pid());
            heir.expect("locked");
            assertEquals("unlocked", heir.ask("unlock m"));
        }
        goesOn(false);
    }

    @ParameterizedTest
    @ValueSource(strings = {"unlock: released", "unlock: epoch", "unlock: woken"})
    void inWaking(String step) throws Exception {
        open();
        try (LockPeer victim = victim(step)) {
            victim.tell(openStep());
            victim.expect("opened");
            victim.tell("lock m");
            victim.expect("locked");
            assertFalse(mutex.tryLock(5, TimeUnit.MILLISECONDS)); // leaves the bit that somebody may sleep
            dies(victim, "unlock m");
        }
        goesOn(false);
    }

    @ParameterizedTest
    @ValueSource(strings = {"lock: told"})
    void whenTold(String step) throws Exception {
        open();
        try (LockPeer holder = LockPeer.start(place.file())) {
            holder.ask("lock m");
            holder.ask("half m");
            try (LockPeer victim = victim(step)) {
                victim.tell(openStep());
                victim.expect("opened");
                victim.tell("lock m");
                victim.awaitAsleep();
                holder.kill();
                victim.awaitDeath();
            }
        }
        goesOn(true);
    }

    /** Returns when some process has registered as a waiter. */
    private void awaitWaiter() throws Exception {
        try (LockFile look = LockFile.builder(place.file()).readOnly().open()) {
            while ((look.find("m").orElseThrow().memory().get(JAVA_INT, Layout.E_EVENTS) & Layout.SLEPT) == 0) {
                Thread.sleep(1);
            }
        }
    }

    /** The only survivor, which waits for the lock, dies while it recovers. */
    @ParameterizedTest
    @ValueSource(strings = {"recover: barrier", "recover: heir", "recover: owner", "recover: epoch", "recover: woken",
        "recover: swept", "recover: freed"})
    void inRecovering(String step) throws Exception {
        open();
        try (LockPeer holder = LockPeer.start(place.file()); LockPeer victim = victim(step)) {
            victim.tell(openStep());
            victim.expect("opened");
            assertEquals("locked", holder.ask("lock m"));
            assertEquals("half done", holder.ask("half m"));
            close();
            victim.tell("lock m");
            awaitWaiter();
            holder.kill();
            victim.awaitDeath();
        }
        open();
        goesOn(true);
    }

    @ParameterizedTest
    @ValueSource(strings = {"recover: barrier", "recover: owner", "recover: epoch", "recover: woken", "recover: swept"})
    void inRecoveringBesideAWaiter(String step) throws Exception {
        open();
        try (LockPeer holder = LockPeer.start(place.file()); LockPeer victim = victim(step)) {
            victim.tell(openStep());
            victim.expect("opened");
            assertEquals("locked", holder.ask("lock m"));
            Waiter<Boolean> waiter = waiter();
            holder.kill();
            assertTrue(waiter.result());
            victim.kill();
        }
        goesOn(false);
    }

    @ParameterizedTest
    @ValueSource(strings = {"detach: unmapped", "detach: freed", "detach: list empty"})
    void inDetaching(String step) throws Exception {
        open();
        try (LockPeer victim = victim(step)) {
            dies(victim, openStep(), "update m 1", "close");
        }
        goesOn(false);
    }

    /** It holds up whoever wants to attach; those that have can go on, and its end is the end of it. */
    @Test
    void stoppedInAttaching() throws Exception {
        try (LockPeer attached = LockPeer.start(place.file());
                LockPeer stopped = victim("attach: A locked#1#stop")) {
            stopped.tell(openStep());
            Kernel.awaitStopped(stopped.pid());
            long begin = System.nanoTime();
            LockFileException e = assertThrows(LockFileException.class, this::open);
            assertTrue(System.nanoTime() - begin >= TimeUnit.SECONDS.toNanos(9), e.getMessage());
            assertEquals(LockFileException.Reason.BUSY, e.reason(), e.getMessage());
            assertTrue(e.getMessage().endsWith("Attached: pid " + attached.pid() + " \"peer\", alive"), e.getMessage());
            assertEquals("updated", attached.ask("update m 3"));
            stopped.kill();
            open();
            LockPeer.update(mutex);
            assertEquals("updated", attached.ask("update m 3"));
        }
        goesOn(false);
    }
}
