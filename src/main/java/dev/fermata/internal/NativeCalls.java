// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * The native seam: the system calls that Java cannot make by itself, and PAUSE.
 *
 * <p>All calls return 0 or a count, or −errno. Deadlines are absolute nanoseconds of {@code CLOCK_MONOTONIC},
 * {@link Deadline#NEVER} for none. Words are aligned 32-bit words of <em>shared</em> mappings.
 */
public interface NativeCalls {
    /** The calls of this process, chosen once: the shim where it is usable, else libc. */
    NativeCalls SYSTEM = NativeLoader.load();

    /** Unlocks, for {@link #ofdLock}. */
    int OFD_UNLOCK = 0;
    /** A shared lock, for {@link #ofdLock}. */
    int OFD_SHARED = 1;
    /** An exclusive lock, for {@link #ofdLock}. */
    int OFD_EXCLUSIVE = 2;

    /** Sleeps while the word holds {@code expected}. Takes the segment: its arena cannot be closed meanwhile. */
    int futexWait(MemorySegment word, int expected, long deadline);

    /** Wakes at most {@code count} sleepers and returns how many. An address that is no longer mapped is EFAULT. */
    int futexWake(long address, int count);

    /**
     * Sleeps while all {@code n} words hold their values; the index of one that was woken. They have to stay mapped
     * meanwhile; that their page is lost is EFAULT.
     */
    int futexWaitAny(MemorySegment addresses, MemorySegment expected, int n, long deadline);

    /** Like {@link #futexWaitAny}; one that was woken wakes all others on all words but the first before it returns. */
    default int guard(MemorySegment addresses, MemorySegment expected, int n, long deadline) {
        int woken = futexWaitAny(addresses, expected, n, deadline);
        if (woken > 0) {
            futexWake(addresses.getAtIndex(JAVA_LONG, woken), Futex.ALL);
        }
        // As in the shim: two words may have been woken, and only one is told.
        if (woken >= 0 && n > 1 && futexWaitAny(addresses.asSlice(Long.BYTES), expected.asSlice(Integer.BYTES), n - 1, 0)
                != -Posix.ETIMEDOUT) {
            for (int i = 1; i < n; i++) {
                futexWake(addresses.getAtIndex(JAVA_LONG, i), Futex.ALL);
            }
        }
        return woken;
    }

    /** Makes this process a target of {@link #membarrier}. */
    int membarrierRegister();

    /** A full barrier on every running thread of every registered process. */
    int membarrier();

    /** Registers the calling thread's robust list in place of libc's. */
    int robustList(MemorySegment head);

    /** Locks or unlocks bytes for the open file description, without waiting. */
    int ofdLock(int fd, long start, long length, int kind);

    /** 0 where {@link #ofdLock} would be granted, 1 where another open file description is in the way. */
    int ofdTest(int fd, long start, long length, int kind);

    /** The native pause, of type {@code ()void}, or {@code null} where {@link Thread#onSpinWait} is all there is. */
    MethodHandle pause();

    /** The native pause repeated, of type {@code (int)int}, capped; or {@code null}. */
    MethodHandle pauseRepeatedly();

    /** What these calls go through and why, for people. */
    String describe();
}
