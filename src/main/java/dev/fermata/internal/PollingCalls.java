// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * The calls where {@code futex_waitv} is missing. Who waits for several words looks at all of them, and in between
 * sleeps on the first: a wake there is seen at once, a change of another one at the next look, and a wake without a
 * change of another one not at all. As every protocol changes the word before it wakes, nothing is lost but time.
 *
 * <p>Java looks at the words, by their addresses: they have to stay mapped for as long as the wait lasts.
 */
final class PollingCalls implements NativeCalls {
    /** How long it sleeps between two looks at most, in ms. */
    private static final long POLL = 2;

    private static final int MAX_WORDS = 128;
    private static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private final NativeCalls calls;
    private final String why;

    PollingCalls(NativeCalls calls, String why) {
        this.calls = calls;
        this.why = why;
    }

    @Override
    public int futexWaitAny(MemorySegment addresses, MemorySegment expected, int n, long deadline) {
        if (n < 1 || n > MAX_WORDS) {
            return -Posix.EINVAL;
        }
        try {
            boolean slept = false;
            while (true) {
                for (int i = 0; i < n; i++) {
                    if (Word.loadRelaxed(MEMORY, addresses.getAtIndex(JAVA_LONG, i)) == expected.getAtIndex(JAVA_INT, i)) {
                        continue;
                    }
                    int look = wait(addresses, expected, i, 0); // what was read of a page that is gone means nothing
                    if (look >= 0 || look == -Posix.EAGAIN && slept) {
                        return i;
                    }
                    if (look != -Posix.ETIMEDOUT) { // else it is what is expected again
                        return look;
                    }
                }
                long until = Math.min(deadline, System.nanoTime() + POLL * 1_000_000);
                int woken = wait(addresses, expected, 0, until);
                if (woken != -Posix.EAGAIN && (woken != -Posix.ETIMEDOUT || until == deadline)) {
                    return woken;
                }
                slept = true;
            }
        } catch (InternalError lost) {
            return -Posix.EFAULT;
        }
    }

    private int wait(MemorySegment addresses, MemorySegment expected, int i, long deadline) {
        return calls.futexWait(MemorySegment.ofAddress(addresses.getAtIndex(JAVA_LONG, i)),
                expected.getAtIndex(JAVA_INT, i), deadline);
    }

    @Override
    public String describe() {
        return "%s; without futex_waitv (%s): waits for several words look every %d ms".formatted(
                calls.describe(), why, POLL);
    }

    // ---- all others ----

    @Override
    public int futexWait(MemorySegment word, int expected, long deadline) {
        return calls.futexWait(word, expected, deadline);
    }

    @Override
    public int futexWake(long address, int count) {
        return calls.futexWake(address, count);
    }

    @Override
    public int membarrierRegister() {
        return calls.membarrierRegister();
    }

    @Override
    public int membarrier() {
        return calls.membarrier();
    }

    @Override
    public int robustList(MemorySegment head) {
        return calls.robustList(head);
    }

    @Override
    public int ofdLock(int fd, long start, long length, int kind) {
        return calls.ofdLock(fd, start, length, kind);
    }

    @Override
    public int ofdTest(int fd, long start, long length, int kind) {
        return calls.ofdTest(fd, start, length, kind);
    }

    @Override
    public MethodHandle pause() {
        return calls.pause();
    }

    @Override
    public MethodHandle pauseRepeatedly() {
        return calls.pauseRepeatedly();
    }
}
