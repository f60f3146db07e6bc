// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.DamagedMappingException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * The seam between the protocols and the kernel: sleeping on a word and waking its sleepers. Always the shared futex.
 * Tests put a scripted one in its place.
 */
public interface Futex {
    /** All sleepers, for {@link #wake}. */
    int ALL = Integer.MAX_VALUE;

    /** How long a waiter sleeps at most before it looks again, in nanoseconds: 2 s. */
    long LOOK_AGAIN = 2_000_000_000;

    /** The kernel's. */
    Futex SYSTEM = new SystemFutex(NativeCalls.SYSTEM);

    /** Why a wait returned. The first four are only hints: whatever is said, the state of the word decides. */
    enum Result {
        /** Woken, perhaps spuriously. */
        WOKEN,
        /** The word did not hold the expected value (EAGAIN). */
        CHANGED,
        /** The deadline came (ETIMEDOUT). */
        TIMED_OUT,
        /** A signal came (EINTR). */
        INTERRUPTED,
        /** The page is gone, or nothing is mapped there (EFAULT). */
        FAULT,
        /** The kernel refused the arguments (EINVAL): a misaligned word. */
        INVALID,
        /** The kernel has no such call (ENOSYS). */
        UNSUPPORTED
    }

    /** Sleeps while the word holds {@code expected}, until the deadline at most. */
    Result wait(Word word, int expected, long deadline);

    /** Sleeps while every word holds its expected value (at most 128 words), until the deadline at most. */
    Result waitAny(Word[] words, int[] expected, long deadline);

    /**
     * {@link #waitAny} beside lifelines, which are all words but the first. For a death the kernel wakes one sleeper; that
     * one wakes all others on them before it returns.
     */
    Result guard(Word[] words, int[] expected, long deadline);

    /**
     * Wakes at most {@code count} sleepers and returns how many there were.
     *
     * @throws DamagedMappingException if the page is gone
     */
    int wake(Word word, int count);

    /**
     * {@link #wait} for the loop of a protocol, which looks at the word in any case. Returns after {@link #LOOK_AGAIN}
     * at the latest: nobody wakes those who sleep on a page that is gone, and only a look finds that it is.
     *
     * @throws DamagedMappingException if the page is gone
     */
    default void sleep(Word word, int expected, long deadline) {
        switch (wait(word, expected, Deadline.earlier(deadline, LOOK_AGAIN))) {
            case FAULT -> throw word.lost();
            case INVALID, UNSUPPORTED -> throw new AssertionError("the kernel refused to wait on " + word);
            case WOKEN, CHANGED, TIMED_OUT, INTERRUPTED -> { }
        }
    }

    /** The kernel's futex through the native seam. */
    final class SystemFutex implements Futex {
        private static final int EINTR = 4;
        private static final int EAGAIN = 11;
        private static final int EFAULT = 14;
        private static final int EINVAL = 22;
        private static final int ENOSYS = 38;
        private static final int ETIMEDOUT = 110;

        private final NativeCalls calls;

        SystemFutex(NativeCalls calls) {
            this.calls = calls;
        }

        static Result result(int returned) {
            return returned >= 0 ? Result.WOKEN : switch (-returned) {
                case EAGAIN -> Result.CHANGED;
                case ETIMEDOUT -> Result.TIMED_OUT;
                case EINTR -> Result.INTERRUPTED;
                case EFAULT -> Result.FAULT;
                case EINVAL -> Result.INVALID;
                case ENOSYS -> Result.UNSUPPORTED;
                default -> throw new IllegalStateException("a futex wait ended with unexpected errno " + -returned);
            };
        }

        @Override
        public Result wait(Word word, int expected, long deadline) {
            return result(calls.futexWait(word.segment(), expected, deadline));
        }

        @Override
        public Result waitAny(Word[] words, int[] expected, long deadline) {
            return several(calls::futexWaitAny, words, expected, deadline);
        }

        @Override
        public Result guard(Word[] words, int[] expected, long deadline) {
            return several(calls::guard, words, expected, deadline);
        }

        private interface Several {
            int wait(MemorySegment addresses, MemorySegment expected, int n, long deadline);
        }

        private static Result several(Several wait, Word[] words, int[] expected, long deadline) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment addresses = arena.allocate(JAVA_LONG, words.length);
                for (int i = 0; i < words.length; i++) {
                    addresses.setAtIndex(JAVA_LONG, i, words[i].segment().address());
                }
                MemorySegment values = arena.allocateFrom(JAVA_INT, expected);
                return result(wait.wait(addresses, values, words.length, deadline));
            }
        }

        @Override
        public int wake(Word word, int count) {
            // The bare address: the lock is already free, and whoever got it next may close the arena at once.
            int woken = calls.futexWake(word.segment().address(), count);
            if (woken == -EFAULT) {
                if (word.segment().scope().isAlive()) {
                    throw word.lost();
                }
                return 0; // closed meanwhile by its last user, who does not sleep
            }
            if (woken < 0) {
                throw new AssertionError("the kernel refused to wake " + word + ": errno " + -woken);
            }
            return woken;
        }
    }
}
