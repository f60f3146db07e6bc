// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

/** {@link Posix} through the Foreign Function &amp; Memory API. */
final class LibcPosix implements Posix {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final Linker.Option ERRNO = Linker.Option.captureCallState("errno");
    private static final MemoryLayout CALL_STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO_VALUE =
            CALL_STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    private static final int AT_FDCWD = -100;
    private static final int AT_EMPTY_PATH = 0x1000;
    private static final int AT_SYMLINK_FOLLOW = 0x400;
    private static final int STATX_BASIC_STATS = 0x7ff;
    private static final int MAP_SHARED = 1;
    private static final int MAP_ANONYMOUS = 0x20;
    private static final int MFD_CLOEXEC = 1;
    private static final long SYS_GETTID = ARM ? 178 : 186;
    private static final long SYS_MEMFD_CREATE = ARM ? 279 : 319;
    private static final long SYS_PIDFD_SEND_SIGNAL = 424;
    private static final long SYS_PIDFD_OPEN = 434;

    private final MethodHandle close = function("close", JAVA_INT);
    private final MethodHandle pwrite = longFunction("pwrite", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    private final MethodHandle syscall = LINKER.downcallHandle(LINKER.defaultLookup().findOrThrow("syscall"),
            FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
            ERRNO, Linker.Option.firstVariadicArg(1));

    /** What only lock files need, made when it is first used: that takes 40 ms. */
    private static final class Late {
        static final MethodHandle OPEN = variadic("open", 2, ADDRESS, JAVA_INT, JAVA_INT);
        static final MethodHandle FLOCK = function("flock", JAVA_INT, JAVA_INT);
        static final MethodHandle FCHMOD = function("fchmod", JAVA_INT, JAVA_INT);
        static final MethodHandle POSIX_FALLOCATE = function("posix_fallocate", JAVA_INT, JAVA_LONG, JAVA_LONG);
        static final MethodHandle FTRUNCATE = function("ftruncate", JAVA_INT, JAVA_LONG);
        static final MethodHandle FSYNC = function("fsync", JAVA_INT);
        static final MethodHandle LINKAT = function("linkat", JAVA_INT, ADDRESS, JAVA_INT, ADDRESS, JAVA_INT);
        static final MethodHandle STATX = function("statx", JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT, ADDRESS);
        static final MethodHandle FSTATFS = function("fstatfs", JAVA_INT, ADDRESS);
        static final MethodHandle KILL = function("kill", JAVA_INT, JAVA_INT);
        static final MethodHandle MUNMAP = function("munmap", JAVA_LONG, JAVA_LONG);
        static final MethodHandle GETUID = function("getuid");
        static final MethodHandle PREAD = longFunction("pread", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
        static final MethodHandle MMAP =
                longFunction("mmap", JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG);
        static final MethodHandle STRERROR = LINKER.downcallHandle(
                LINKER.defaultLookup().findOrThrow("strerror"), FunctionDescriptor.of(ADDRESS, JAVA_INT));
    }

    private static MethodHandle function(String name, MemoryLayout... parameters) {
        return LINKER.downcallHandle(
                LINKER.defaultLookup().findOrThrow(name), FunctionDescriptor.of(JAVA_INT, parameters), ERRNO);
    }

    private static MethodHandle longFunction(String name, MemoryLayout... parameters) {
        return LINKER.downcallHandle(
                LINKER.defaultLookup().findOrThrow(name), FunctionDescriptor.of(JAVA_LONG, parameters), ERRNO);
    }

    private static MethodHandle variadic(String name, int fixed, MemoryLayout... parameters) {
        return LINKER.downcallHandle(LINKER.defaultLookup().findOrThrow(name),
                FunctionDescriptor.of(JAVA_INT, parameters), ERRNO, Linker.Option.firstVariadicArg(fixed));
    }

    /** A downcall that leaves errno in the state it is given, with memory of its own. */
    private interface Call {
        long run(MemorySegment state, Arena arena) throws Throwable;
    }

    private static long call(Call call) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(CALL_STATE);
            long result = call.run(state, arena);
            return result == -1 ? -(int) ERRNO_VALUE.get(state, 0L) : result;
        } catch (RuntimeException | Error unchecked) {
            throw unchecked;
        } catch (Throwable impossible) {
            throw new AssertionError("a downcall threw a checked exception", impossible);
        }
    }

    @Override
    public int open(String path, int flags, int mode) {
        return (int) call((state, arena) -> (int) Late.OPEN.invokeExact(state, arena.allocateFrom(path), flags, mode));
    }

    @Override
    public int memoryFile(String name) {
        return (int) call((state, arena) -> (long) syscall.invokeExact(
                state, SYS_MEMFD_CREATE, arena.allocateFrom(name).address(), (long) MFD_CLOEXEC, 0L, 0L));
    }

    @Override
    public int close(int fd) {
        return (int) call((state, arena) -> (int) close.invokeExact(state, fd));
    }

    @Override
    public int flock(int fd, int operation) {
        return (int) call((state, arena) -> (int) Late.FLOCK.invokeExact(state, fd, operation));
    }

    @Override
    public int fchmod(int fd, int mode) {
        return (int) call((state, arena) -> (int) Late.FCHMOD.invokeExact(state, fd, mode));
    }

    @Override
    public int fallocate(int fd, long size) {
        return -(int) call( // errno is the result
                (state, arena) -> (int) Late.POSIX_FALLOCATE.invokeExact(state, fd, 0L, size));
    }

    @Override
    public int truncate(int fd, long size) {
        return (int) call((state, arena) -> (int) Late.FTRUNCATE.invokeExact(state, fd, size));
    }

    @Override
    public int fsync(int fd) {
        return (int) call((state, arena) -> (int) Late.FSYNC.invokeExact(state, fd));
    }

    @Override
    public int read(int fd, MemorySegment to, long position) {
        return (int) call((state, arena) -> (long) Late.PREAD.invokeExact(state, fd, to, to.byteSize(), position));
    }

    @Override
    public int write(int fd, MemorySegment from, long position) {
        return (int) call((state, arena) -> (long) pwrite.invokeExact(state, fd, from, from.byteSize(), position));
    }

    @Override
    public int link(int fd, String path) {
        return (int) call((state, arena) -> (int) Late.LINKAT.invokeExact(state, AT_FDCWD,
                arena.allocateFrom("/proc/self/fd/" + fd), AT_FDCWD, arena.allocateFrom(path), AT_SYMLINK_FOLLOW));
    }

    @Override
    public Status status(int fd) throws ErrnoException {
        return status(fd, "", AT_EMPTY_PATH);
    }

    @Override
    public Status status(String path) throws ErrnoException {
        return status(AT_FDCWD, path, 0);
    }

    private Status status(int fd, String path, int flags) throws ErrnoException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment buffer = arena.allocate(256, 8); // struct statx, the same everywhere
            int done = (int) call((state, inner) -> (int) Late.STATX.invokeExact(
                    state, fd, inner.allocateFrom(path), flags, STATX_BASIC_STATS, buffer));
            if (done < 0) {
                throw new ErrnoException(-done);
            }
            long device = (long) buffer.get(JAVA_INT, 136) << 32 | buffer.get(JAVA_INT, 140) & 0xffff_ffffL;
            return new Status(device, buffer.get(JAVA_LONG, 32), buffer.get(JAVA_LONG, 40),
                    buffer.get(JAVA_SHORT, 28) & 0xffff);
        }
    }

    @Override
    public long fileSystem(int fd) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment buffer = arena.allocate(256, 8); // struct statfs, whose first member is f_type
            long done = call((state, inner) -> (int) Late.FSTATFS.invokeExact(state, fd, buffer));
            return done < 0 ? done : buffer.get(JAVA_LONG, 0) & 0xffff_ffffL;
        }
    }

    @Override
    public long map(int fd, long size, int protection) {
        int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
        return call((state, arena) -> (long) Late.MMAP.invokeExact(state, 0L, size, protection, flags, fd, 0L));
    }

    @Override
    public int unmap(long address, long size) {
        return (int) call((state, arena) -> (int) Late.MUNMAP.invokeExact(state, address, size));
    }

    private long syscall(long number, long a, long b, long c, long d) {
        return call((state, arena) -> (long) syscall.invokeExact(state, number, a, b, c, d));
    }

    @Override
    public int threadId() {
        return (int) syscall(SYS_GETTID, 0, 0, 0, 0);
    }

    @Override
    public int pidfdOpen(int pid) {
        return (int) syscall(SYS_PIDFD_OPEN, pid, 0, 0, 0);
    }

    @Override
    public int pidfdSignal(int pidfd, int signal) {
        return (int) syscall(SYS_PIDFD_SEND_SIGNAL, pidfd, signal, 0, 0);
    }

    @Override
    public int kill(int pid, int signal) {
        return (int) call((state, arena) -> (int) Late.KILL.invokeExact(state, pid, signal));
    }

    @Override
    public int userId() {
        return (int) call((state, arena) -> (int) Late.GETUID.invokeExact(state));
    }

    @Override
    public String describe(int errno) {
        try {
            MemorySegment text = (MemorySegment) Late.STRERROR.invokeExact(errno);
            return text.reinterpret(256).getString(0) + " (errno " + errno + ")";
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }
}
