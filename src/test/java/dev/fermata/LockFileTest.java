// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.LockFileException.Reason;
import dev.fermata.internal.Layout;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.Waiter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Making, opening, closing a file, and its names; and files that are not what they should be. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LockFileTest {
    private LockPath place;
    private Path path;

    @BeforeEach
    void create() throws Exception {
        place = LockPath.create();
        path = place.file();
    }

    @AfterEach
    void remove() throws Exception {
        place.close();
    }

    private void write(byte[] bytes) throws Exception {
        Files.write(path, bytes);
    }

    private LockFileException refused(LockFile.Builder builder, Reason reason) {
        LockFileException e = assertThrows(LockFileException.class, () -> builder.open().close());
        assertEquals(reason, e.reason(), e.getMessage());
        assertTrue(e.getMessage().contains(e.path().toString()), e.getMessage());
        return e;
    }

    private void refusedUnchanged(Reason reason) throws Exception {
        byte[] before = Files.readAllBytes(path);
        refused(LockFile.builder(path), reason);
        refused(LockFile.builder(path).readOnly(), reason);
        assertArrayEquals(before, Files.readAllBytes(path));
    }

    // ---- making ----

    @Test
    void aFileIsMadeWholeAndForItsUserOnly() throws Exception {
        LockFile.open(path).close();
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(path)));
        try (var files = Files.list(place.directory())) {
            assertEquals(List.of(path), files.toList());
        }
    }

    @Test
    void theModeIsWhatIsAskedForWhateverTheUmask() throws Exception {
        LockFile.builder(path).permissions(PosixFilePermissions.fromString("rw-rw-rw-")).open().close();
        assertEquals("rw-rw-rw-", PosixFilePermissions.toString(Files.getPosixFilePermissions(path)));
    }

    @Test
    void aFileThatMustExistIsNotMade() {
        refused(LockFile.builder(path).mustExist(), Reason.NOT_FOUND);
        refused(LockFile.builder(path).readOnly(), Reason.NOT_FOUND);
        assertFalse(Files.exists(path));
    }

    @Test
    void aMissingDirectoryIsSaid() {
        refused(LockFile.builder(place.directory().resolve("no/locks")), Reason.NOT_FOUND);
        refused(LockFile.builder(Path.of("/")), Reason.NOT_A_LOCK_FILE);
    }

    @Test
    void optionsOutOfRangeAreRefused() {
        LockFile.Builder builder = LockFile.builder(path);
        for (int participants : new int[] {0, -1, 128, Integer.MAX_VALUE}) {
            assertThrows(IllegalArgumentException.class, () -> builder.participants(participants));
        }
        for (int capacity : new int[] {0, -1, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            assertThrows(IllegalArgumentException.class, () -> builder.capacity(capacity));
        }
        assertThrows(IllegalArgumentException.class, () -> builder.payload(-1));
        assertThrows(IllegalArgumentException.class, () -> builder.payload(Long.MAX_VALUE));
        assertThrows(IllegalArgumentException.class, () -> builder.label("x".repeat(129)));
        for (String permissions : List.of("r--r--r--", "-w--w--w-", "---rw-rw-")) {
            assertThrows(IllegalArgumentException.class,
                    () -> builder.permissions(PosixFilePermissions.fromString(permissions)));
        }
        for (Duration stuckAfter : List.of(Duration.ZERO, Duration.ofNanos(-1))) {
            assertThrows(IllegalArgumentException.class, () -> builder.stuckAfter(stuckAfter));
        }
        for (Duration spin : List.of(Duration.ofNanos(-1), Duration.ofSeconds(Long.MIN_VALUE), Duration.ofNanos(1_000_001),
                Duration.ofSeconds(Long.MAX_VALUE))) {
            assertEquals("spin: found " + spin + ", expected 0 to 1 ms",
                    assertThrows(IllegalArgumentException.class, () -> builder.spin(spin)).getMessage());
        }
        assertThrows(NullPointerException.class, () -> builder.spin(null));
        assertThrows(IllegalArgumentException.class, () -> LockFile.builder(Path.of("")));
        assertFalse(Files.exists(path));
    }

    @Test
    void aPathInAnArchiveIsNotTakenForOneOfTheDisk() throws Exception {
        Path archive = place.directory().resolve("archive.zip");
        try (var zip = FileSystems.newFileSystem(archive, Map.of("create", "true"))) {
            Path inside = zip.getPath(path.toString());
            assertThrows(IllegalArgumentException.class, () -> LockFile.open(inside));
            assertFalse(Files.exists(path));
        }
    }

    @Test
    void manyThreadsThatMakeAFileGetTheSameOne() throws Exception {
        List<Waiter<LockFile>> threads = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            threads.add(Waiter.call(() -> LockFile.open(path)));
        }
        Set<SharedMutex> mutexes = new HashSet<>();
        List<LockFile> files = new ArrayList<>();
        for (Waiter<LockFile> thread : threads) {
            files.add(thread.result());
            mutexes.add(thread.result().mutex("m"));
        }
        assertEquals(1, mutexes.size());
        assertEquals(1, files.getFirst().participants().size());
        files.forEach(LockFile::close);
    }

    @Test
    void withoutSpaceNothingIsLeft() throws Exception {
        Path small = Files.createDirectory(place.directory().resolve("small"));
        int mounted = new ProcessBuilder("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small.toString())
                .redirectErrorStream(true).start().waitFor();
        org.junit.jupiter.api.Assumptions.assumeTrue(mounted == 0, "mounting needs root");
        try {
            LockFileException e = refused(LockFile.builder(small.resolve("locks")).capacity(10_000), Reason.NO_SPACE);
            assertTrue(e.getMessage().contains("bytes cannot be reserved"), e.getMessage());
            try (var files = Files.list(small)) {
                assertEquals(0, files.count());
            }
            try (LockFile file = LockFile.builder(small.resolve("locks")).participants(2).capacity(8).open()) {
                assertThrows(java.io.IOException.class,
                        () -> Files.write(small.resolve("filler"), new byte[128 << 10]));
                for (int i = 0; i < 8; i++) {
                    file.mutex("m" + i).lock(); // all of it is reserved
                }
            }
        } finally {
            new ProcessBuilder("umount", small.toString()).start().waitFor();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"/proc/fermata-locks", "/sys/fermata-locks"})
    void unsuitableFileSystemsAreRefused(String unsuitable) {
        assertThrows(LockFileException.class, () -> LockFile.open(Path.of(unsuitable)));
    }

    @Test
    void unsuitableFileSystemsAreNamedUnlessAnOptionInsists() throws Exception {
        Path other = Files.createDirectory(place.directory().resolve("ramfs"));
        int mounted = new ProcessBuilder("mount", "-t", "ramfs", "ramfs", other.toString())
                .redirectErrorStream(true).start().waitFor();
        org.junit.jupiter.api.Assumptions.assumeTrue(mounted == 0, "mounting needs root");
        try {
            Path there = other.resolve("locks");
            LockFileException e = refused(LockFile.builder(there), Reason.UNSUITABLE_FILE_SYSTEM);
            assertTrue(e.getMessage().contains("ramfs") || e.getMessage().contains("without a name"), e.getMessage());
        } finally {
            new ProcessBuilder("umount", other.toString()).start().waitFor();
        }
    }

    // ---- one in a process ----

    @Test
    void oneFileIsOpenOnceInAProcessWhateverItsPath() throws Exception {
        try (LockFile file = LockFile.open(path)) {
            Path symbolic = Files.createSymbolicLink(place.directory().resolve("symbolic"), path);
            Path hard = Files.createLink(place.directory().resolve("hard"), path);
            for (Path other : List.of(path, symbolic, hard)) {
                try (LockFile again = LockFile.open(other)) {
                    assertSame(file.mutex("m"), again.mutex("m"));
                    assertEquals(1, again.participants().size());
                }
            }
            file.mutex("m").lock(); // still open
            file.mutex("m").unlock();
        }
    }

    @Test
    void everyHandleHasItsOwnWordOnOwnerDeath() throws Exception {
        try (LockFile first = LockFile.open(path);
                LockFile second = LockFile.builder(path).ownerDeath(OwnerDeath.STRICT).open()) {
            assertEquals(OwnerDeath.STRICT, second.mutex("of the second").info().ownerDeath());
            assertEquals(OwnerDeath.GRANT, first.mutex("of the first").info().ownerDeath());
        }
    }

    @Test
    void aClosedHandleFindsNothingThoughAnotherIsOpen() throws Exception {
        try (LockFile open = LockFile.open(path)) {
            LockFile closed = LockFile.open(path);
            SharedMutex mutex = closed.mutex("m");
            closed.close();
            assertThrows(LockFileClosedException.class, () -> closed.mutex("m"));
            assertThrows(LockFileClosedException.class, () -> closed.mutex("new"));
            assertThrows(LockFileClosedException.class, closed::names);
            assertThrows(LockFileClosedException.class, () -> closed.find("m"));
            assertThrows(LockFileClosedException.class, closed::participants);
            assertThrows(LockFileClosedException.class, closed::self);
            assertEquals(List.of("m"), open.names());
            mutex.lock();
            mutex.unlock();
        }
    }

    @Test
    void afterClosingNobodyHoldsWhatWasHeld() throws Exception {
        LockFile file = LockFile.open(path);
        SharedMutex mutex = file.mutex("m");
        mutex.lock();
        file.close();
        assertFalse(mutex.isHeldByCurrentThread());
        assertEquals(0, mutex.holdCount());
        assertThrows(LockFileClosedException.class, mutex::fence);
        assertThrows(LockFileClosedException.class, mutex::unlock);
    }

    @Test
    void aFileCanBeOpenedAgainAndAgain() throws Exception {
        for (int i = 0; i < 300; i++) {
            try (LockFile file = LockFile.builder(path).participants(1).open()) {
                file.mutex("m").lock();
                file.mutex("m").unlock();
                assertEquals(i + 1, file.mutex("m").info().acquisitions());
            }
        }
        assertEquals(0, Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("fermata-") && thread.getName().contains(path.toString()))
                .filter(Thread::isAlive).peek(thread -> join(thread)).filter(Thread::isAlive).count());
    }

    private static void join(Thread thread) {
        try {
            thread.join(5000);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void theGuardianIsTheOnlyThreadThatStaysAndSaysWhatItIs() throws Exception {
        Set<Thread> before = Thread.getAllStackTraces().keySet();
        try (LockFile file = LockFile.open(path)) {
            List<Thread> guardians = Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> thread.getName().contains(path.toString())).toList();
            assertEquals(1, guardians.size());
            assertEquals("fermata-guardian " + path + " slot " + file.self().slot(), guardians.getFirst().getName());
            assertTrue(guardians.getFirst().isDaemon());
            Set<Thread> started = new HashSet<>(Thread.getAllStackTraces().keySet());
            started.removeAll(before);
            started.removeIf(thread -> thread.getThreadGroup() != Thread.currentThread().getThreadGroup()); // the JVM's
            started.removeIf(LockFileTest::isCalibrationAndEnds);
            assertEquals(Set.copyOf(guardians), started);
        }
    }

    /** The first opening in a process has it measured what a sleep costs. */
    private static boolean isCalibrationAndEnds(Thread thread) {
        if (!thread.getName().equals("fermata-calibration")) {
            return false;
        }
        assertTrue(thread.isDaemon());
        join(thread);
        return !thread.isAlive();
    }

    @Test
    void whoMaySpinForAMillisecondUsesItWhateverALaterHandleSays() throws Exception {
        assumeTrue(Runtime.getRuntime().availableProcessors() > 1, "nobody spins on a single processor");
        try (LockFile first = LockFile.builder(path).spin(Duration.ofMillis(1)).open();
                LockFile second = LockFile.builder(path).spin(Duration.ZERO).open()) {
            SharedMutex mutex = second.mutex("m");
            mutex.lock();
            assertTrue(Waiter.call(() -> isOftenBurnt(mutex, 1, 800_000)).result(), "by a waiter");
            assertTrue(Waiter.call(() -> isOftenBurnt(mutex, 5, 1_600_000)).result(), "by a waiter, and then an heir");
            assertSame(mutex, first.mutex("m"));
        }
    }

    /** Whether attempts in vain often use so much CPU time; not each does, as the processor may be another's meanwhile. */
    private static boolean isOftenBurnt(SharedMutex mutex, int millis, long nanos) throws InterruptedException {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        int often = 0;
        for (int i = 0; i < 1000 && often < 20; i++) {
            long before = threads.getCurrentThreadCpuTime();
            assertFalse(mutex.tryLock(millis, TimeUnit.MILLISECONDS));
            often += threads.getCurrentThreadCpuTime() - before >= nanos ? 1 : 0;
        }
        return often == 20;
    }

    // ---- closing ----

    @Test
    void afterClosingNothingWorksAndEverythingSaysSo() throws Exception {
        LockFile file = LockFile.open(path);
        SharedMutex mutex = file.mutex("m", 8);
        file.close();
        file.close();
        assertThrows(LockFileClosedException.class, mutex::lock);
        assertThrows(LockFileClosedException.class, mutex::tryLock);
        assertThrows(LockFileClosedException.class, () -> mutex.tryLock(1, TimeUnit.SECONDS));
        assertThrows(LockFileClosedException.class, mutex::acquire);
        assertThrows(LockFileClosedException.class, mutex::info);
        assertThrows(LockFileClosedException.class, () -> file.mutex("m"));
        assertThrows(LockFileClosedException.class, () -> file.mutex("other"));
        assertThrows(LockFileClosedException.class, () -> file.find("m"));
        assertThrows(LockFileClosedException.class, file::names);
        assertThrows(LockFileClosedException.class, file::participants);
        assertTrue(mutex.toString().contains("closed"), mutex.toString());
        try (LockFile again = LockFile.open(path)) {
            assertNotSame(mutex, again.mutex("m"));
            assertEquals(Set.of("m"), Set.copyOf(again.names()));
        }
    }

    @Test
    void closingEndsTheWaits() throws Exception {
        LockFile file = LockFile.open(path);
        SharedMutex mutex = file.mutex("m");
        mutex.lock();
        List<Waiter<Object>> waiters = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            boolean interruptibly = i % 2 == 0;
            Waiter<Object> waiter = Waiter.call(() -> {
                if (interruptibly) {
                    mutex.lockInterruptibly();
                } else {
                    mutex.lock();
                }
                return fail("locked");
            });
            waiters.add(interruptibly ? waiter.awaitAsleepOnSeveral() : waiter.awaitAsleepOn(mutex.memory(), 4));
        }
        file.close();
        for (Waiter<Object> waiter : waiters) {
            assertThrows(LockFileClosedException.class, waiter::result);
        }
        assertThrows(LockFileClosedException.class, mutex::unlock);
        try (LockFile again = LockFile.open(path)) {
            again.mutex("m").lock();
            assertTrue(again.mutex("m").ownerDied());
            again.mutex("m").unlock();
        }
    }

    @Test
    void closingUnderThreadsThatLockAndUnlockIsNoDamage() throws Exception {
        for (int round = 0; round < 20; round++) {
            LockFile file = LockFile.open(path);
            SharedMutex mutex = file.mutex("m", 8);
            List<Waiter<Boolean>> threads = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                threads.add(Waiter.call(() -> {
                    try {
                        while (true) {
                            mutex.lock();
                            mutex.unlock();
                        }
                    } catch (LockFileClosedException closed) {
                        return true;
                    }
                }));
            }
            Thread.sleep(5);
            file.close();
            for (Waiter<Boolean> thread : threads) {
                assertTrue(thread.result());
            }
            try (LockFile again = LockFile.open(path)) {
                assertTrue(again.mutex("m").tryLock());
                again.mutex("m").unlock();
            }
        }
    }

    // ---- names ----

    @Test
    void namesAreFoundAndNothingElse() throws Exception {
        Set<String> names = new TreeSet<>();
        try (LockFile file = LockFile.builder(path).capacity(500).payload(100_000).open()) {
            for (int i = 0; i < 400; i++) {
                names.add("lock-" + i);
            }
            for (int length : new int[] {1, 31, 32, 33, 64, 65, 254, 255}) {
                names.add("x".repeat(length));
            }
            names.add("käse 🧀 " + "ü".repeat(50));
            for (String name : names) {
                assertEquals(Optional.empty(), file.find(name));
                assertSame(file.mutex(name), file.find(name).orElseThrow());
            }
            assertEquals(names, new TreeSet<>(file.names()));
            assertEquals(Optional.empty(), file.find("lock-400"));
            assertEquals(Optional.empty(), file.info("Lock-1"));
            assertEquals("lock-1", file.info("lock-1").orElseThrow().name());
        }
        try (LockFile file = LockFile.open(path)) {
            assertEquals(names, new TreeSet<>(file.names()));
            for (String name : names) {
                assertEquals(name, file.find(name).orElseThrow().name());
            }
        }
    }

    @Test
    void namesThatCannotBeOneAreRefused() throws Exception {
        try (LockFile file = LockFile.open(path)) {
            for (String name : new String[] {"", "x".repeat(256), "ü".repeat(128), "a\0b", "\0", "\ud800", "a\udc00"}) {
                assertThrows(LockNameException.class, () -> file.mutex(name));
                assertThrows(LockNameException.class, () -> file.find(name));
            }
            assertThrows(NullPointerException.class, () -> file.mutex(null));
            assertEquals(List.of(), file.names());
        }
    }

    @Test
    void aNameWithOtherParametersIsAMismatch() throws Exception {
        try (LockFile file = LockFile.open(path)) {
            SharedMutex mutex = file.mutex("m", 100);
            assertSame(mutex, file.mutex("m"));
            assertSame(mutex, file.mutex("m", 100, OwnerDeath.GRANT));
            LockMismatchException e = assertThrows(LockMismatchException.class, () -> file.mutex("m", 0));
            assertTrue(e.getMessage().contains("100 bytes") && e.getMessage().contains("0 bytes"), e.getMessage());
            assertThrows(LockMismatchException.class, () -> file.mutex("m", 100, OwnerDeath.STRICT));
            assertThrows(IllegalArgumentException.class, () -> file.mutex("m", -2));
        }
    }

    @Test
    void aFullFileSaysWhatThereIsNoMoreOf() throws Exception {
        try (LockFile file = LockFile.builder(path).participants(1).capacity(10).payload(256).open()) {
            file.mutex("payload", 100);
            LockFileFullException e = assertThrows(LockFileFullException.class, () -> file.mutex("large", 200));
            assertTrue(e.getMessage().contains("of 4 lines of payload and long names 2 are left, 4 are needed"),
                    e.getMessage());
            assertEquals(Optional.empty(), file.find("large"));
            int made = 0;
            try {
                for (int i = 0; i < 100; i++) {
                    file.mutex("m" + i);
                    made++;
                }
                fail("endless");
            } catch (LockFileFullException full) {
                assertTrue(full.getMessage().contains("all 11 entries are taken"), full.getMessage());
            }
            assertEquals(10, made);
            for (String name : file.names()) {
                file.mutex(name).lock();
                file.mutex(name).unlock();
            }
        }
    }

    // ---- files that are none, or not ours ----

    @ParameterizedTest
    @ValueSource(ints = {1, 7, 63, 64, 4095, 4096, 100_000})
    void aForeignFileIsRefusedUnchanged(int size) throws Exception {
        byte[] bytes = new byte[size];
        new java.util.Random(size).nextBytes(bytes);
        write(bytes);
        refusedUnchanged(Reason.NOT_A_LOCK_FILE);
        write(new byte[size]);
        refusedUnchanged(Reason.NOT_A_LOCK_FILE);
    }

    @Test
    void anEmptyFileIsMadeALockFileInPlace() throws Exception {
        write(new byte[0]);
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-rw----"));
        Object inode = Files.getAttribute(path, "unix:ino");
        try (LockFile file = LockFile.open(path)) {
            file.mutex("m").lock();
            file.mutex("m").unlock();
        }
        assertEquals(inode, Files.getAttribute(path, "unix:ino"));
    }

    @Test
    void whatIsNoFileIsRefused() throws Exception {
        Files.createDirectory(path);
        refused(LockFile.builder(path), Reason.NOT_A_LOCK_FILE);
        Files.delete(path);
        new ProcessBuilder("mkfifo", path.toString()).start().waitFor();
        refused(LockFile.builder(path), Reason.NOT_A_LOCK_FILE);
        refused(LockFile.builder(path).readOnly(), Reason.NOT_A_LOCK_FILE);
        refused(LockFile.builder(Path.of("/dev/null")).anyFileSystem(), Reason.NOT_A_LOCK_FILE);
        Files.delete(path);
        Files.createSymbolicLink(path, Path.of("nowhere"));
        refused(LockFile.builder(path), Reason.NOT_FOUND);
    }

    /** Changes a header's number and makes its checksum right. */
    private void patch(int offset, int size, long value, boolean checksum) throws Exception {
        byte[] bytes = Files.readAllBytes(path);
        ByteBuffer header = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        if (size == 4) {
            header.putInt(offset, (int) value);
        } else {
            header.putLong(offset, value);
        }
        if (checksum) {
            CRC32C crc = new CRC32C();
            crc.update(bytes, 0, Layout.H_CHECKSUM);
            header.putInt(Layout.H_CHECKSUM, (int) crc.getValue());
        }
        Files.write(path, bytes);
    }

    @ParameterizedTest
    @CsvSource({
        "0, 8, 0x4645524d41544101, UNSUPPORTED_FORMAT",
        "0, 8, 0x1234, NOT_A_LOCK_FILE",
        "8, 4, 0x04030201, UNSUPPORTED_FORMAT",
        "12, 4, 0, UNSUPPORTED_FORMAT",
        "12, 4, 2, UNSUPPORTED_FORMAT",
        "12, 4, 0xffff, UNSUPPORTED_FORMAT",
        "16, 8, 2, UNSUPPORTED_FORMAT",
        "16, 8, -1, UNSUPPORTED_FORMAT",
        "24, 8, 0, DAMAGED",
        "24, 8, -1, DAMAGED",
        "32, 8, 8192, DAMAGED",
        "40, 4, 0, DAMAGED",
        "40, 4, 63, DAMAGED",
        "40, 4, 128, DAMAGED",
        "40, 4, -1, DAMAGED",
        "44, 4, 64, DAMAGED",
        "48, 8, 4096, DAMAGED",
        "56, 8, 3, DAMAGED",
        "56, 8, 1048576, DAMAGED",
        "64, 8, 0, DAMAGED",
        "72, 4, 0, DAMAGED",
        "72, 4, 64, DAMAGED",
        "72, 4, 1000000, DAMAGED",
        "72, 4, -1, DAMAGED",
        "76, 4, 0, DAMAGED",
        "80, 8, 64, DAMAGED",
        "88, 8, -1, DAMAGED",
        "88, 8, 0x7fffffff, DAMAGED",
        "120, 4, 0, DAMAGED"})
    void aHeaderThatIsNotUnderstoodIsRefusedUnchanged(int offset, int size, String value, Reason reason)
            throws Exception {
        LockFile.open(path).close();
        patch(offset, size, Long.decode(value), offset != 120);
        refusedUnchanged(reason);
    }

    @Test
    void aNewerMinorVersionIsUnderstood() throws Exception {
        LockFile.open(path).close();
        patch(12, 4, 1 | 7 << 16, true);
        LockFile.open(path).close();
    }

    @ParameterizedTest
    @ValueSource(longs = {4096, 4097, 100_000, 10_000_000})
    void aFileOfAnotherLengthIsRefused(long size) throws Exception {
        LockFile.open(path).close();
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.WRITE)) {
            if (size < channel.size()) {
                channel.truncate(size);
            } else {
                channel.write(ByteBuffer.allocate(1), size - 1);
            }
        }
        refusedUnchanged(Reason.DAMAGED);
    }

    // ---- files that change ----

    @Test
    void aReplacedFileIsAnErrorForItsOldUsers() throws Exception {
        for (boolean rename : new boolean[] {false, true}) {
            LockFile.open(path).close();
            LockFile old = LockFile.open(path);
            SharedMutex mutex = old.mutex("m");
            SharedMutex other = old.mutex("other");
            mutex.lock();
            Waiter<Void> waiter = Waiter.run(mutex::lock);
            waiter.awaitAsleepOn(mutex.memory(), 4);
            if (rename) {
                Path next = place.directory().resolve("next");
                LockFile.open(next).close();
                Files.move(next, path, StandardCopyOption.REPLACE_EXISTING);
            } else {
                Files.delete(path);
            }
            LockFileReplacedException e = assertThrows(LockFileReplacedException.class, waiter::result);
            assertTrue(e.getMessage().contains("deleted or replaced"), e.getMessage());
            assertThrows(LockFileReplacedException.class, other::lock);
            assertThrows(LockFileReplacedException.class, other::tryLock);
            assertThrows(LockFileReplacedException.class, mutex::unlock);
            try (LockFile fresh = LockFile.open(path)) {
                assertTrue(fresh.mutex("m").tryLock());
                fresh.mutex("m").unlock();
                assertThrows(LockFileReplacedException.class, () -> old.mutex("m"));
            }
            old.close();
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aTruncatedFileIsAnErrorEverywhere(boolean grown) throws Exception {
        LockFile file = LockFile.open(path);
        SharedMutex mutex = file.mutex("m", 8);
        mutex.lock();
        Waiter<Void> waiter = Waiter.run(mutex::lock);
        Waiter<Boolean> timed = Waiter.call(() -> mutex.tryLock(50, TimeUnit.SECONDS));
        waiter.awaitAsleepOn(mutex.memory(), 4);
        timed.awaitAsleepOnSeveral();
        place.truncate(0, grown);
        assertThrows(DamagedMappingException.class, waiter::result);
        assertThrows(DamagedMappingException.class, timed::result);
        assertThrows(DamagedMappingException.class, mutex::lock);
        assertThrows(DamagedMappingException.class, mutex::unlock);
        assertThrows(DamagedMappingException.class, () -> file.mutex("other"));
        file.close();
    }

    @Test
    void aCopyOfAFileInUseOpensFresh() throws Exception {
        Path copy = place.directory().resolve("copy");
        try (LockFile file = LockFile.open(path)) {
            file.mutex("m").lock();
            Files.copy(path, copy);
            try (LockFile other = LockFile.open(copy)) {
                assertEquals(1, other.participants().size());
                SharedMutex mutex = other.mutex("m");
                mutex.lock();
                assertTrue(mutex.ownerDied());
                mutex.unlock();
            }
            assertTrue(file.mutex("m").isHeldByCurrentThread());
            file.mutex("m").unlock();
        }
    }

    // ---- looking only ----

    @Test
    void aFileCanBeLookedAtWithoutAttaching() throws Exception {
        try (LockFile file = LockFile.builder(path).label("holder").open()) {
            file.mutex("m", 8).lock();
            Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("r--r--r--"));
            try (LockFile look = LockFile.builder(path).readOnly().open()) {
                assertEquals(List.of("m"), look.names());
                assertEquals(1, look.participants().size());
                assertEquals("holder", look.info("m").orElseThrow().owner().orElseThrow().label());
                SharedMutex mutex = look.find("m").orElseThrow();
                assertTrue(mutex.toString().contains("held by pid"), mutex.toString());
                assertThrows(UnsupportedOperationException.class, mutex::lock);
                assertThrows(UnsupportedOperationException.class, mutex::tryLock);
                assertThrows(UnsupportedOperationException.class, () -> mutex.tryLock(1, TimeUnit.SECONDS));
                assertThrows(UnsupportedOperationException.class, () -> look.mutex("new"));
                assertThrows(UnsupportedOperationException.class, look::self);
                assertTrue(mutex.payload().isReadOnly());
            }
            file.mutex("m").unlock();
        }
    }

    // ---- messages ----

    /** Puts what is logged into a list. */
    private static final class Log extends Handler implements AutoCloseable {
        private final Logger logger = Logger.getLogger("dev.fermata");
        private final List<String> messages;

        Log(List<String> messages) {
            this.messages = messages;
            logger.addHandler(this);
            logger.setUseParentHandlers(false);
        }

        @Override
        public void publish(LogRecord message) {
            messages.add("log: " + new SimpleFormatter().formatMessage(message));
        }

        @Override
        public void flush() {
        }

        @Override
        public void close() {
            logger.setUseParentHandlers(true);
            logger.removeHandler(this);
        }
    }

    @Test
    void closingAFileNamesWhatIsHeldAndLeavesItAbandoned() throws Exception {
        List<String> messages = new CopyOnWriteArrayList<>();
        try (Log _ = new Log(messages)) {
            LockFile file = LockFile.open(place.file());
            file.mutex("free");
            for (int i = 0; i < 12; i++) {
                file.mutex("held" + i).lock();
            }
            file.close();
            while (messages.isEmpty()) {
                Thread.sleep(1);
            }
        }
        assertTrue(messages.getFirst().contains("\"held0\", \"held1\"") && messages.getFirst().contains("and 2 more"),
                messages::toString);
        assertFalse(messages.getFirst().contains("free"), messages::toString);
        try (LockFile file = LockFile.open(place.file())) {
            assertEquals(LockInfo.State.ABANDONED, file.mutex("held11").info().state());
            assertEquals(LockInfo.State.FREE, file.mutex("free").info().state());
        }
    }

    @Test
    void whatCannotBePrintedIsEscapedInEveryMessage() throws Exception {
        String odd = "x\n\u001b[31m\u0085\u2028\u202e\"";
        String escaped = "x\\n\\u001b[31m\\u0085\\u2028\\u202e\\\"";
        LockPath here = new LockPath(place.directory(), place.directory().resolve(odd));
        LockFile.Builder builder = LockFile.builder(here.file()).label(odd).participants(1).capacity(8).payload(64)
                .ownerDeath(OwnerDeath.STRICT).stuckAfter(Duration.ofMillis(1));
        List<String> messages = new CopyOnWriteArrayList<>();
        try (Log _ = new Log(messages)) {
            LockFile file = builder.open();
            SharedMutex held = file.mutex(odd, 8);
            SharedMutex free = file.mutex(odd + 2, -1, OwnerDeath.GRANT);
            SharedMutex third = file.mutex(odd + 3, -1, OwnerDeath.GRANT);
            Waiter.run(() -> {
                Thread.currentThread().setName(odd);
                messages.add(assertThrows(IllegalMonitorStateException.class, held::unlock).getMessage());
                held.lock();
            }).result();
            assertEquals(odd, held.name());
            assertEquals(odd, held.info().name());
            assertEquals(Set.of(odd, odd + 2, odd + 3), Set.copyOf(file.names()));
            assertEquals(odd, file.self().label());
            assertEquals(here.file(), file.path());
            messages.add(file.toString());
            messages.add(file.self().toString());
            messages.add(held.toString());
            messages.add(held.info().toString());
            messages.add(held.info().thread());
            do {
                messages.add(assertThrows(LockTimeoutException.class,
                        () -> held.lock(Duration.ofMillis(1500))).getMessage());
            } while (messages.stream().noneMatch(message -> message.contains("has not moved")));
            messages.add(assertThrows(LockNameException.class, () -> file.mutex(odd + '\0')).getMessage());
            messages.add(assertThrows(LockMismatchException.class, () -> file.mutex(odd, 16)).getMessage());
            messages.add(assertThrows(LockFileFullException.class, () -> file.mutex(odd + 4, 1000)).getMessage());
            messages.add(assertThrows(EvictionException.class, () -> file.evict(file.self())).getMessage());
            messages.add(assertThrows(UnsupportedOperationException.class, free::payloadOffset).getMessage());
            try (Hold hold = free.acquire()) {
                messages.add(hold.toString());
            }
            free.lock();
            third.lock();
            messages.add(assertThrows(IllegalStateException.class, () -> free.recover(() -> { })).getMessage());
            free.setHolds(Integer.MAX_VALUE);
            messages.add(assertThrows(Error.class, free::lock).getMessage());
            free.setHolds(1);
            try (LockFile look = LockFile.builder(here.file()).readOnly().open()) {
                messages.add(assertThrows(UnsupportedOperationException.class, () -> look.mutex(odd)).getMessage());
            }
            file.close(); // with all three
            messages.add(file.toString());
            messages.add(assertThrows(LockFileClosedException.class, held::lock).getMessage());

            LockFile again = builder.open();
            messages.add(assertThrows(OwnerDiedException.class, () -> again.mutex(odd, 8).lock()).getMessage());
            again.mutex(odd + 2).lock(); // a warning follows
            again.mutex(odd + 3).onOwnerDeath(SharedMutex::unlock);
            messages.add(assertThrows(IllegalMonitorStateException.class,
                    () -> again.mutex(odd + 3).lock()).getMessage());
            while (messages.stream().noneMatch(message -> message.contains("What it protects may be half written"))) {
                Thread.sleep(1);
            }
            here.truncate(0, true);
            messages.add(assertThrows(DamagedMappingException.class, again.mutex(odd + 2)::unlock).getMessage());
            messages.add(again.toString());
            again.close();
            messages.add(assertThrows(LockFileException.class, builder::open).getMessage());
            try (var zip = FileSystems.newFileSystem(
                    place.directory().resolve("archive.zip"), Map.of("create", "true"))) {
                messages.add(assertThrows(IllegalArgumentException.class,
                        () -> LockFile.open(zip.getPath(odd))).getMessage());
            }
            messages.add(new LockFileReplacedException(here.file(), "gone").getMessage());
        }
        for (String message : messages) {
            assertTrue(message.contains(escaped), message);
            assertTrue(message.codePoints().noneMatch(c -> Character.isISOControl(c) || c == 0x2028 || c == 0x202e),
                    message);
        }
    }
}
