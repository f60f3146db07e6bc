// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Attachment;
import dev.fermata.internal.Deadline;
import dev.fermata.internal.Failpoint;
import dev.fermata.internal.Futex;
import dev.fermata.internal.Headroom;
import dev.fermata.internal.Interruption;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Lifeline;
import dev.fermata.internal.Printable;
import dev.fermata.internal.Reactor;
import dev.fermata.internal.Spin;
import dev.fermata.internal.SpinBudget;
import dev.fermata.internal.Waiters;
import dev.fermata.internal.Word;
import java.lang.System.Logger.Level;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.time.Instant;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * A mutex in a {@link LockFile}, known by its name: mutual exclusion between all threads of all processes that have the
 * file open. It survives the death of its holder, in any way and at any point: the next one gets it at once, and is
 * told.
 *
 * <p>Re-entrant, and owned by a thread that {@link #lock locks} it, or by a token, {@link Hold}. An uncontended
 * acquisition and release make no system call. Taking it is an acquire, releasing it a release, between processes as
 * between threads.
 *
 * <p>Fairness: none among those who come often; but who has waited for a millisecond is next in line, and a release
 * hands the lock over, at most once a millisecond. The virtual threads and the asynchronous requests of a process are served
 * in their order, as one waiter among the others.
 *
 * <p>A virtual thread that waits parks, and does not keep its carrier. {@link #lockAsync} and {@link #withLock} do not wait
 * at all. A lock that is theirs while no carrier or executor's thread is free goes after 10 ms to others who want it, in other
 * processes or threads of the kernel's; those behind in line wait on.
 *
 * <p>Death. The kernel marks a dead process, other processes see it within milliseconds, and the lock becomes
 * <em>abandoned</em>. Whoever acquires it next is told, once: by the {@linkplain #onOwnerDeath handler}, which runs under
 * the lock, or by {@link OwnerDiedException} where the lock is {@link OwnerDeath#STRICT}. Who was told and dies before
 * the repair is done, or whose handler throws, leaves it abandoned again. A thread that ends without unlocking leaves
 * the lock held, as its process lives. A {@link StackOverflowError} or {@link OutOfMemoryError} from within a method that locks
 * or unlocks leaves the lock held by nobody within a second.
 *
 * <p>Every method that locks or unlocks throws {@link DamagedMappingException} where the file was truncated or holds
 * what the protocol never writes, {@link LockFileReplacedException} where the file was deleted or replaced, and
 * {@link LockFileClosedException} where it was closed in this process; a waiter gets them within two seconds.
 *
 * <p>The protocol (PROTOCOL.md, section 11; model {@code shared_mutex.pml}); words of the entry:
 *
 * <pre>
 * owner   1 FREE, 2 ABANDONED, a participant's id, or RESERVED | id: free, but only a thread of it that is heir may take it
 * events  an eventcount, on which waiters sleep: ASLEEP somebody may be asleep; SLEPT somebody has been; the rest an epoch
 * heir    0, or the id of a waiter that is owed the lock
 * handed  the ms of the last hand-over, or somewhat more, as each changes it; only the heir sleeps on it, beside events
 *
 * lock    owner FREE -&gt; me. Else: spin a little; then register in events, barrier, look again, sleep on events
 * unlock  owner := FREE, a plain release; ASLEEP: next epoch, wake one. With an heir: owner := RESERVED | heir; the heir
 *         has gone: RESERVED -&gt; FREE, and as before; else change handed, wake the heir
 * </pre>
 *
 * <p>A releaser does not fence its store against its look at events; the waiter pays for that, by a barrier on all
 * processors between registering and its last look. In a symmetric file the releaser has the fence.
 */
public final class SharedMutex implements Lock {
    private static final System.Logger LOG = System.getLogger("dev.fermata");

    /** After how long a waiter looks again for the first time, and claims to be next, in ns. */
    private static final long PATIENCE = 1_000_000;
    /** How long a reservation stands before any waiter may take it back, in ns: the heir may be stopped. */
    private static final long GRACE = 20_000_000;
    /** Whether it does claim; without, the price of that can be measured. */
    private static final boolean CLAIMS = !Boolean.getBoolean("dev.fermata.noHandOver");
    /** In place of a thread's id: a {@link Hold} has it. Which one is known to whoever closes it. */
    private static final long TOKEN = -1;

    final Attachment attachment;
    private final MemorySegment entry;
    private final Word events;
    private final Word handed;
    private final int number;
    private final String name;
    private final boolean strict;
    private final long stuckAfter;
    private final SpinBudget spinning;
    private final SpinBudget inheriting;

    // Written by whoever holds the lock. Read by others, too, who then only learn that it is not theirs.
    // Numbers, not objects: storing a reference costs the collector's barriers, and a fence once the mutex is old.
    long holder; // a thread's id, TOKEN or 0
    private int holds;
    private boolean ownerDied;
    private long last; // the thread that was introduced last

    // What an error such as StackOverflowError cut off, for the guardian to finish.
    volatile int unreleased; // what owner is to hold, FREE or ABANDONED, or 0
    private volatile boolean unwoken;

    private volatile Line line; // of those who wait without a thread of the kernel's; made when there is one

    private boolean rehearsed;
    private volatile Consumer<SharedMutex> handler;

    SharedMutex(Attachment attachment, int number, String name) {
        this.attachment = attachment;
        this.number = number;
        this.entry = attachment.memory.asSlice(attachment.entryOffset(number), Layout.ENTRY);
        this.events = entry.isReadOnly() ? null : Word.at(entry, Layout.E_EVENTS);
        this.handed = entry.isReadOnly() ? null : Word.at(entry, Layout.E_HANDED);
        this.name = name;
        this.strict = (Layout.flags(attachment.kind(number)) & Layout.STRICT) != 0;
        this.stuckAfter = attachment.settings().stuckAfter();
        this.spinning = new SpinBudget(attachment.settings().spin());
        this.inheriting = new SpinBudget(attachment.settings().spin());
    }

    // ---- lock ----

    /**
     * Takes the mutex, waiting for as long as it takes; an interrupt does not end the wait. Acquire.
     *
     * @throws OwnerDiedException if the last owner died with it and it is strict
     * @throws Error if the current thread holds it 2³¹−1 times already
     */
    @Override
    public void lock() {
        Thread me = Thread.currentThread();
        lock(me, false);
        if (ownerDied) {
            tell(me);
        }
    }

    private void lock(Object taker, boolean recovering) {
        try {
            if (!take(taker) && !reenter(taker)) {
                lockContended(taker, Deadline.NEVER, false, recovering);
            }
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            throw closedOr(e);
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /**
     * Takes the mutex, waiting for as long as it takes or until the thread is interrupted. Acquire.
     *
     * @throws InterruptedException if the thread is interrupted before it has the lock
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    @Override
    public void lockInterruptibly() throws InterruptedException {
        await(Thread.currentThread(), Deadline.NEVER);
    }

    /**
     * Takes the mutex if it is free. Acquire if taken.
     *
     * @return whether it was taken
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    @Override
    public boolean tryLock() {
        return attempt(Thread.currentThread());
    }

    private boolean attempt(Object taker) {
        if (!obtain(taker)) {
            return false;
        }
        if (ownerDied) {
            tell(taker);
        }
        return true;
    }

    private boolean obtain(Object taker) {
        try {
            if (!take(taker) && !reenter(taker)) {
                attachment.check();
                Headroom.require();
                Outcome outcome = lookUntilClear(taker, false, false);
                if (outcome == Outcome.REFUSED) {
                    throw refused();
                }
                if (outcome.isWait()) {
                    return false;
                }
            }
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            throw closedOr(e);
        }
        return true;
    }

    /**
     * Takes the mutex, waiting for at most the given time. Acquire if taken.
     *
     * @param timeout how long; 0 or less makes one attempt, a value too large for the clock waits for ever
     * @param unit of the timeout
     * @return whether it was taken
     * @throws InterruptedException if the thread is interrupted before it has the lock
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    @Override
    public boolean tryLock(long timeout, TimeUnit unit) throws InterruptedException {
        Objects.requireNonNull(unit, "unit");
        return within(Thread.currentThread(), timeout, unit);
    }

    /**
     * Takes the mutex, waiting for at most the given time. Acquire.
     *
     * @param timeout how long; zero or less makes one attempt
     * @throws LockTimeoutException if it could not be had in time; says who holds it
     * @throws InterruptedException if the thread is interrupted before it has the lock
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    public void lock(Duration timeout) throws LockTimeoutException, InterruptedException {
        if (!within(Thread.currentThread(), nanos(timeout), TimeUnit.NANOSECONDS)) {
            throw timedOut(timeout);
        }
    }

    LockTimeoutException timedOut(Duration timeout) {
        return new LockTimeoutException(name, timeout, state());
    }

    private static long nanos(Duration timeout) {
        return TimeUnit.NANOSECONDS.convert(Objects.requireNonNull(timeout, "timeout")); // saturates
    }

    private boolean within(Object taker, long timeout, TimeUnit unit) throws InterruptedException {
        if (timeout <= 0) {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            return attempt(taker);
        }
        return await(taker, Deadline.after(timeout, unit));
    }

    private boolean await(Object taker, long deadline) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        try {
            if (!take(taker) && !reenter(taker) && !lockContended(taker, deadline, true, false)) {
                return false;
            }
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            throw closedOr(e);
        }
        if (ownerDied) {
            tell(taker);
        }
        return true;
    }

    private boolean take(Object taker) {
        MemorySegment words = entry; // one look at the field: then HotSpot checks the kind of segment only once
        int id = attachment.id;
        if (Word.INTERPRETED) {
            Word.loadRelaxed(words, Layout.E_OWNER); // finds a lost page, which a compare-and-set would not survive
        }
        return id != 0 && acquire(words, Layout.FREE, taker, id);
    }

    /** Puts this participant in an owner's place, if it is that. The one frame that knows of it where the stack ends. */
    private boolean acquire(MemorySegment words, int owner, Object taker, int id) {
        // Acquire: pairs with the release in unlock; makes the critical section before this one visible.
        if (!Word.cas(words, Layout.E_OWNER, owner, id)) {
            return false;
        }
        try {
            acquired(words, taker, id);
            return true;
        } catch (Error e) {
            if (!(e instanceof InternalError)) { // the stack or the memory has ended: no call is possible here
                holder = 0;
                unreleased = Layout.FREE;
                attachment.unfinished = true;
            }
            throw e;
        }
    }

    /** The same with an abandoned lock, of which the taker is told. */
    private boolean inherit(Object taker, int id, boolean warns) {
        long last = Word.loadLong(entry, Layout.E_HOLDER);
        if (!Word.cas(entry, Layout.E_OWNER, Layout.ABANDONED, id)) {
            return false;
        }
        try {
            acquired(entry, taker, id);
            ownerDied = true;
            if (taker instanceof Hold hold) {
                hold.acquired(loadFence(), true);
            }
            Word.storePlain(entry, Layout.E_RECOVERED, Word.loadPlain(entry, Layout.E_RECOVERED) + 1);
            Failpoint.after("lock: told");
            if (warns) {
                attachment.defer(new Warning(last)); // to say who it was takes 0.1 ms, and lock() is waited for
            }
            return true;
        } catch (Error e) {
            if (!(e instanceof InternalError)) {
                holder = 0;
                unreleased = Layout.ABANDONED;
                attachment.unfinished = true;
            }
            throw e;
        }
    }

    private boolean reenter(Object taker) {
        if (taker instanceof Hold || holder != idOf(taker)) {
            return false;
        }
        if (attachment.id == 0) {
            attachment.check();
        }
        if (holds == Integer.MAX_VALUE) {
            throw new Error("lock \"" + Printable.of(name) + "\" is held 2147483647 times by this thread; the maximum");
        }
        holds++;
        return true;
    }

    /** What {@link #holder} is while the taker, a thread or a token, holds the lock. */
    private static long idOf(Object taker) {
        return taker instanceof Thread thread ? thread.threadId() : TOKEN;
    }

    /** This participant has put its id into owner. */
    private void acquired(MemorySegment words, Object taker, int id) {
        // On a page that is gone, compiled code skips the compare-and-set and may take it for a success.
        int owner = Word.loadPlain(words, Layout.E_OWNER);
        if (owner != id) {
            throw attachment.damaged(Word.at(words, Layout.E_OWNER).impossible(owner, "0x%x, as just stored".formatted(id)));
        }
        Failpoint.after("lock: taken");
        Thread me = taker instanceof Thread thread ? thread : ((Hold) taker).asker();
        long thread = me.threadId();
        holder = taker == me ? thread : TOKEN;
        holds = 1;
        ownerDied = false;
        long fence = Word.loadLongPlain(words, Layout.E_FENCE) + 1;
        Word.storeLong(words, Layout.E_FENCE, fence);
        Word.storeLong(words, Layout.E_HOLDER, (long) id << 32 | thread & 0xffff_ffffL);
        Word.storePlain(words, Layout.E_SINCE, attachment.clock);
        if (last != thread) {
            last = thread;
            attachment.introduce(me);
        }
        if (taker != me) {
            ((Hold) taker).acquired(fence, false);
        }
    }

    // ---- lockContended ----

    enum Outcome {
        TAKEN, REFUSED, WAIT, AGAIN,
        /** As WAIT, but not for long: a dead owner, of whom threads may still run, or whom another repairs. */
        DYING;

        boolean isWait() {
            return this == WAIT || this == DYING;
        }
    }

    private Outcome lookUntilClear(Object taker, boolean isHeir, boolean recovering) {
        Outcome outcome;
        do {
            outcome = look(taker, isHeir, recovering);
        } while (outcome == Outcome.AGAIN);
        return outcome;
    }

    /** One look at the owner word, and what can be done about it. */
    private Outcome look(Object taker, boolean isHeir, boolean recovering) {
        int id = attachment.id;
        int owner = Word.loadAcquire(entry, Layout.E_OWNER);
        if (id == 0) {
            attachment.check();
        }
        if (owner == Layout.FREE) {
            return acquire(entry, owner, taker, id) ? Outcome.TAKEN : Outcome.AGAIN;
        }
        if (owner == Layout.ABANDONED) {
            if (strict && !recovering) {
                return Outcome.REFUSED;
            }
            return inherit(taker, id, handler == null && !recovering) ? Outcome.TAKEN : Outcome.AGAIN;
        }
        if (Layout.isReserved(owner)) {
            int heir = Layout.reservedFor(owner);
            if (heir == id && isHeir) {
                return acquire(entry, owner, taker, id) ? Outcome.TAKEN : Outcome.AGAIN;
            }
            boolean forlorn = attachment.isDead(heir) || Word.loadAcquire(entry, Layout.E_HEIR) != heir;
            return forlorn ? repair() : Outcome.WAIT;
        }
        return attachment.isDead(owner) ? repair() : Outcome.WAIT;
    }

    private Outcome repair() {
        return attachment.repair(number) ? Outcome.AGAIN : Outcome.DYING;
    }

    private boolean lockContended(Object taker, long deadline, boolean interruptibly, boolean recovering)
            throws InterruptedException {
        attachment.check();
        long begin = System.nanoTime();
        if (spin(taker, begin, deadline)) {
            countWait(begin, false);
            return true;
        }
        Headroom.require();
        if (Thread.currentThread().isVirtual()) {
            return line().await(Thread.currentThread(), taker, recovering, deadline, interruptibly);
        }
        Wait wait = new Wait(begin, deadline);
        try {
            Outcome outcome;
            while (true) {
                attachment.check();
                outcome = wait.register(taker, recovering);
                if (!outcome.isWait()) {
                    break;
                }
                boolean fenced = attachment.barrier();
                outcome = wait.look(taker, recovering);
                if (!outcome.isWait()) {
                    break;
                }
                if (interruptibly && Thread.interrupted()) {
                    throw new InterruptedException();
                }
                if (Deadline.passed(deadline)) {
                    break;
                }
                if (wait.slept && !rehearsed) {
                    rehearse();
                    continue;
                }
                long nanos = wait.pause(fenced, outcome);
                if (nanos > 0) {
                    wait.sleep(Deadline.earlier(deadline, nanos), interruptibly);
                }
            }
            if (outcome == Outcome.REFUSED) {
                throw refused();
            }
            if (outcome == Outcome.TAKEN) {
                wait.taken(begin);
            }
            return outcome == Outcome.TAKEN;
        } finally {
            wait.end();
        }
    }

    /** One waiter's way through the loop of the protocol: a thread's, or that of a {@link Line}. */
    final class Wait {
        private final Stuck stuck = new Stuck();
        private final long deadline;
        private long begin;
        private boolean isHeir;
        private boolean slept;
        private boolean isPatient;
        // What it is registered with.
        private boolean isIn;
        private int e;
        private int h;

        Wait(long begin, long deadline) {
            this.deadline = deadline;
            begin(begin);
            attachment.enter(number);
        }

        /** Begins anew, for one who has waited since then. */
        void begin(long since) {
            begin = since;
            slept = false;
            isPatient = false;
            stuck.reset();
        }

        /** Steps 1 to 4: claims to be next when it is time, registers, looks. */
        Outcome register(Object taker, boolean recovering) {
            isIn = true;
            isHeir = isHeir && Word.loadAcquire(entry, Layout.E_HEIR) == attachment.participant; // or was deposed
            if (CLAIMS && !isHeir && slept && System.nanoTime() - begin >= PATIENCE) {
                isHeir = Word.cas(entry, Layout.E_HEIR, 0, attachment.participant);
                Failpoint.after("lock: heir");
                if (isHeir) {
                    spinForReservation(deadline);
                }
            }
            h = handed.loadAcquire(); // before the look
            e = Waiters.register(events);
            Failpoint.after("lock: registered");
            return look(taker, recovering);
        }

        /** A look, after the barrier for the last time before it sleeps. */
        Outcome look(Object taker, boolean recovering) {
            return lookUntilClear(taker, isHeir, recovering);
        }

        /** How long to sleep, in ns; 0 if it is to begin again at once. */
        long pause(boolean fenced, Outcome outcome) {
            stuck.look();
            boolean reserved = Layout.isReserved(stuck.owner);
            if (reserved && stuck.hasStoodFor(GRACE)) {
                depose(stuck.owner);
                return 0;
            }
            isPatient = slept && fenced && outcome == Outcome.WAIT && !reserved;
            slept = true;
            return isPatient ? Waiters.LOOK_AGAIN : PATIENCE;
        }

        /** Whether it slept for long and was not woken: then it is registered still, and a look is enough. */
        boolean isPatient() {
            return isPatient && !isWoken();
        }

        /** Whether a word that it sleeps on has changed. */
        boolean isWoken() {
            return isIn && (events.loadRelaxed() != e || isHeir && handed.loadRelaxed() != h);
        }

        /** What it sleeps on, for a reactor; guardians see to it that it is woken if the owner dies. */
        void words(Reactor.Words words) {
            if (isIn) {
                words.add(events, e);
                if (isHeir) {
                    words.add(handed, h);
                }
            }
        }

        /** Sleeps; where it may take long, beside the owner's lifeline, so that its death needs no guardian's help. */
        void sleep(long until, boolean interruptibly) {
            Failpoint.after("lock: asleep");
            Lifeline owner = isPatient ? attachment.lifelineOf(Word.loadRelaxed(entry, Layout.E_OWNER)) : null;
            Futex.Result result = interruptibly || isHeir || owner != null
                    ? sleepOnSeveral(owner, interruptibly, until) : Futex.SYSTEM.wait(events, e, until);
            switch (result) {
                case FAULT -> throw attachment.damaged(events.lost());
                case INVALID, UNSUPPORTED -> throw new AssertionError("the kernel refused to wait on " + this);
                case WOKEN, CHANGED, TIMED_OUT, INTERRUPTED -> { }
            }
        }

        private Futex.Result sleepOnSeveral(Lifeline owner, boolean interruptibly, long until) {
            int n = 1 + (isHeir ? 1 : 0) + (owner != null ? 1 : 0);
            Word[] words = new Word[n];
            int[] expected = new int[n];
            words[0] = events;
            expected[0] = e;
            if (isHeir) {
                words[1] = handed;
                expected[1] = h;
            }
            if (owner != null) {
                words[n - 1] = owner.word();
                expected[n - 1] = owner.alive();
            }
            return interruptibly ? Interruption.guard(words, expected, until) : Futex.SYSTEM.guard(words, expected, until);
        }

        /** The lock is this waiter's, or that of one it waited for, who came then. */
        void taken(long since) {
            isIn = false;
            isPatient = false;
            if (isHeir) {
                Word.cas(entry, Layout.E_HEIR, attachment.participant, 0);
                isHeir = false;
                Failpoint.after("lock: inherited");
            }
            countWait(since, slept);
        }

        /** Waits no more, for a while: what was consumed is passed on. */
        void rest() {
            if (isIn) {
                boolean wasHeir = isHeir;
                isIn = false;
                isHeir = false;
                isPatient = false;
                passOn(wasHeir);
            }
        }

        /** Leaves. */
        void end() {
            try {
                rest();
            } finally {
                attachment.leave(number);
            }
        }
    }

    private boolean spin(Object taker, long begin, long deadline) {
        long until = spinning.until(begin, deadline);
        for (long now = begin; now < until; now = System.nanoTime()) {
            if (Word.loadRelaxed(entry, Layout.E_OWNER) == Layout.FREE && take(taker)) {
                spinning.succeeded(now - begin);
                return true;
            }
            Spin.pause();
        }
        spinning.failed();
        return false;
    }

    /** Takes a reservation back. Nobody is inside; the heir waits on, like any other. */
    private void depose(int reserved) {
        Word.cas(entry, Layout.E_HEIR, Layout.reservedFor(reserved), 0); // first: see passOn
        Failpoint.after("depose: heir");
        Word.cas(entry, Layout.E_OWNER, reserved, Layout.FREE);
        Failpoint.after("depose: freed");
    }

    /** Where sections are short, the next release comes before this thread could fall asleep and be woken. */
    private void spinForReservation(long deadline) {
        int reserved = attachment.participant | Layout.RESERVED;
        long begin = System.nanoTime();
        long until = inheriting.until(begin, deadline);
        for (long now = begin; now < until; now = System.nanoTime()) {
            if (Word.loadRelaxed(entry, Layout.E_OWNER) == reserved) {
                inheriting.succeeded(now - begin);
                return;
            }
            Spin.pause();
        }
        inheriting.failed();
    }

    /** Before the first long sleep, what is to be done after a death, so that it is loaded and linked then. */
    private void rehearse() {
        rehearsed = true;
        attachment.repair(number);
    }

    private void countWait(long begin, boolean slept) {
        Word.storeLong(entry, Layout.E_CONTENDED, Word.loadLongPlain(entry, Layout.E_CONTENDED) + 1);
        if (slept) {
            Word.storeLong(entry, Layout.E_SLEPT, Word.loadLongPlain(entry, Layout.E_SLEPT) + 1);
        }
        long waited = System.nanoTime() - begin;
        if (waited > Word.loadLongPlain(entry, Layout.E_LONGEST_WAIT)) {
            Word.storeLong(entry, Layout.E_LONGEST_WAIT, waited);
        }
    }

    /** Leaves without the lock. A wake that was consumed, and a reservation, must not be lost. */
    private void passOn(boolean isHeir) {
        if (attachment.trouble() instanceof DamagedMappingException) {
            return;
        }
        if (isHeir) {
            int me = attachment.participant;
            Word.cas(entry, Layout.E_HEIR, me, 0); // before the look at owner: a releaser looks at heir after its store
            Failpoint.after("leave: resigned");
            Word.cas(entry, Layout.E_OWNER, me | Layout.RESERVED, Layout.FREE);
        }
        Waiters.register(events);
        Failpoint.after("leave: registered");
        attachment.barrier();
        int owner = Word.loadAcquire(entry, Layout.E_OWNER);
        if (owner == Layout.FREE || owner == Layout.ABANDONED || Layout.isReserved(owner)) {
            wake();
        }
    }

    /** Notices that nothing moves. */
    private final class Stuck {
        private long since;
        private int owner;
        private long fence;
        private boolean reported;

        void reset() {
            since = System.nanoTime();
            reported = false;
        }

        void look() {
            int o = Word.loadRelaxed(entry, Layout.E_OWNER);
            long f = Word.loadLong(entry, Layout.E_FENCE);
            if (o != owner || f != fence) {
                owner = o;
                fence = f;
                since = System.nanoTime();
                reported = false;
            } else if (!reported && hasStoodFor(stuckAfter)) {
                reported = true;
                report((System.nanoTime() - since) / 1_000_000);
            }
        }

        private void report(long millis) {
            String state = state();
            Runnable report = () -> LOG.log(Level.WARNING, "lock \"{0}\" of {1} has not moved for {2} ms: {3}",
                    Printable.of(name), Printable.of(attachment.path()), millis, state);
            if (Reactor.isCurrent()) {
                attachment.defer(report); // a log may block
            } else {
                report.run();
            }
        }

        boolean hasStoodFor(long nanos) {
            return System.nanoTime() - since >= nanos;
        }
    }

    // ---- after an owner's death ----

    /** Runs the handler if the owner before died; if it throws, the lock stays abandoned. */
    private void tell(Object taker) {
        if (ownerDied && holds == 1) {
            Consumer<SharedMutex> repair = handler;
            if (repair != null) {
                repairBy(repair, taker);
            }
        }
    }

    private void repairBy(Consumer<SharedMutex> repair, Object taker) {
        long me = Thread.currentThread().threadId();
        long fence = loadFence();
        holder = me; // for a token, too: the handler may do what a holder may
        boolean repaired = false;
        try {
            repair.accept(this);
            repaired = true;
        } finally {
            if (!repaired && holder == me) {
                release(taker, Layout.ABANDONED);
            }
        }
        if (attachment.id == 0) { // closed by the handler, or lost meanwhile
            release(taker);
            attachment.check();
        }
        if (holder != me || loadFence() != fence) {
            if (holder == me) {
                release(taker); // it has taken the lock again
            }
            throw new IllegalMonitorStateException("the repair after an owner's death released lock \""
                    + Printable.of(name) + "\"; expected that it leaves that to whoever acquires the lock");
        }
        holder = idOf(taker);
    }

    /**
     * What to do when the lock is acquired after its owner's death: it runs under the lock, in the thread that acquires
     * it and before {@code lock} returns. It may do what a holder may, but for releasing the lock, and re-enter it, also
     * where a {@link Hold} is acquired. If it throws, the lock stays abandoned, {@code lock} throws the same, and the
     * next one is told; if it has released the lock, {@code lock} throws {@link IllegalMonitorStateException}, and the lock
     * is not held even if the handler has taken it again. In this process only; the last handler that was set counts. A
     * strict lock does not ask it, nor does {@link #recover}.
     *
     * @param handler what to do, or {@code null} to log a warning
     */
    public void onOwnerDeath(Consumer<SharedMutex> handler) {
        this.handler = handler;
    }

    /**
     * Takes the lock, and if its last owner died with it, repairs what it protects, under the lock; then releases it.
     * This is how a {@link OwnerDeath#STRICT} lock is made usable again. If the repair throws, the lock stays abandoned.
     * Waits for as long as it takes.
     *
     * @param repair what to do
     * @return whether there was anything to repair
     * @throws IllegalStateException if the current thread holds the lock
     */
    public boolean recover(Runnable repair) {
        Objects.requireNonNull(repair, "repair");
        Thread me = Thread.currentThread();
        if (holder == me.threadId()) {
            throw new IllegalStateException("this thread holds lock \"" + Printable.of(name) + "\"; unlock it first");
        }
        lock(me, true);
        boolean needed = ownerDied;
        if (needed) {
            repairBy(mutex -> repair.run(), me);
        }
        unlock();
        return needed;
    }

    /**
     * Whether the owner before this one died with the lock. Only the current holder may ask.
     *
     * @return whether this acquisition was the one that was told
     * @throws IllegalMonitorStateException if the current thread does not hold the lock
     */
    public boolean ownerDied() {
        requireHeld();
        return ownerDied;
    }

    /** Says whom the lock was left by. A class, not a lambda: that would be linked under the lock, which may fail. */
    private final class Warning implements Runnable {
        private final long stamp;

        Warning(long stamp) {
            this.stamp = stamp;
        }

        @Override
        public void run() {
            String last;
            try {
                last = lastOwner(stamp);
            } catch (IllegalStateException closedMeanwhile) {
                last = "its last owner died with it; who it was is unknown, as the file is closed";
            }
            LOG.log(Level.WARNING, "lock \"{0}\" of {1}: {2}. What it protects may be half written: see ownerDied() and"
                    + " onOwnerDeath()", Printable.of(name), Printable.of(attachment.path()), last);
        }
    }

    OwnerDiedException refused() {
        return new OwnerDiedException(name, lastOwner(Word.loadLong(entry, Layout.E_HOLDER)));
    }

    /** What became of the last owner of an abandoned lock, for people. */
    private String lastOwner(long stamp) {
        int id = (int) (stamp >>> 32);
        if (!attachment.isValidId(id)) {
            return "its last owner died with it";
        }
        Participant last = attachment.participants().describe(id);
        return "its last owner %s: %s, %s".formatted(last.alive() ? "could not repair it"
                : last.pid() == ProcessHandle.current().pid() ? "left it behind" // this process closed the file, or a copy
                : "died with it", last,
                attachment.participants().describeThread(last.slot(), stamp & 0xffff_ffffL));
    }

    // ---- unlock ----

    /**
     * Releases the mutex once; the last time lets others in. Release.
     *
     * @throws IllegalMonitorStateException if the current thread does not hold it; says who does
     * @throws LockFileReplacedException if the file was deleted or replaced meanwhile; the lock is released all the same
     */
    @Override
    public void unlock() {
        Thread me = Thread.currentThread();
        if (holder != me.threadId()) {
            throw notHeld();
        }
        if (holds > 1) {
            holds--;
            return;
        }
        release(me);
    }

    private void release(Object taker) {
        release(taker, Layout.FREE);
    }

    void release(Object taker, int state) {
        if (taker instanceof Hold hold) {
            hold.isReleasing = true;
        }
        MemorySegment words = entry; // as in take
        boolean released = false;
        try {
            int id = attachment.participant;
            int owner = Word.loadPlain(words, Layout.E_OWNER);
            if (owner != id) {
                holder = 0;
                throw attachment.damaged(
                        Word.at(words, Layout.E_OWNER).impossible(owner, "0x%x, its holder".formatted(id)));
            }
            int heir = state == Layout.FREE ? Word.loadPlain(words, Layout.E_HEIR) : 0;
            if (heir == 0 || !handOver(heir)) {
                holder = 0; // before the store: another thread here may have the lock at once
                // Release: pairs with the acquire in take; publishes the critical section.
                Word.storeRelease(words, Layout.E_OWNER, state);
                released = true;
                Failpoint.after("unlock: released");
                if (attachment.symmetric) {
                    VarHandle.fullFence();
                } else {
                    VarHandle.acquireFence(); // for the compiler; the waiter has the barrier
                }
                if ((Word.loadRelaxed(words, Layout.E_EVENTS) & Layout.ASLEEP) != 0) {
                    wake();
                }
            }
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            // Closed meanwhile: then the closer gives back what this process holds, and wakes.
            throw closedOr(e);
        } catch (Error e) {
            if (!(e instanceof InternalError)) {
                if (!released) {
                    holder = 0;
                    unreleased = state;
                }
                unwoken = true;
                attachment.unfinished = true;
            }
            throw e;
        }
        if (attachment.id == 0) {
            RuntimeException why = attachment.trouble();
            if (why instanceof LockFileReplacedException || why instanceof DamagedMappingException) {
                throw why;
            }
        }
    }

    /** The next epoch, unless another has begun it, and one waiter is woken. */
    private void wake() {
        while (true) {
            int e = Word.loadRelaxed(entry, Layout.E_EVENTS);
            if ((e & Layout.ASLEEP) == 0) {
                return;
            }
            if (Word.cas(entry, Layout.E_EVENTS, e, Layout.nextEpoch(e))) {
                Failpoint.after("unlock: epoch");
                Futex.SYSTEM.wake(events, 1);
                Failpoint.after("unlock: woken");
                return;
            }
        }
    }

    /** Reserves the lock for the heir, and releases it thereby. False if that was done less than a millisecond ago. */
    private boolean handOver(int heir) {
        int now = (int) (System.nanoTime() / 1_000_000);
        if (isRecent(handed.loadRelaxed(), now)) {
            return false;
        }
        int reserved = heir | Layout.RESERVED;
        holder = 0;
        Word.swap(entry, Layout.E_OWNER, reserved);
        try {
            announce(heir, reserved, now);
        } catch (StackOverflowError e) {
            unwoken = true; // the heir finds it when it looks again
            attachment.unfinished = true;
        }
        return true;
    }

    private void announce(int heir, int reserved, int now) {
        Failpoint.after("hand over: reserved");
        if (Word.loadRelaxed(entry, Layout.E_HEIR) != heir) { // it has gone
            if (Word.cas(entry, Layout.E_OWNER, reserved, Layout.FREE)
                    && (Word.loadRelaxed(entry, Layout.E_EVENTS) & Layout.ASLEEP) != 0) {
                wake();
            }
            return;
        }
        int last;
        do {
            last = handed.loadRelaxed();
        } while (!handed.casRelease(last, isRecent(last, now) ? last + 1 : now));
        Failpoint.after("hand over: changed");
        Futex.SYSTEM.wake(handed, Futex.ALL); // the heir, and nobody else
    }

    /** What an error cut off; the guardian has it called. */
    void finish() {
        int state = unreleased;
        if (state != 0) { // then no thread here takes the lock for its own, and this is the only one that releases it
            unreleased = 0;
            Word.cas(entry, Layout.E_OWNER, attachment.participant, state); // a full fence
            unwoken = true;
        }
        if (unwoken) {
            unwoken = false;
            wake();
        }
    }

    /** Hand-overs that overlap in one millisecond count up; what is farther ahead is of another boot. */
    private static boolean isRecent(int handed, int now) {
        return handed - now >= 0 && handed - now < 16;
    }

    // ---- hold ----

    /**
     * Takes the mutex for the holder of a token, waiting for as long as it takes. Acquire. Not re-entrant: a thread that
     * holds the mutex already, in whatever way, waits for itself.
     *
     * @return the token; closing it releases the lock
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    public Hold acquire() {
        Hold hold = new Hold(this);
        lock(hold, false);
        if (ownerDied) {
            tell(hold);
        }
        return hold;
    }

    /**
     * Takes the mutex for the holder of a token if it is free. Acquire if taken.
     *
     * @return the token, or empty
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    public Optional<Hold> tryAcquire() {
        Hold hold = new Hold(this);
        Optional<Hold> had = Optional.of(hold); // before: nothing may fail once it has the lock
        return attempt(hold) ? had : Optional.empty();
    }

    /**
     * Takes the mutex for the holder of a token, waiting for at most the given time. Acquire.
     *
     * @param timeout how long; zero or less makes one attempt
     * @return the token
     * @throws LockTimeoutException if it could not be had in time; says who holds it
     * @throws InterruptedException if the thread is interrupted before it has the lock
     * @throws OwnerDiedException if the last owner died with it and it is strict
     */
    public Hold acquire(Duration timeout) throws LockTimeoutException, InterruptedException {
        Hold hold = new Hold(this);
        if (!within(hold, nanos(timeout), TimeUnit.NANOSECONDS)) {
            throw timedOut(timeout);
        }
        return hold;
    }

    /**
     * Asks for the mutex for the holder of a token, without waiting: {@link #lockAsync(Executor)} with the common pool.
     *
     * @return the token, sooner or later
     */
    public CompletableFuture<Hold> lockAsync() {
        return lockAsync(ForkJoinPool.commonPool());
    }

    /**
     * Asks for the mutex for the holder of a token, and never blocks. Who asks is served in the order of asking, within this
     * process, and takes turns with all others who wait. Acquire, for whoever gets the token.
     *
     * <p>To cancel the future, or to complete it in another way, gives up: nothing of the request stays. A token that comes
     * too late for it is closed. Cancel this future itself: what is derived from it does not pass that on, and a token that
     * nobody takes stays open; {@link #withLock} sees to both. A token is not re-entrant: who has one, and waits for
     * another of the same mutex, waits for ever.
     *
     * <p>The future fails with {@link OwnerDiedException} where the lock is strict and its last owner died with it, with
     * {@link LockFileClosedException} where the file is closed meanwhile, and with whatever else {@link #lock} throws.
     *
     * @param executor completes the future, unless it is complete at once, and runs the handler of {@link #onOwnerDeath}. To
     *     submit to it must not block, which would hold up others, too. Where it refuses, the future fails with its
     *     {@link RejectedExecutionException} in a thread of its own. A lock that it does not come to take up goes after 10 ms
     *     to others who want it, but not to those behind in this line
     * @return the token, sooner or later
     */
    public CompletableFuture<Hold> lockAsync(Executor executor) {
        return request(Deadline.NEVER, null, executor);
    }

    /**
     * Asks for the mutex for the holder of a token, for at most the given time: {@link #lockAsync(Duration, Executor)} with
     * the common pool.
     *
     * @param timeout how long; zero or less makes one attempt
     * @return the token, or {@link LockTimeoutException}
     */
    public CompletableFuture<Hold> lockAsync(Duration timeout) {
        return lockAsync(timeout, ForkJoinPool.commonPool());
    }

    /**
     * Asks for the mutex for the holder of a token, for at most the given time; else as {@link #lockAsync(Executor)}.
     *
     * @param timeout how long; zero or less makes one attempt
     * @param executor as there
     * @return the token, or {@link LockTimeoutException}, which says who holds it
     */
    public CompletableFuture<Hold> lockAsync(Duration timeout, Executor executor) {
        return request(Deadline.after(nanos(timeout), TimeUnit.NANOSECONDS), timeout, executor);
    }

    private CompletableFuture<Hold> request(long deadline, Duration timeout, Executor executor) {
        CompletableFuture<Hold> future = new CompletableFuture<>();
        request(future, deadline, timeout, executor);
        return future;
    }

    private void request(CompletableFuture<Hold> future, long deadline, Duration timeout, Executor executor) {
        Objects.requireNonNull(executor, "executor");
        Headroom.require();
        Hold hold = new Hold(this);
        try {
            Line waiting = line;
            long until = deadline;
            if ((waiting == null || waiting.isEmpty()) && obtain(hold)) {
                if (!ownerDied || handler == null) {
                    future.complete(hold);
                    return;
                }
                giveBack(hold); // the handler runs where it is offered in line
                until = timeout == null ? deadline : Math.max(deadline, System.nanoTime() + GRACE); // it could be had
            } else if (timeout != null && !timeout.isPositive()) {
                throw timedOut(timeout);
            }
            attachment.check();
            line().request(future, hold, until, timeout, executor);
        } catch (LockTimeoutException | RuntimeException | Error failure) {
            future.completeExceptionally(failure);
        }
    }

    /** The lock is the token's. */
    void complete(CompletableFuture<Hold> future, Hold hold) {
        try {
            tell(hold);
        } catch (RuntimeException | Error failure) {
            future.completeExceptionally(failure); // the lock is abandoned again
            return;
        }
        if (!future.complete(hold)) {
            hold.close(); // given up meanwhile
        }
    }

    /**
     * Runs asynchronous work under the lock: {@link #withLock(Supplier, Executor)} with the common pool.
     *
     * @param <T> what comes of it
     * @param work starts it
     * @return what comes of it
     */
    public <T> CompletableFuture<T> withLock(Supplier<? extends CompletionStage<T>> work) {
        return withLock(work, ForkJoinPool.commonPool());
    }

    /**
     * Runs asynchronous work under the lock, which is released when the stage that the work returns is complete, in whatever
     * way, or when the work throws or returns {@code null}. The lock is had as by {@link #lockAsync(Executor)}; to cancel
     * the future gives up waiting, but does not end work that has begun. Not re-entrant. If the release fails, as the file
     * was closed or damaged meanwhile, so does the future.
     *
     * @param <T> what comes of it
     * @param work starts it
     * @param executor runs it, unless the lock is free: then the caller does
     * @return what comes of it
     */
    public <T> CompletableFuture<T> withLock(Supplier<? extends CompletionStage<T>> work, Executor executor) {
        Objects.requireNonNull(work, "work");
        CompletableFuture<T> result = new CompletableFuture<>();
        CompletableFuture<Hold> asked = new CompletableFuture<>();
        // Both before the request: once there is a token, somebody has to have it. And not by thenCompose, which does
        // nothing once the result is cancelled.
        asked.whenComplete((hold, failure) -> {
            if (failure != null) {
                result.completeExceptionally(failure);
            } else {
                runUnder(hold, work, result);
            }
        });
        result.whenComplete((value, failure) -> asked.cancel(false)); // no effect, but where it was given up
        request(asked, Deadline.NEVER, null, executor);
        return result;
    }

    private static <T> void runUnder(
            Hold hold, Supplier<? extends CompletionStage<T>> work, CompletableFuture<T> result) {
        try {
            if (result.isDone()) {
                hold.close();
                return;
            }
            Objects.requireNonNull(work.get(), "the stage of the work")
                    .whenComplete((value, failure) -> end(hold, result, value, failure));
        } catch (Throwable failure) {
            end(hold, result, null, failure);
        }
    }

    private static <T> void end(Hold hold, CompletableFuture<T> result, T value, Throwable failure) {
        Throwable found = failure;
        try {
            hold.close();
        } catch (RuntimeException | Error unreleased) {
            if (found == null) {
                found = unreleased;
            } else {
                found.addSuppressed(unreleased);
            }
        }
        if (found == null) {
            result.complete(value);
        } else {
            result.completeExceptionally(found);
        }
    }

    // ---- to look at ----

    /**
     * The fencing token of the current acquisition: it grows with every acquisition by anybody, so that a store behind
     * the lock can refuse what comes from an earlier holder. Only the holder may ask.
     *
     * @return the token, above 0
     * @throws IllegalMonitorStateException if the current thread does not hold the lock
     * @throws LockFileClosedException if the file was closed
     */
    public long fence() {
        requireHeld();
        return loadFence();
    }

    private long loadFence() {
        try {
            return Word.loadLongPlain(entry, Layout.E_FENCE);
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            throw closedOr(e);
        }
    }

    /**
     * The bytes in the file that the lock protects: all zero at first. Holding the lock is up to the caller. Access
     * after the file was closed throws {@link IllegalStateException}; where the file was truncated an
     * {@link InternalError}, see {@link DamagedMappingException#of}.
     *
     * @return the memory, of {@link LockInfo#payloadBytes} bytes, its start a multiple of 64
     */
    public MemorySegment payload() {
        try {
            return attachment.payload(number);
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            throw closedOr(e);
        }
    }

    /**
     * Where the payload lies in the file, for programs that map it themselves. It never moves.
     *
     * @return the offset in bytes, a multiple of 64
     * @throws UnsupportedOperationException if the lock has no payload
     * @throws DamagedMappingException if the file was truncated or damaged
     */
    public long payloadOffset() {
        long at = attachment.guarded(() -> attachment.payloadOffset(number));
        if (at < 0) {
            throw new UnsupportedOperationException(
                    "lock \"%s\" of %s has no payload; expected one that was made with mutex(name, bytes)".formatted(
                            Printable.of(name), Printable.of(attachment.path())));
        }
        return at;
    }

    /**
     * Its name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Whether the current thread holds it, as a thread.
     *
     * @return whether it does; false after the file was closed
     */
    public boolean isHeldByCurrentThread() {
        return holder == Thread.currentThread().threadId() && !attachment.isUnmapped();
    }

    /**
     * How often the current thread has locked it and not yet unlocked.
     *
     * @return the count, or 0
     */
    public int holdCount() {
        return isHeldByCurrentThread() ? holds : 0;
    }

    /**
     * What it looks like now.
     *
     * @return a snapshot, not atomic
     */
    public LockInfo info() {
        try {
            int owner = Word.loadAcquire(entry, Layout.E_OWNER);
            long stamp = Word.loadLong(entry, Layout.E_HOLDER);
            boolean reserved = Layout.isReserved(owner);
            int id = reserved ? Layout.reservedFor(owner) : owner;
            boolean known = attachment.isValidId(id);
            long recovered = Integer.toUnsignedLong(Word.loadRelaxed(entry, Layout.E_RECOVERED));
            long since = Integer.toUnsignedLong(Word.loadRelaxed(entry, Layout.E_SINCE));
            return new LockInfo(name,
                    owner == Layout.FREE ? LockInfo.State.FREE : owner == Layout.ABANDONED ? LockInfo.State.ABANDONED
                            : reserved ? LockInfo.State.RESERVED : LockInfo.State.HELD,
                    known ? Optional.of(attachment.participants().describe(id)) : Optional.empty(),
                    known && !reserved && (int) (stamp >>> 32) == id
                            ? attachment.participants().describeThread(Layout.slot(id), stamp & 0xffff_ffffL) : "",
                    owner != Layout.FREE && owner != Layout.ABANDONED && !reserved ? Instant.ofEpochSecond(since) : null,
                    Word.loadLong(entry, Layout.E_FENCE),
                    Word.loadLong(entry, Layout.E_CONTENDED), Word.loadLong(entry, Layout.E_SLEPT), recovered,
                    Duration.ofNanos(Word.loadLong(entry, Layout.E_LONGEST_WAIT)),
                    strict ? OwnerDeath.STRICT : OwnerDeath.GRANT, attachment.payloadSize(number));
        } catch (InternalError e) {
            throw lost(e);
        } catch (IllegalStateException e) {
            throw closedOr(e);
        }
    }

    /**
     * Not supported.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("SharedMutex has no conditions yet");
    }

    // ---- for its line ----

    private Line line() {
        if (line == null) {
            synchronized (attachment) {
                if (line == null) {
                    line = new Line(this);
                }
            }
        }
        return line;
    }

    void check() {
        attachment.check();
    }

    boolean isSymmetric() {
        return attachment.symmetric;
    }

    /** Whether anybody else waits for it. */
    boolean isWanted() {
        return (events.loadRelaxed() & Layout.ASLEEP) != 0 || Word.loadRelaxed(entry, Layout.E_HEIR) != 0;
    }

    /** Releases what was taken for somebody who has not got to know of it. */
    void giveBack(Object taker) {
        release(taker, ownerDied ? Layout.ABANDONED : Layout.FREE);
    }

    /** What to throw for what went wrong in a look. */
    RuntimeException failure(Throwable found) {
        return switch (found) {
            case InternalError e -> lost(e);
            case IllegalStateException e -> closedOr(e);
            case RuntimeException e -> e;
            default -> new IllegalStateException("waiting for " + this + " ended with " + found, found);
        };
    }

    /** For tests. */
    MemorySegment memory() {
        return entry;
    }

    /** For tests. */
    void setHolds(int holds) {
        this.holds = holds;
    }

    private void requireHeld() {
        if (holder != Thread.currentThread().threadId()) {
            throw notHeld();
        }
    }

    private IllegalMonitorStateException notHeld() {
        Thread me = Thread.currentThread();
        return new IllegalMonitorStateException("thread %d \"%s\" of pid %d does not hold lock \"%s\": %s".formatted(
                me.threadId(), Printable.of(me.getName()), ProcessHandle.current().pid(), Printable.of(name), this));
    }

    private DamagedMappingException lost(InternalError e) {
        return attachment.damaged(DamagedMappingException.of(e));
    }

    private RuntimeException closedOr(IllegalStateException e) {
        return attachment.translated(e);
    }

    /** Who holds it, in one line. */
    private String state() {
        String by = holder == TOKEN ? ", by a Hold of this process, whose close() releases it"
                : holder == Thread.currentThread().threadId() ? ", which is this thread" : "";
        return info() + by;
    }

    @Override
    public String toString() {
        String state;
        try {
            state = state();
        } catch (IllegalStateException unusable) {
            state = unusable.getMessage();
        }
        return "SharedMutex[\"%s\" of %s, %s]".formatted(
                Printable.of(name), Printable.of(attachment.path()), state);
    }
}
