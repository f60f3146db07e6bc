// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Processes in other pid namespaces, under other users, of other boots, on kernels that lack a call, and children that
 * nobody waits for.
 */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SurroundingsTest {
    private static final List<String> NAMESPACE = List.of("unshare", "--pid", "--fork", "--kill-child", "--mount-proc");
    private static final List<String> NOBODY = List.of("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups");

    private LockPath place;

    @BeforeEach
    void create() throws Exception {
        place = LockPath.create();
    }

    @AfterEach
    void remove() throws Exception {
        place.close();
    }

    private static void assumeWorks(List<String> program) throws Exception {
        List<String> command = new java.util.ArrayList<>(program);
        command.add("true");
        assumeTrue(new ProcessBuilder(command).redirectErrorStream(true).start().waitFor() == 0,
                program.getFirst() + " needs root");
    }

    private LockPeer opened(LockPeer peer) throws Exception {
        assertEquals("opened", peer.ask("open " + place.file()));
        return peer;
    }

    @Test
    void twoHoldersThatAreBothPid1AreNotConfused() throws Exception {
        assumeWorks(NAMESPACE);
        try (LockFile file = LockFile.open(place.file());
                LockPeer first = opened(LockPeer.launchUnder(NAMESPACE));
                LockPeer second = opened(LockPeer.launchUnder(NAMESPACE))) {
            assertEquals("locked", first.ask("lock a"));
            assertEquals("locked", second.ask("lock b"));
            Participant owner = file.info("a").orElseThrow().owner().orElseThrow();
            assertEquals(1, owner.pid());
            assertEquals(1, file.info("b").orElseThrow().owner().orElseThrow().pid());
            assertNotEquals(file.self().pidNamespace(), owner.pidNamespace());
            assertTrue(owner.toString().contains("pid 1 in pid namespace " + owner.pidNamespace()), owner.toString());
            EvictionException e = assertThrows(EvictionException.class, () -> file.evict(owner));
            assertTrue(e.getMessage().contains("another pid namespace"), e.getMessage());

            first.kill();
            assertTrue(file.mutex("a").tryLock(10, TimeUnit.SECONDS));
            assertTrue(file.mutex("a").ownerDied());
            assertFalse(file.mutex("b").tryLock(1500, TimeUnit.MILLISECONDS));
            assertEquals("taken", second.ask("try a 10"));
            assertEquals("unlocked", second.ask("unlock b"));
            assertTrue(file.mutex("b").tryLock());
            assertFalse(file.mutex("b").ownerDied());
        }
    }

    @Test
    void aDeadChildThatNobodyWaitsForIsDead() throws Exception {
        List<String> careless = List.of("sh", "-c", "exec 3<&0; \"$@\" <&3 & exec sleep 60", "sh");
        try (LockFile file = LockFile.open(place.file());
                LockPeer holder = opened(LockPeer.launchUnder(careless))) {
            assertEquals("locked", holder.ask("lock m"));
            int pid = file.info("m").orElseThrow().owner().orElseThrow().pid();
            assertNotEquals(holder.pid(), pid);
            Kernel.kill(pid);
            assertTrue(file.mutex("m").tryLock(10, TimeUnit.SECONDS));
            assertTrue(file.mutex("m").ownerDied());
            while (!Files.readString(Path.of("/proc/" + pid + "/stat")).contains(") Z ")) {
                Thread.sleep(1); // still there, as a zombie
            }
        }
    }

    @Test
    void aProcessWithAnotherBootIdResetsNothing() throws Exception {
        Path boot = Files.writeString(place.directory().resolve("boot"), "another boot");
        try (LockFile file = LockFile.open(place.file())) {
            file.mutex("m", LockPeer.RECORD).lock();
            try (LockPeer other = opened(LockPeer.launch("-Ddev.fermata.bootId=" + boot))) {
                assertEquals("taken", other.ask("try m 1500"));
                assertEquals(2, file.participants().size());
                file.mutex("m").unlock();
                assertEquals("locked", other.ask("try m 1000"));
                other.kill();
            }
            assertTrue(file.mutex("m").tryLock(10, TimeUnit.SECONDS));
            assertTrue(file.mutex("m").ownerDied());
        }
    }

    @Test
    void afterARebootTheNextWhoOpensIsTold() throws Exception {
        Path boot = Files.writeString(place.directory().resolve("boot"), "the boot before");
        try (LockPeer holder = opened(LockPeer.launch("-Ddev.fermata.bootId=" + boot))) {
            assertEquals("locked", holder.ask("lock m"));
            holder.kill();
        }
        try (LockFile file = LockFile.open(place.file())) {
            assertEquals(LockInfo.State.ABANDONED, file.info("m").orElseThrow().state());
            file.mutex("m").lock();
            assertTrue(file.mutex("m").ownerDied());
        }
    }

    @Test
    void anotherUsersProcessIsAliveUntilItDies() throws Exception {
        assumeWorks(NOBODY);
        Files.setPosixFilePermissions(place.directory(), PosixFilePermissions.fromString("rwxrwxrwx"));
        new ProcessBuilder("chmod", "+t", place.directory().toString()).start().waitFor();
        try (LockPeer other = LockPeer.launchUnder(NOBODY);
                LockFile file = LockFile.builder(place.file())
                        .permissions(PosixFilePermissions.fromString("rw-rw-rw-")).open();
                LockPeer holder = opened(LockPeer.launch())) {
            assertEquals("opened", other.ask("open " + place.file()));
            assertEquals("locked", holder.ask("lock m"));
            assertEquals("taken", other.ask("try m 2500"));
            assertEquals(3, file.participants().size());
            other.tell("lock m");
            holder.kill();
            other.expect("locked, owner died");
            other.kill();
            assertTrue(file.mutex("m").tryLock(10, TimeUnit.SECONDS));
            assertTrue(file.mutex("m").ownerDied());
        }
    }

    @Test
    void whoMayNotIsToldSo() throws Exception {
        assumeWorks(NOBODY);
        Files.setPosixFilePermissions(place.directory(), PosixFilePermissions.fromString("rwxr-xr-x"));
        try (LockFile file = LockFile.open(place.file()); LockPeer other = LockPeer.launchUnder(NOBODY)) {
            String answer = other.ask("open " + place.file());
            assertTrue(answer.startsWith("LockFileException") && answer.contains("Permission denied")
                    && answer.contains("check the modes"), answer);
            answer = other.ask("open " + place.file() + "-new");
            assertTrue(answer.contains("Permission denied"), answer);
            assertEquals(1, file.participants().size());
        }
    }

    /** As before Linux 5.16, or under a seccomp filter; strace answers in the kernel's place. */
    @ParameterizedTest
    @ValueSource(strings = {"ENOSYS", "EPERM"})
    void whoCannotSleepOnSeveralWordsTakesPartAllTheSame(String error) throws Exception {
        assumeTrue(new ProcessBuilder("sh", "-c", "strace -o /dev/null true").start().waitFor() == 0,
                "no strace, or none that may trace (Debian: apt-get install strace)");
        Path trace = place.directory().resolve("trace");
        List<String> without = List.of("strace", "-f", "-o", trace.toString(), "-e", "trace=futex_waitv",
                "-e", "inject=futex_waitv:error=" + error);
        try (LockFile file = LockFile.open(place.file());
                LockPeer peer = opened(LockPeer.launchUnder(without));
                LockPeer other = opened(LockPeer.launch())) {
            assertTrue(peer.ask("about").contains("without futex_waitv ("));
            SharedMutex mutex = file.mutex("m", LockPeer.RECORD);
            assertEquals("locked", peer.ask("lock m"));
            int pid = mutex.info().owner().orElseThrow().pid(); // not strace's
            assertFalse(mutex.tryLock(10, TimeUnit.MILLISECONDS));
            assertEquals("unlocked", peer.ask("unlock m"));

            mutex.lock();
            assertEquals("taken", peer.ask("try m 50"));
            assertEquals("interrupted", peer.ask("interrupted m 50"));
            peer.tell("lock m");
            SharedMutexTest.awaitHeir(mutex);
            mutex.unlock();
            peer.expect("locked");
            assertEquals("unlocked", peer.ask("unlock m"));

            assertEquals("locked", other.ask("lock m"));
            peer.tell("lock m");
            SharedMutexTest.awaitHeir(mutex);
            other.kill();
            peer.expect("locked, owner died");

            Kernel.kill(pid);
            assertTrue(mutex.tryLock(10, TimeUnit.SECONDS));
            assertTrue(mutex.ownerDied());
            mutex.unlock();
        }
        assertEquals(1, Files.readAllLines(trace).stream().filter(line -> line.contains("futex_waitv(")).count());
    }
}
