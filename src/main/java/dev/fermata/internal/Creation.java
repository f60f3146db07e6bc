// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.LockFileException;
import dev.fermata.LockFileException.Reason;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.Map;

/**
 * Makes lock files, whole or not at all (PROTOCOL.md, section 9; model {@code creation.pml}). Whoever dies here leaves
 * nothing: the kernel drops a file that has no name yet, and the advisory lock.
 */
final class Creation {
    /** How long the directory's lock is waited for: it only saves others the work. */
    private static final long COURTESY = 10_000_000_000L;

    private static final int ENOSPC = 28;
    private static final int EFBIG = 27;
    private static final int ELOOP = 40;
    private static final int EDQUOT = 122;
    private static final int EINTR = 4;

    /** The file systems known to do what is needed. */
    private static final Map<Long, String> SUITABLE = Map.of(
            0x01021994L, "tmpfs", 0xef53L, "ext4", 0x58465342L, "xfs", 0x9123683eL, "btrfs", 0x794c7630L, "overlay");
    private static final Map<Long, String> UNSUITABLE = Map.of(0x6969L, "nfs", 0xff534d42L, "cifs", 0xfe534d42L, "smb2",
            0x65735546L, "fuse", 0x01021997L, "9p", 0x4d44L, "vfat", 0x858458f6L, "ramfs", 0x2fc12fc1L, "zfs",
            0x9fa0L, "proc", 0x62656572L, "sysfs");

    private static final Posix POSIX = Posix.SYSTEM;

    private Creation() {
    }

    /** Creates the file unless something has that name already. */
    static void createIfMissing(Path path, Settings settings) throws LockFileException {
        Path parent = path.toAbsolutePath().getParent();
        if (parent == null) {
            throw new LockFileException(Reason.NOT_A_LOCK_FILE, path, "it is the root directory", "name a file");
        }
        int directory = POSIX.open(parent.toString(), Posix.O_RDONLY | Posix.O_DIRECTORY | Posix.O_CLOEXEC, 0);
        if (directory < 0) {
            throw failed(path, "its directory cannot be opened", -directory);
        }
        try {
            awaitTurn(directory);
            if (!exists(path)) {
                create(path, parent, settings);
            }
        } finally {
            POSIX.close(directory); // and the lock
        }
    }

    private static boolean exists(Path path) {
        try {
            POSIX.status(path.toString());
            return true;
        } catch (Posix.ErrnoException absent) {
            return false;
        }
    }

    private static void awaitTurn(int directory) {
        long deadline = System.nanoTime() + COURTESY;
        while (POSIX.flock(directory, Posix.LOCK_EXCLUSIVE | Posix.LOCK_NONBLOCK) < 0 && !Deadline.passed(deadline)) {
            Attachment.sleep(1);
        }
    }

    private static void create(Path path, Path parent, Settings settings) throws LockFileException {
        int fd = POSIX.open(parent.toString(), Posix.O_TMPFILE | Posix.O_RDWR | Posix.O_CLOEXEC, 0600);
        if (fd == -Posix.EOPNOTSUPP || fd == -Posix.EISDIR) {
            throw new LockFileException(Reason.UNSUITABLE_FILE_SYSTEM, path,
                    "its file system cannot make a file without a name", "use tmpfs, ext4, xfs or btrfs");
        }
        if (fd < 0) {
            throw failed(path, "no file can be created in " + Printable.of(parent), -fd);
        }
        try {
            Failpoint.after("create: opened");
            requireSuitable(path, fd, settings);
            requireDone(path, "its mode cannot be set", POSIX.fchmod(fd, settings.permissions()));
            write(path, fd, settings);
            int linked = POSIX.link(fd, path.toAbsolutePath().toString());
            if (linked != -Posix.EEXIST) { // else another was faster, and it has the name
                requireDone(path, "it cannot be given its name", linked);
            }
            Failpoint.after("create: linked");
        } finally {
            POSIX.close(fd);
        }
    }

    /** Reserves the space and writes all that is not zero. */
    private static void write(Path path, int fd, Settings settings) throws LockFileException {
        Header header = Header.create(settings.participants(), settings.capacity(), settings.payload(),
                settings.symmetric(), new SecureRandom());
        int reserved;
        do {
            reserved = POSIX.fallocate(fd, header.fileSize());
        } while (reserved == -EINTR);
        if (reserved < 0) {
            throw failed(path, header.fileSize() + " bytes cannot be reserved", -reserved);
        }
        Failpoint.after("create: reserved");
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cells = arena.allocate((long) header.participants() * Layout.PARTICIPANT, 8);
            for (int i = 0; i < header.participants(); i++) {
                Word.storeLong(cells, (long) i * Layout.PARTICIPANT + Layout.P_CELL, Layout.cell(1, 0));
            }
            writeAll(path, fd, cells, header.participant(0));
            Failpoint.after("create: cells written");
            writeIndex(path, fd, header, arena);
            MemorySegment end = arena.allocate(Long.BYTES, 8);
            Word.storeLong(end, 0, Layout.MAGIC);
            writeAll(path, fd, end, header.end());
            Failpoint.after("create: index written");
            MemorySegment page = arena.allocate(Layout.HEADER, 8);
            header.writeTo(page);
            writeAll(path, fd, page, 0);
            Failpoint.after("create: header written");
        }
        requireDone(path, "it cannot be synced", POSIX.fsync(fd));
    }

    private static void writeIndex(Path path, int fd, Header header, Arena arena) throws LockFileException {
        long size = (long) header.indexLength() * Long.BYTES; // a power of two, as the pieces are
        MemorySegment vacant = arena.allocate(Math.min(size, 1 << 20), 8).fill((byte) Layout.VACANT);
        for (long at = 0; at < size; at += vacant.byteSize()) {
            writeAll(path, fd, vacant, header.index() + at);
        }
    }

    private static void writeAll(Path path, int fd, MemorySegment bytes, long position) throws LockFileException {
        int written = POSIX.write(fd, bytes, position);
        requireDone(path, "it cannot be written", written);
        if (written != bytes.byteSize()) {
            throw failed(path, "it cannot be written whole", ENOSPC);
        }
    }

    /**
     * Writes an empty file in place, under bytes A and U exclusively. The first thing written says that it is not
     * finished, so that whoever finds it after a death here writes it again.
     */
    static void finish(Path path, int fd, Settings settings) throws LockFileException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment page = arena.allocate(Layout.HEADER, 8);
            Word.storeLong(page, Layout.H_MAGIC, Layout.UNFINISHED);
            writeAll(path, fd, page, 0);
        }
        requireDone(path, "it cannot be shortened", POSIX.truncate(fd, Layout.HEADER)); // what another had reserved
        Failpoint.after("finish: marked");
        write(path, fd, settings);
    }

    static void requireSuitable(Path path, int fd, Settings settings) throws LockFileException {
        long magic = POSIX.fileSystem(fd);
        if (magic < 0) {
            throw failed(path, "its file system cannot be told", (int) -magic);
        }
        if (!SUITABLE.containsKey(magic) && !settings.anyFileSystem()) {
            throw new LockFileException(Reason.UNSUITABLE_FILE_SYSTEM, path,
                    "it is on %s (0x%x)".formatted(UNSUITABLE.getOrDefault(magic, "an unknown file system"), magic),
                    "expected tmpfs, ext4, xfs, btrfs or overlay. anyFileSystem() insists, at your own risk");
        }
    }

    static void requireDone(Path path, String what, int result) throws LockFileException {
        if (result < 0) {
            throw failed(path, what, -result);
        }
    }

    static LockFileException failed(Path path, String what, int errno) {
        String found = what + ": " + POSIX.describe(errno);
        return switch (errno) {
            case ENOSPC, EDQUOT, EFBIG -> new LockFileException(Reason.NO_SPACE, path, found,
                    "make space, or ask for less capacity or payload");
            case Posix.EACCES, Posix.EPERM -> new LockFileException(Reason.NOT_PERMITTED, path, found,
                    "check the modes of the file and its directory. Every user needs to read and write it; readOnly()"
                            + " needs only to read");
            case Posix.EROFS -> new LockFileException(Reason.NOT_PERMITTED, path, found,
                    "locking writes into the file; readOnly() only looks into it");
            case Posix.ENOENT, Posix.ENOTDIR -> new LockFileException(Reason.NOT_FOUND, path, found,
                    "create it, or its directory, first; with mustExist() and readOnly() no file is made");
            case ELOOP -> new LockFileException(Reason.NOT_FOUND, path, found,
                    "its symbolic links lead in a circle; name the file itself");
            default -> new LockFileException(Reason.REFUSED_BY_KERNEL, path, found, "see the kernel's answer");
        };
    }
}
