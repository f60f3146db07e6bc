// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Deadline;
import dev.fermata.internal.Entry;
import dev.fermata.internal.Failpoint;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Printable;
import dev.fermata.internal.Waiters;
import dev.fermata.internal.Word;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;

/**
 * A number of 64 bits in a {@link LockFile}, known by its name, that only grows, and that others wait for: the building
 * block of a ring buffer. It begins at 0.
 *
 * <p>Publishing is a release, and so is what was written before; to see a number, by waiting or by {@link #value}, is an
 * acquire. Publishing costs a store where nobody sleeps. Who waits looks for a moment, and then sleeps.
 *
 * <p>Fairness: none is needed, as everybody gets what he waits for.
 *
 * <p>Death. Nothing is held, and a number that was published stays so. A publisher that dies publishes nothing more: who
 * waits for him waits on, or until his time is over. One that dies between publishing and waking others is made up for
 * within milliseconds.
 *
 * <p>Every method throws {@link DamagedMappingException} where the file was truncated, {@link LockFileReplacedException}
 * where it was deleted or replaced, and {@link LockFileClosedException} where it was closed in this process.
 *
 * <p>The protocol (PROTOCOL.md, section "SharedSequence"):
 *
 * <pre>
 * value    64 bits, never less than before
 * events   an eventcount, on which waiters sleep
 *
 * publish  value := n, a plain release; ASLEEP in events: next epoch, wake all
 * await    value at least n: done. Else look for a moment; then register in events, barrier, look again, sleep on events
 * </pre>
 */
public final class SharedSequence {
    private final Entry entry;
    private final MemorySegment words;
    private final Waiters waiters;

    SharedSequence(Entry entry) {
        this.entry = entry;
        this.words = entry.words;
        this.waiters = new Waiters(entry, entry.events(), true, false, this::toString);
    }

    // ---- to publish ----

    /**
     * Publishes a number, by the only publisher: at a time, no other thread or process may do so. Release.
     *
     * @param number at least what was published last
     * @throws IllegalArgumentException if it is less
     */
    public void publish(long number) {
        MemorySegment memory = words;
        try {
            long last = Word.loadLongPlain(memory, Layout.E_VALUE);
            if (number < last) {
                throw less(number, last);
            }
            if (entry.attachment.id == 0) {
                entry.check();
            }
            // Release: pairs with the acquire in value; publishes what was written before.
            Word.storeLongRelease(memory, Layout.E_VALUE, number);
            Failpoint.after("sequence: published");
            if (entry.attachment.symmetric) {
                VarHandle.fullFence();
            } else {
                VarHandle.acquireFence(); // for the compiler; the waiter has the barrier
            }
            if ((Word.loadRelaxed(memory, Layout.E_EVENTS) & Layout.ASLEEP) != 0) {
                waiters.wake();
            }
        } catch (InternalError | IllegalStateException e) {
            throw entry.failure(e);
        }
    }

    /**
     * Publishes a number, by one of several publishers: has no effect if as much was published already. Release.
     *
     * @param number what the sequence is to be at least
     * @return whether it was less
     */
    public boolean raise(long number) {
        return entry.guarded(() -> {
            while (true) {
                entry.check();
                long last = Word.loadLong(words, Layout.E_VALUE);
                if (number <= last) {
                    return false;
                }
                if (put(last, number)) {
                    return true;
                }
            }
        });
    }

    /**
     * Adds to the sequence, by one of several publishers. Release and acquire.
     *
     * @param increment above 0
     * @return what it was before
     * @throws IllegalArgumentException if it is not above 0
     * @throws Error if the sum does not fit 63 bits; nothing is changed
     */
    public long getAndAdd(long increment) {
        if (increment <= 0) {
            throw new IllegalArgumentException("increment: found " + increment + ", expected more than 0");
        }
        return entry.guarded(() -> {
            while (true) {
                entry.check();
                long last = Word.loadLong(words, Layout.E_VALUE);
                if (last > Long.MAX_VALUE - increment) {
                    throw new Error("sequence %s is at %d and cannot be raised by %d; the maximum is 2^63-1".formatted(
                            entry, last, increment));
                }
                if (put(last, last + increment)) {
                    return last;
                }
            }
        });
    }

    private boolean put(long last, long number) {
        if (!Word.casLong(words, Layout.E_VALUE, last, number)) {
            return false;
        }
        Failpoint.after("sequence: published");
        waiters.wake();
        return true;
    }

    private IllegalArgumentException less(long number, long last) {
        return new IllegalArgumentException(
                "sequence %s is at %d already, found %d, expected no less; it only grows".formatted(entry, last, number));
    }

    // ---- to wait ----

    /**
     * What it has come to. Acquire.
     *
     * @return the number that was published last
     */
    public long value() {
        try {
            return Word.loadLongAcquire(words, Layout.E_VALUE);
        } catch (InternalError | IllegalStateException e) {
            throw entry.failure(e);
        }
    }

    /**
     * Waits until so much is published, or the thread is interrupted. Acquire.
     *
     * @param number what is waited for
     * @return the number that is published then, at least that
     * @throws InterruptedException if the thread is interrupted before
     */
    public long await(long number) throws InterruptedException {
        await(number, Deadline.NEVER, true);
        return value();
    }

    /**
     * Waits until so much is published; an interrupt does not end the wait. Acquire.
     *
     * @param number what is waited for
     * @return the number that is published then, at least that
     */
    public long awaitUninterruptibly(long number) {
        try {
            await(number, Deadline.NEVER, false);
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
        return value();
    }

    /**
     * Waits for at most the given time. Acquire if it came.
     *
     * @param number what is waited for
     * @param timeout how long; 0 or less looks once, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether so much is published
     * @throws InterruptedException if the thread is interrupted before
     */
    public boolean await(long number, long timeout, TimeUnit unit) throws InterruptedException {
        return await(number, Deadline.after(timeout, Objects.requireNonNull(unit, "unit")), true);
    }

    /**
     * Waits for at most the given time. Acquire.
     *
     * @param number what is waited for
     * @param timeout how long; zero or less looks once
     * @return the number that is published then, at least that
     * @throws LockTimeoutException if so much was not published in time
     * @throws InterruptedException if the thread is interrupted before
     */
    public long await(long number, Duration timeout) throws LockTimeoutException, InterruptedException {
        long nanos = TimeUnit.NANOSECONDS.convert(Objects.requireNonNull(timeout, "timeout"));
        if (!await(number, nanos, TimeUnit.NANOSECONDS)) {
            throw waiters.timedOut(timeout);
        }
        return value();
    }

    private boolean await(long number, long deadline, boolean interruptibly) throws InterruptedException {
        return waiters.await(() -> isPublished(words, number), deadline, interruptibly);
    }

    private static boolean isPublished(MemorySegment memory, long number) {
        // Acquire: pairs with the release in publish.
        return Word.loadLongAcquire(memory, Layout.E_VALUE) >= number;
    }

    /**
     * Asks to be told when so much is published: {@link #awaitAsync(long, Executor)} with the common pool.
     *
     * @param number what is waited for
     * @return the number that is published then, sooner or later
     */
    public CompletableFuture<Long> awaitAsync(long number) {
        return awaitAsync(number, ForkJoinPool.commonPool());
    }

    /**
     * Asks to be told when so much is published, and never blocks. Acquire, for whoever is told. To cancel the future
     * gives up.
     *
     * @param number what is waited for
     * @param executor completes the future, unless it is complete at once; to submit to it must not block
     * @return the number that is published then, sooner or later
     */
    public CompletableFuture<Long> awaitAsync(long number, Executor executor) {
        return waiters.request(() -> isPublished(words, number), this::value, () -> { }, null,
                Objects.requireNonNull(executor, "executor"));
    }

    // ---- to look at ----

    /**
     * Bytes in the file, all zero at first, whose use the sequence is to order: see {@link SharedMutex#payload}.
     *
     * @return the memory, its start a multiple of 64
     */
    public MemorySegment payload() {
        return entry.guarded(() -> entry.attachment.payload(entry.number));
    }

    /**
     * Its name.
     *
     * @return the name
     */
    public String name() {
        return entry.name;
    }

    /** For tests. */
    MemorySegment memory() {
        return words;
    }

    @Override
    public String toString() {
        String state;
        try {
            state = "at " + value();
        } catch (IllegalStateException unusable) {
            state = unusable.getMessage();
        }
        return "SharedSequence[%s, %s]".formatted(entry, Printable.of(state));
    }
}
