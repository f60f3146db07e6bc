// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Deadline;
import dev.fermata.internal.Entry;
import dev.fermata.internal.Failpoint;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Printable;
import dev.fermata.internal.Waiters;
import dev.fermata.internal.Word;
import java.lang.System.Logger.Level;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.function.Consumer;

/**
 * An election in a {@link LockFile}, known by its name: of all processes that campaign, one is the leader, until it
 * resigns, closes the file or dies. Then the next one is, within milliseconds.
 *
 * <p>A leader has a <em>term</em>, a number that grows with each one: the fencing token. What the leader tells others to do
 * should carry it, and they should refuse what comes with a lower one. A leader that is stopped, or in a long collection,
 * stays the leader: nobody is deposed for being slow. Only {@link LockFile#evict} does that, by ending the process.
 *
 * <p>To become the leader is an acquire, to resign a release. Fairness as of {@link SharedMutex}. Whoever waits for a change
 * sees the state that came of it: of changes that follow each other quickly only the last.
 *
 * <p>Death. A leader's death ends its term; the next leader can ask {@link Leadership#predecessorDied}. A listener dies with
 * its process.
 *
 * <p>Every method throws {@link DamagedMappingException} where the file was truncated, {@link LockFileReplacedException}
 * where it was deleted or replaced, and {@link LockFileClosedException} where it was closed in this process.
 *
 * <p>The protocol (PROTOCOL.md, section "LeaderElection"; model {@code election.pml}): the leader is the owner of a mutex in
 * the same entry, the term its fence. In the entry's own line:
 *
 * <pre>
 * elected  the term of the leader who came last; written by the leader, after it has the mutex
 * ended    the term that ended last by resignation; written by the leader, before it releases the mutex
 * events   an eventcount, on which those sleep who wait for a change: woken after elected, and after the release
 * </pre>
 */
public final class LeaderElection extends OverMutex {
    private static final System.Logger LOG = System.getLogger("dev.fermata");

    private final Entry entry;
    private final SharedMutex mutex;
    private final Waiters watchers;

    LeaderElection(Entry entry) {
        this.entry = entry;
        this.mutex = new SharedMutex(entry.attachment, entry.number, entry.name);
        this.mutex.onOwnerDeath(left -> { }); // there is nothing to repair
        this.watchers = new Waiters(entry, entry.secondEvents(), false, false, this::toString);
    }

    @Override
    SharedMutex mutex() {
        return mutex;
    }

    // ---- to lead ----

    /** The office of a leader, of whoever has this object. */
    public static final class Leadership implements AutoCloseable {
        private final LeaderElection election;
        private final Hold hold;

        private Leadership(LeaderElection election, Hold hold) {
            this.election = election;
            this.hold = hold;
        }

        /**
         * The term: the fencing token.
         *
         * @return a number that is greater than that of every leader before
         */
        public long term() {
            return hold.fence();
        }

        /**
         * Whether the leader before died in office, or closed the file.
         *
         * @return whether what it was at may be unfinished
         */
        public boolean predecessorDied() {
            return hold.ownerDied();
        }

        /**
         * Resigns. Release. Has no effect the second time.
         *
         * @throws LockFileClosedException if the file was closed meanwhile, which ended the term
         */
        public void resign() {
            election.resign(hold);
        }

        /** Resigns, as {@link #resign}. */
        @Override
        public void close() {
            resign();
        }

        @Override
        public String toString() {
            return "Leadership[%s, term %d]".formatted(election.entry, term());
        }
    }

    /**
     * Campaigns for as long as it takes; an interrupt does not end that. Acquire.
     *
     * @return the office
     */
    public Leadership campaign() {
        return elected(mutex.acquire());
    }

    /**
     * Campaigns for at most the given time. Acquire.
     *
     * @param timeout how long; zero or less makes one attempt
     * @return the office
     * @throws LockTimeoutException if another led all the time; says who
     * @throws InterruptedException if the thread is interrupted before it is elected
     */
    public Leadership campaign(Duration timeout) throws LockTimeoutException, InterruptedException {
        return elected(mutex.acquire(timeout));
    }

    /**
     * Becomes the leader if there is none. Acquire if so.
     *
     * @return the office, or empty
     */
    public Optional<Leadership> tryCampaign() {
        return mutex.tryAcquire().map(this::elected);
    }

    /**
     * Campaigns without a thread: {@link #campaignAsync(Executor)} with the common pool.
     *
     * @return the office, sooner or later
     */
    public CompletableFuture<Leadership> campaignAsync() {
        return campaignAsync(ForkJoinPool.commonPool());
    }

    /**
     * Campaigns without a thread. Acquire, for whoever gets the office. To cancel the future gives up.
     *
     * @param executor as of {@link SharedMutex#lockAsync(Executor)}
     * @return the office, sooner or later
     */
    public CompletableFuture<Leadership> campaignAsync(Executor executor) {
        CompletableFuture<Leadership> result = new CompletableFuture<>();
        CompletableFuture<Hold> asked = mutex.lockAsync(executor);
        asked.whenComplete((hold, failure) -> {
            if (failure != null) {
                result.completeExceptionally(failure);
                return;
            }
            try {
                Leadership office = elected(hold);
                if (!result.complete(office)) {
                    office.resign(); // given up meanwhile
                }
            } catch (RuntimeException | Error lost) {
                result.completeExceptionally(lost);
            }
        });
        result.whenComplete((office, failure) -> asked.cancel(false)); // no effect, but where it was given up
        return result;
    }

    private Leadership elected(Hold hold) {
        try {
            // Release: who sees the term sees who has it.
            Word.storeLongRelease(entry.own, Layout.O_ELECTED, hold.fence());
            Failpoint.after("election: elected");
            announce();
            return new Leadership(this, hold);
        } catch (InternalError | IllegalStateException e) {
            throw entry.failure(e);
        } catch (Error e) { // the stack or the memory has ended
            hold.close();
            throw e;
        }
    }

    private void resign(Hold hold) {
        if (hold.isClosed()) {
            return;
        }
        try {
            try (hold) {
                Word.storeLongRelease(entry.own, Layout.O_ENDED, hold.fence());
                Failpoint.after("election: ended");
            }
            Failpoint.after("election: resigned");
            announce();
        } catch (InternalError | IllegalStateException e) {
            throw entry.failure(e);
        }
    }

    private void announce() {
        VarHandle.fullFence(); // before the look at events: a watcher registers, and then looks
        watchers.wake();
    }

    // ---- to look at, and to be told ----

    /**
     * What an election has come to.
     *
     * @param term of the leader, or of the last one; 0 before the first
     * @param leader who leads, or empty
     */
    public record State(long term, Optional<Participant> leader) {
        @Override
        public String toString() {
            return leader.map(who -> "term %d, led by %s".formatted(term, who)).orElse("no leader, last term " + term);
        }
    }

    /**
     * Who leads now. Acquire.
     *
     * @return a snapshot
     */
    public State state() {
        long seen = look();
        int leader = leaderOf(seen);
        return new State(termOf(seen), leader == 0 ? Optional.empty()
                : entry.guarded(() -> Optional.of(entry.attachment.participants().describe(leader))));
    }

    /**
     * Whether a process leads, and not whether this one does: ask its {@link Leadership}.
     *
     * @return whether there is a leader
     */
    public boolean hasLeader() {
        return leaderOf(look()) != 0;
    }

    /**
     * The term of the leader, or of the last one.
     *
     * @return a number; 0 before the first
     */
    public long term() {
        return termOf(look());
    }

    // A look in one number, as watchers compare it: the term times two, and 1 if there is a leader.
    private static long termOf(long look) {
        return look >>> 1;
    }

    private int leaderOf(long look) {
        return (look & 1) == 0 ? 0 : entry.guarded(() -> (int) (Word.loadLongAcquire(entry.words, Layout.E_HOLDER) >>> 32));
    }

    private long look() {
        return entry.guarded(() -> {
            while (true) {
                long ended = Word.loadLongAcquire(entry.own, Layout.O_ENDED);
                long term = Word.loadLongAcquire(entry.own, Layout.O_ELECTED);
                int leader = (int) (Word.loadLongAcquire(entry.words, Layout.E_HOLDER) >>> 32);
                int owner = Word.loadAcquire(entry.words, Layout.E_OWNER);
                // A process that has resigned and has the mutex again is not the leader of the term that it ended.
                if (term <= ended || owner != leader || entry.isDead(leader)) {
                    return 2 * Math.max(term, ended);
                }
                // The next one writes the fence before its holder: so the holder was that of this term.
                if (Word.loadLongAcquire(entry.words, Layout.E_FENCE) == term) {
                    return 2 * term + 1;
                }
                if (Word.loadLongAcquire(entry.own, Layout.O_ELECTED) == term) {
                    return 2 * term; // the next leader has not said so yet
                }
            }
        });
    }

    /**
     * Waits until there is a leader, for as long as it takes or until the thread is interrupted. Acquire.
     *
     * @return who it is
     * @throws InterruptedException if the thread is interrupted before
     */
    public State awaitLeader() throws InterruptedException {
        while (true) {
            watchers.await(this::hasLeader, Deadline.NEVER, true);
            State state = state();
            if (state.leader().isPresent()) {
                return state;
            }
        }
    }

    /**
     * Has a listener told of changes: who leads, or that nobody does; at first what it is now. One call at a time. What a
     * listener throws is logged.
     *
     * @param listener is told
     * @return to be closed when it is to be told no more
     */
    public Subscription onChange(Consumer<State> listener) {
        return onChange(listener, ForkJoinPool.commonPool());
    }

    /**
     * The same, in threads of an executor.
     *
     * @param listener is told
     * @param executor runs it; to submit to it must not block
     * @return to be closed when it is to be told no more
     */
    public Subscription onChange(Consumer<State> listener, Executor executor) {
        Subscription subscription = new Subscription(Objects.requireNonNull(listener, "listener"),
                Objects.requireNonNull(executor, "executor"));
        subscription.next();
        return subscription;
    }

    /** A listener's. Ends by itself when the file is closed. */
    public final class Subscription implements AutoCloseable {
        private final Consumer<State> listener;
        private final Executor executor;
        private long told = -1;
        private CompletableFuture<Long> waiting; // under the monitor
        private boolean closed; // likewise

        private Subscription(Consumer<State> listener, Executor executor) {
            this.listener = listener;
            this.executor = executor;
        }

        private void next() {
            long last = told;
            synchronized (this) {
                if (closed) {
                    return;
                }
                waiting = watchers.request(
                        () -> look() != last, LeaderElection.this::look, () -> { }, null, executor);
            }
            waiting.whenCompleteAsync((seen, failure) -> {
                if (failure == null) {
                    told = seen;
                    tell();
                    next();
                }
            }, executor);
        }

        private void tell() {
            State state = state(); // fails where the file was closed meanwhile, which ends this
            synchronized (this) {
                if (closed) {
                    return;
                }
            }
            try {
                listener.accept(state);
            } catch (RuntimeException failure) {
                LOG.log(Level.WARNING, "a listener of election " + Printable.of(entry.name) + " failed", failure);
            }
        }

        /** Tells the listener no more; a call that is under way goes on. Has no effect the second time. */
        @Override
        public void close() {
            CompletableFuture<Long> last;
            synchronized (this) {
                closed = true;
                last = waiting;
            }
            last.cancel(false);
        }
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
        String state;
        try {
            state = state().toString();
        } catch (IllegalStateException unusable) {
            state = unusable.getMessage();
        }
        return "LeaderElection[%s, %s]".formatted(entry, state);
    }
}
