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

/** The calls through libc's {@code syscall} and {@code fcntl}: slower than the shim, and without its PAUSE. */
final class LibcCalls implements NativeCalls {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final Linker.Option ERRNO = Linker.Option.captureCallState("errno");
    private static final MemoryLayout CALL_STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO_VALUE =
            CALL_STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    private static final int EINVAL = 22;
    private static final int FUTEX_WAKE = 1;
    private static final int FUTEX_WAIT_BITSET = 9;
    private static final int FUTEX_BITSET_MATCH_ANY = -1;
    private static final int FUTEX_32_BITS_SHARED = 2;
    private static final int WAITV_MAX = 128;
    private static final int WAITV_SIZE = 24;
    private static final int CLOCK_MONOTONIC = 1;
    private static final int MEMBARRIER_GLOBAL_EXPEDITED = 2;
    private static final int MEMBARRIER_REGISTER_GLOBAL_EXPEDITED = 4;
    private static final int ROBUST_LIST_HEAD_SIZE = 24;
    private static final int F_OFD_GETLK = 36;
    private static final int F_OFD_SETLK = 37;
    private static final short[] FLOCK_TYPES = {2, 0, 1}; // F_UNLCK, F_RDLCK, F_WRLCK, by NativeCalls.OFD_*
    private static final int FLOCK_SIZE = 32;

    private final String why;
    private final long sysFutex;
    private final long sysFutexWaitv = 449; // since Linux 5.16, the same everywhere
    private final long sysMembarrier;
    private final long sysSetRobustList;
    private final MethodHandle onWord;
    private final MethodHandle onAddress;
    private final MethodHandle fcntl;

    LibcCalls(String why) {
        this.why = why;
        switch (System.getProperty("os.arch")) {
            case "amd64", "x86_64" -> {
                sysFutex = 202;
                sysMembarrier = 324;
                sysSetRobustList = 273;
            }
            case "aarch64" -> {
                sysFutex = 98;
                sysMembarrier = 283;
                sysSetRobustList = 99;
            }
            case String other -> throw new UnsupportedOperationException(
                    "Fermata knows the system calls of x86-64 and AArch64; found " + other);
        }
        var syscall = LINKER.defaultLookup().findOrThrow("syscall");
        var variadic = Linker.Option.firstVariadicArg(1);
        onWord = LINKER.downcallHandle(syscall,
                FunctionDescriptor.of(
                        JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG),
                ERRNO, variadic);
        onAddress = LINKER.downcallHandle(syscall,
                FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG), ERRNO, variadic);
        fcntl = LINKER.downcallHandle(LINKER.defaultLookup().findOrThrow("fcntl"),
                FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS), ERRNO, Linker.Option.firstVariadicArg(2));
    }

    /** A downcall that leaves errno in the segment it is given. */
    private interface Call {
        long run(MemorySegment state) throws Throwable;
    }

    private static int call(Arena arena, Call call) {
        MemorySegment state = arena.allocate(CALL_STATE);
        return ShimCalls.call(() -> {
            long result = call.run(state);
            return result < 0 ? -(int) ERRNO_VALUE.get(state, 0L) : (int) result;
        });
    }

    private int callSyscall(long number, long a, long b, long c) {
        try (Arena arena = Arena.ofConfined()) {
            return call(arena, state -> (long) onAddress.invokeExact(state, number, a, b, c));
        }
    }

    private static MemorySegment timespec(Arena arena, long deadline) {
        if (deadline == Deadline.NEVER) {
            return MemorySegment.NULL;
        }
        long nanos = Math.max(deadline, 0);
        return arena.allocateFrom(JAVA_LONG, nanos / 1_000_000_000, nanos % 1_000_000_000);
    }

    @Override
    public int futexWait(MemorySegment word, int expected, long deadline) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment timespec = timespec(arena, deadline);
            return call(arena, state -> (long) onWord.invokeExact(state, sysFutex, word, (long) FUTEX_WAIT_BITSET,
                    Integer.toUnsignedLong(expected), timespec, 0L, (long) FUTEX_BITSET_MATCH_ANY));
        }
    }

    @Override
    public int futexWake(long address, int count) {
        return callSyscall(sysFutex, address, FUTEX_WAKE, count);
    }

    @Override
    public int futexWaitAny(MemorySegment addresses, MemorySegment expected, int n, long deadline) {
        if (n < 1 || n > WAITV_MAX) {
            return -EINVAL;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment waiters = arena.allocate((long) n * WAITV_SIZE, 8); // struct futex_waitv
            for (int i = 0; i < n; i++) {
                long at = (long) i * WAITV_SIZE;
                waiters.set(JAVA_LONG, at, Integer.toUnsignedLong(expected.getAtIndex(JAVA_INT, i)));
                waiters.set(JAVA_LONG, at + 8, addresses.getAtIndex(JAVA_LONG, i));
                waiters.set(JAVA_INT, at + 16, FUTEX_32_BITS_SHARED);
            }
            MemorySegment timespec = timespec(arena, deadline);
            return call(arena, state -> (long) onWord.invokeExact(
                    state, sysFutexWaitv, waiters, (long) n, 0L, timespec, (long) CLOCK_MONOTONIC, 0L));
        }
    }

    @Override
    public int membarrierRegister() {
        return callSyscall(sysMembarrier, MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0);
    }

    @Override
    public int membarrier() {
        return callSyscall(sysMembarrier, MEMBARRIER_GLOBAL_EXPEDITED, 0, 0);
    }

    @Override
    public int robustList(MemorySegment head) {
        return callSyscall(sysSetRobustList, head.address(), ROBUST_LIST_HEAD_SIZE, 0);
    }

    @Override
    public int ofdLock(int fd, long start, long length, int kind) {
        try (Arena arena = Arena.ofConfined()) {
            return kind < 0 || kind >= FLOCK_TYPES.length
                    ? -EINVAL : fcntl(arena, fd, F_OFD_SETLK, flock(arena, start, length, kind));
        }
    }

    @Override
    public int ofdTest(int fd, long start, long length, int kind) {
        try (Arena arena = Arena.ofConfined()) {
            if (kind < 0 || kind >= FLOCK_TYPES.length) {
                return -EINVAL;
            }
            MemorySegment flock = flock(arena, start, length, kind);
            int result = fcntl(arena, fd, F_OFD_GETLK, flock);
            return result < 0 ? result : flock.get(JAVA_SHORT, 0) == FLOCK_TYPES[OFD_UNLOCK] ? 0 : 1;
        }
    }

    /** {@code struct flock}: type and whence (16 bits each), start and length (64 bits each), pid. */
    private static MemorySegment flock(Arena arena, long start, long length, int kind) {
        MemorySegment flock = arena.allocate(FLOCK_SIZE, 8);
        flock.set(JAVA_SHORT, 0, FLOCK_TYPES[kind]);
        flock.set(JAVA_LONG, 8, start);
        flock.set(JAVA_LONG, 16, length);
        return flock;
    }

    private int fcntl(Arena arena, int fd, int command, MemorySegment flock) {
        return call(arena, state -> (int) fcntl.invokeExact(state, fd, command, flock));
    }

    @Override
    public MethodHandle pause() {
        return null;
    }

    @Override
    public MethodHandle pauseRepeatedly() {
        return null;
    }

    @Override
    public String describe() {
        return "libc's syscall and Thread.onSpinWait (" + why + ")";
    }
}
