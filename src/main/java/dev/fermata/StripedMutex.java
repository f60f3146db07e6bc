// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Deadline;
import dev.fermata.internal.Entry;
import dev.fermata.internal.Layout;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/**
 * A mutex for each of any number of keys, over a fixed number of mutexes, the <em>stripes</em>, in a {@link LockFile}. In
 * all processes a key has the same stripe, by its value; different keys may share one.
 *
 * <p>A stripe is a {@link SharedMutex}, and what is said there of fairness, of memory and of death holds for it. It is
 * re-entrant, so keys of the same stripe may be locked by one thread one within another. Keys of different stripes may
 * not, unless all threads of all processes take them in the same order: {@link #lockAll} does.
 *
 * <p>A key's stripe is its hash modulo their number: FNV-1a of 64 bits over the key's bytes and a finalizer, as of the
 * names in a lock file (PROTOCOL.md, section 8), taken as an unsigned number. The bytes of a text are its UTF-8, those of
 * a number its eight, the lowest first.
 */
public final class StripedMutex {
    /** As many as make sense: each is an entry of the file. */
    static final int MAX = 1 << 20;

    private final Entry entry;
    private final int count;
    private volatile SharedMutex[] stripes;

    StripedMutex(Entry entry) {
        this.entry = entry;
        this.count = (int) entry.parameter();
    }

    /** The name of a stripe's own entry. */
    static String stripe(String name, int stripe) {
        return name + Layout.PART + stripe;
    }

    StripedMutex over(IntFunction<SharedMutex> find) {
        if (stripes == null) {
            SharedMutex[] found = new SharedMutex[count];
            for (int i = 0; i < count; i++) {
                found[i] = find.apply(i);
            }
            stripes = found;
        }
        return this;
    }

    // ---- one key ----

    /**
     * The mutex for a key that is a text.
     *
     * @param key any text; half of a surrogate pair counts as a question mark
     * @return its stripe
     */
    public SharedMutex get(String key) {
        return get(key.getBytes(StandardCharsets.UTF_8));
    }

    /**
     * The mutex for a key that is a number.
     *
     * @param key any number
     * @return its stripe
     */
    public SharedMutex get(long key) {
        byte[] bytes = new byte[Long.BYTES];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (key >>> 8 * i);
        }
        return get(bytes);
    }

    /**
     * The mutex for a key that is made of bytes.
     *
     * @param key any bytes
     * @return its stripe
     */
    public SharedMutex get(byte[] key) {
        return stripes[indexOf(key)];
    }

    private int indexOf(byte[] key) {
        return (int) Long.remainderUnsigned(Layout.hash(key), count);
    }

    /**
     * The mutex of a number.
     *
     * @param index from 0 to {@link #stripes} − 1
     * @return the stripe
     * @throws IndexOutOfBoundsException if there is none
     */
    public SharedMutex stripe(int index) {
        return stripes[Objects.checkIndex(index, count)];
    }

    /**
     * How many stripes there are.
     *
     * @return the number that it was made with
     */
    public int stripes() {
        return count;
    }

    // ---- several keys ----

    /** What one of several keys, and all of them, are locked by. */
    public static final class Locked implements AutoCloseable {
        private final Deque<AutoCloseable> held = new ArrayDeque<>(); // the last one first
        private boolean closed;

        private Locked() {
        }

        /**
         * Releases all of them. Has no effect the second time.
         *
         * @throws IllegalMonitorStateException if another thread locked them by {@link #lockAll}
         */
        @Override
        public synchronized void close() {
            if (closed) {
                return;
            }
            RuntimeException failure = null;
            while (!held.isEmpty()) {
                try {
                    held.peek().close();
                } catch (IllegalMonitorStateException notMine) {
                    throw notMine; // nothing is released
                } catch (Exception unreleased) { // the next ones are to be released all the same
                    failure = failure == null ? (RuntimeException) unreleased : failure;
                }
                held.pop();
            }
            closed = true;
            if (failure != null) {
                throw failure;
            }
        }
    }

    /** Each stripe once, in the order of their numbers, which is the same for everybody. */
    private List<SharedMutex> inOrder(Collection<String> keys) {
        return keys.stream().mapToInt(key -> indexOf(key.getBytes(StandardCharsets.UTF_8))).sorted().distinct()
                .mapToObj(this::stripe).toList();
    }

    /**
     * Takes the mutexes of several keys, waiting for as long as it takes, in an order that is the same for everybody: so
     * nobody waits in a circle, unless he holds others already. For the current thread.
     *
     * @param keys any texts
     * @return all of them; to be closed by the same thread
     * @throws OwnerDiedException if the last owner of one died with it and it is strict; then none is held
     */
    public Locked lockAll(Collection<String> keys) {
        try {
            return take(keys, null);
        } catch (LockTimeoutException | InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /**
     * The same, waiting for at most the given time for all of them together.
     *
     * @param keys any texts
     * @param timeout how long; zero or less makes one attempt for each
     * @return all of them; to be closed by the same thread
     * @throws LockTimeoutException if one could not be had in time; then none is held
     * @throws InterruptedException if the thread is interrupted before it has all; then none is held
     * @throws OwnerDiedException if the last owner of one died with it and it is strict; then none is held
     */
    public Locked lockAll(Collection<String> keys, Duration timeout) throws LockTimeoutException, InterruptedException {
        return take(keys, Objects.requireNonNull(timeout, "timeout"));
    }

    private Locked take(Collection<String> keys, Duration timeout) throws LockTimeoutException, InterruptedException {
        long deadline = timeout == null ? Deadline.NEVER
                : Deadline.after(TimeUnit.NANOSECONDS.convert(timeout), TimeUnit.NANOSECONDS);
        Locked locked = new Locked();
        boolean all = false;
        try {
            for (SharedMutex stripe : inOrder(keys)) {
                AutoCloseable unlock = stripe::unlock; // before: nothing may fail once it is held
                if (timeout == null) {
                    stripe.lock();
                } else if (!stripe.tryLock(deadline == Deadline.NEVER ? Long.MAX_VALUE : deadline - System.nanoTime(),
                        TimeUnit.NANOSECONDS)) {
                    throw stripe.timedOut(timeout);
                }
                locked.held.push(unlock);
            }
            all = true;
            return locked;
        } finally {
            if (!all) {
                locked.close();
            }
        }
    }

    /**
     * Asks for the mutexes of several keys: {@link #lockAllAsync(Collection, Executor)} with the common pool.
     *
     * @param keys any texts
     * @return all of them, sooner or later
     */
    public CompletableFuture<Locked> lockAllAsync(Collection<String> keys) {
        return lockAllAsync(keys, ForkJoinPool.commonPool());
    }

    /**
     * Asks for the mutexes of several keys, one after the other in the order that is the same for everybody, and never
     * blocks. To cancel the future gives up; what it had is released.
     *
     * @param keys any texts
     * @param executor as of {@link SharedMutex#lockAsync(Executor)}
     * @return all of them, to be closed by any thread
     */
    public CompletableFuture<Locked> lockAllAsync(Collection<String> keys, Executor executor) {
        CompletableFuture<Locked> result = new CompletableFuture<>();
        next(new ArrayDeque<>(inOrder(keys)), new Locked(), result, Objects.requireNonNull(executor, "executor"));
        return result;
    }

    private static void next(Deque<SharedMutex> left, Locked locked, CompletableFuture<Locked> result, Executor executor) {
        for (SharedMutex stripe = left.poll(); stripe != null; stripe = left.poll()) {
            CompletableFuture<Hold> asked = stripe.lockAsync(executor);
            if (asked.isDone() && !asked.isCompletedExceptionally()) {
                locked.held.push(asked.join());
                continue;
            }
            asked.whenComplete((hold, failure) -> {
                if (failure != null) {
                    locked.close();
                    result.completeExceptionally(failure);
                } else {
                    locked.held.push(hold);
                    next(left, locked, result, executor);
                }
            });
            result.whenComplete((value, failure) -> asked.cancel(false)); // no effect, but where it was given up
            return;
        }
        if (!result.complete(locked)) {
            locked.close(); // given up meanwhile
        }
    }

    // ---- to look at ----

    /**
     * What its stripes look like now.
     *
     * @return a snapshot of each, in their order
     */
    public List<LockInfo> info() {
        List<LockInfo> all = new ArrayList<>();
        for (SharedMutex stripe : stripes) {
            all.add(stripe.info());
        }
        return all;
    }

    /**
     * Its name.
     *
     * @return the name
     */
    public String name() {
        return entry.name;
    }

    @Override
    public String toString() {
        return "StripedMutex[%s, %d stripes]".formatted(entry, count);
    }
}
