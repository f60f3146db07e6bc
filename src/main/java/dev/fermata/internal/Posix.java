// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.foreign.MemorySegment;

/**
 * The rest of what Java does not offer: files by descriptor, mappings, process descriptors. All calls return 0 or a
 * result, or −errno.
 */
public interface Posix {
    /** Through libc. */
    Posix SYSTEM = NativeLoader.posix();

    int EPERM = 1;
    int ENOENT = 2;
    int ESRCH = 3;
    int EAGAIN = 11;
    int EACCES = 13;
    int EFAULT = 14;
    int EEXIST = 17;
    int ENOTDIR = 20;
    int EISDIR = 21;
    int EINVAL = 22;
    int EROFS = 30;
    int EOPNOTSUPP = 95;
    int ETIMEDOUT = 110;

    int O_RDONLY = 0;
    int O_RDWR = 2;
    int O_NONBLOCK = 0x800;
    int O_CLOEXEC = 0x8_0000;
    boolean ARM = System.getProperty("os.arch").equals("aarch64");
    int O_DIRECTORY = ARM ? 0x4000 : 0x1_0000;
    int O_TMPFILE = 0x40_0000 | O_DIRECTORY;

    int LOCK_EXCLUSIVE = 2;
    int LOCK_NONBLOCK = 4;

    int PROT_READ = 1;
    int PROT_WRITE = 2;

    int SIGKILL = 9;

    /** What there is to know of a file. */
    record Status(long device, long inode, long size, int mode) {
        /** Whether two are the same file. */
        public boolean isSameFile(Status other) {
            return device == other.device && inode == other.inode;
        }

        public boolean isRegular() {
            return (mode & 0xf000) == 0x8000;
        }
    }

    int open(String path, int flags, int mode);

    /** A new file that is in memory only and has no path; the name is for people. */
    int memoryFile(String name);

    int close(int fd);

    /** An advisory lock of the whole file. */
    int flock(int fd, int operation);

    int fchmod(int fd, int mode);

    /** Reserves the space. */
    int fallocate(int fd, long size);

    int truncate(int fd, long size);

    int fsync(int fd);

    int read(int fd, MemorySegment to, long position);

    int write(int fd, MemorySegment from, long position);

    /** Gives a name to a file that was opened without one; never replaces another. */
    int link(int fd, String path);

    /** The status of an open file, or an exception that carries errno. */
    Status status(int fd) throws ErrnoException;

    /** The status of the file with that name, symbolic links followed. */
    Status status(String path) throws ErrnoException;

    /** The magic number of a file system, not negative; or −errno. */
    long fileSystem(int fd);

    /** Maps a file shared, or with fd −1 fresh memory; the address, or −errno. */
    long map(int fd, long size, int protection);

    int unmap(long address, long size);

    /** The calling thread's id in its pid namespace. */
    int threadId();

    int pidfdOpen(int pid);

    int pidfdSignal(int pidfd, int signal);

    /** Sends a signal to a process. */
    int kill(int pid, int signal);

    int userId();

    /** Says what an errno means, for people. */
    String describe(int errno);

    /** A call failed. */
    final class ErrnoException extends Exception {
        private static final long serialVersionUID = 1L;

        /** What the kernel answered. */
        public final int errno;

        ErrnoException(int errno) {
            super("errno " + errno, null, false, false);
            this.errno = errno;
        }
    }
}
