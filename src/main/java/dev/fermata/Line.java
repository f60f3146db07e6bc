// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Deadline;
import dev.fermata.internal.Failpoint;
import dev.fermata.internal.Reactor;
import dev.fermata.internal.Waiters;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.locks.LockSupport;

/**
 * Who waits for a mutex without a thread that could sleep in the kernel: virtual threads, and those who asked for it
 * asynchronously. First come, first served. A {@link Reactor} waits for them all, as one waiter among those of all
 * processes; it takes the lock for the first and offers it to them.
 *
 * <p>An offer that is not taken up, as no carrier or thread of an executor is free, is withdrawn after 10 ms if anybody
 * else wants the lock, and made again.
 *
 * <p>Model: {@code reactor.pml}. The monitor of this object is held for moments only.
 */
final class Line implements Reactor.Client {
    /** How long an offer stands at first, in ns; twice as long each time. */
    private static final long GRACE = 10_000_000;
    /** How long an offer stands at most, in ns. */
    private static final long LONGEST_GRACE = 1_000_000_000;

    private enum State { WAITING, OFFERED, TAKEN, FAILED, LEFT }

    /** One who waits. All fields are under the line's monitor, but for what never changes. */
    abstract static class Place {
        final Object taker;
        final boolean recovering;
        final long deadline;
        final long begin = System.nanoTime();
        private State state = State.WAITING;
        private RuntimeException failure;
        private long grace = GRACE;
        private boolean isExpired;
        private Place before;
        private Place after;

        Place(Object taker, boolean recovering, long deadline) {
            this.taker = taker;
            this.recovering = recovering;
            this.deadline = deadline;
        }

        /** Has its own thread look at it. Called by the reactor, which must not be held up. */
        abstract void rouse();
    }

    private final SharedMutex mutex;
    private Place first;
    private Place last;
    private Place offered;
    private long lookAt; // whether the offer is taken up
    private long restUntil = System.nanoTime();
    private long nextDeadline = Deadline.NEVER; // of those in line
    private Reactor reactor; // who waits for this line, or null
    private SharedMutex.Wait wait; // as long as there is a reactor; of the reactor's thread
    private volatile boolean called; // to look at once
    // Of the reactor's thread.
    private final Queue<Place> rousing = new ArrayDeque<>(); // when the monitor is free
    private long wakeAt;
    private RuntimeException failed;
    private Place begun; // whom it waits for now

    Line(SharedMutex mutex) {
        this.mutex = mutex;
    }

    // ---- those who wait ----

    /** Waits for an offer; false if the deadline came first. */
    boolean await(Thread thread, Object taker, boolean recovering, long deadline, boolean interruptibly)
            throws InterruptedException {
        Place place = new Place(taker, recovering, Deadline.NEVER) {
            @Override
            void rouse() {
                LockSupport.unpark(thread);
            }
        };
        boolean interrupted = false;
        join(place);
        try {
            while (!accept(place)) {
                if (Thread.interrupted()) {
                    if (interruptibly) {
                        throw new InterruptedException();
                    }
                    interrupted = true;
                } else if (Deadline.passed(deadline)) {
                    return false;
                } else if (deadline == Deadline.NEVER) {
                    LockSupport.park(this);
                } else {
                    LockSupport.parkNanos(this, deadline - System.nanoTime());
                }
            }
            return true;
        } finally {
            if (interrupted) {
                thread.interrupt();
            }
            leave(place); // no effect on one who has the lock
        }
    }

    /** Waits for a token, with which the executor completes the future. */
    void request(CompletableFuture<Hold> future, Hold hold, long deadline, Duration timeout, Executor executor) {
        Request request = new Request(future, hold, deadline, timeout, executor);
        future.whenComplete((granted, failure) -> leave(request)); // first: once it is in line, nothing may fail
        join(request);
    }

    /** One who asked for a token. */
    private final class Request extends Place implements Runnable {
        private final CompletableFuture<Hold> future;
        private final Duration timeout;
        private final Executor executor;

        Request(CompletableFuture<Hold> future, Hold hold, long deadline, Duration timeout, Executor executor) {
            super(hold, false, deadline);
            this.future = future;
            this.timeout = timeout;
            this.executor = executor;
        }

        @Override
        void rouse() {
            try {
                executor.execute(this);
            } catch (RejectedExecutionException refused) {
                Thread.startVirtualThread(() -> future.completeExceptionally(refused)); // which leaves the line
            } catch (RuntimeException | Error broken) {
                Thread.startVirtualThread(() -> future.completeExceptionally(broken));
            }
        }

        @Override
        public void run() {
            if (Reactor.isCurrent()) { // an executor that runs tasks at once
                Thread.startVirtualThread(this);
                return;
            }
            try {
                if (accept(this)) {
                    mutex.complete(future, (Hold) taker);
                } else if (Deadline.passed(deadline) && leave(this)) {
                    future.completeExceptionally(mutex.timedOut(timeout));
                }
            } catch (RuntimeException | Error failure) {
                future.completeExceptionally(failure);
            }
        }
    }

    synchronized boolean isEmpty() {
        return first == null;
    }

    private void join(Place place) {
        boolean waits; // the reactor has to know of this one
        synchronized (this) {
            waits = reactor != null && (first == null || place.deadline != Deadline.NEVER);
            place.before = last;
            if (last == null) {
                first = place;
            } else {
                last.after = place;
            }
            last = place;
            nextDeadline = Deadline.first(nextDeadline, place.deadline);
            if (reactor == null) {
                try {
                    begin(place);
                } catch (RuntimeException | Error failure) { // out of memory, or of threads
                    unlink(place);
                    place.state = State.LEFT;
                    throw failure;
                }
            }
        }
        if (waits) {
            call();
        }
    }

    private void begin(Place place) {
        called = true;
        restUntil = System.nanoTime();
        wait = mutex.new Wait(place.begin, Deadline.NEVER);
        try {
            reactor = Reactor.add(this);
        } catch (RuntimeException | Error failure) {
            wait.end();
            throw failure;
        }
    }

    private void call() {
        Reactor waits;
        synchronized (this) {
            waits = reactor;
            called = true;
        }
        if (waits != null) {
            waits.call();
        }
    }

    /**
     * By the waiter's own thread: whether it has the lock now, as it was offered. One who comes too late for an offer is
     * the next to get one.
     *
     * @throws RuntimeException what makes waiting pointless
     */
    private boolean accept(Place place) {
        boolean late = false;
        synchronized (this) {
            switch (place.state) {
                case OFFERED -> {
                    place.state = State.TAKEN;
                    offered = null;
                    return true;
                }
                case FAILED -> throw place.failure;
                case WAITING -> late = place == first && restUntil - System.nanoTime() > 0;
                case TAKEN, LEFT -> {
                    return false;
                }
            }
            if (late) {
                restUntil = System.nanoTime(); // it has found a processor: once more
            }
        }
        if (late) {
            call();
        }
        return false;
    }

    /** Gives up; what was offered already is released. Whether it was waiting still. */
    private boolean leave(Place place) {
        boolean release = false;
        boolean empty;
        synchronized (this) {
            switch (place.state) {
                case WAITING -> unlink(place);
                case OFFERED -> {
                    offered = null;
                    release = true;
                }
                case TAKEN, FAILED, LEFT -> {
                    return false;
                }
            }
            place.state = State.LEFT;
            empty = first == null;
        }
        if (release) {
            mutex.giveBack(place.taker);
        }
        if (empty) {
            call(); // nothing of it is to be left
        }
        return true;
    }

    private void unlink(Place place) {
        if (place.before == null) {
            first = place.after;
        } else {
            place.before.after = place.after;
        }
        if (place.after == null) {
            last = place.before;
        } else {
            place.after.before = place.before;
        }
        place.before = null;
        place.after = null;
    }

    // ---- the reactor ----

    @Override
    public boolean isDue(long now) {
        try {
            return called || now - wakeAt >= 0 || wait.isWoken();
        } catch (InternalError lost) { // which a look finds
            return true;
        }
    }

    @Override
    public long wakeAt() {
        return wakeAt;
    }

    @Override
    public void words(Reactor.Words words) {
        wait.words(words);
    }

    @Override
    public Reactor.Next advance() {
        called = false; // first: who calls later is not slept over
        try {
            if (failed != null) {
                throw failed;
            }
            mutex.check();
            Reactor.Next next;
            do {
                next = step();
                if (next != Reactor.Next.END) { // then another reactor may have begun
                    rouse();
                }
            } while (next == null);
            return next;
        } catch (RuntimeException | Error failure) {
            fail(failure);
            return Reactor.Next.END;
        }
    }

    /** {@code null}: once more. */
    private Reactor.Next step() {
        SharedMutex.Wait done;
        synchronized (this) {
            long now = System.nanoTime();
            withdraw(now);
            if (first != null && now - restUntil >= 0) {
                if (begun != first) {
                    begun = first;
                    wait.begin(first.begin);
                }
                boolean registered = wait.isPatient();
                SharedMutex.Outcome outcome = registered
                        ? wait.look(first.taker, first.recovering) : wait.register(first.taker, first.recovering);
                if (!outcome.isWait()) {
                    settle(outcome);
                    return null;
                }
                if (!registered) {
                    return mutex.isSymmetric() ? Reactor.Next.LOOK : Reactor.Next.BARRIER;
                }
                sleep(wait.pause(true, outcome));
                return called ? null : Reactor.Next.SLEEP;
            }
            if (first != null || offered != null) {
                wait.rest();
                wakeAt = first != null ? restUntil : lookAt;
                expire(now);
                return Reactor.Next.SLEEP;
            }
            done = wait;
            wait = null;
            reactor = null;
            begun = null;
        }
        end(done);
        return Reactor.Next.END;
    }

    private void end(SharedMutex.Wait done) {
        try {
            done.end();
        } catch (RuntimeException | Error failure) {
            mutex.failure(failure); // the next one is told
        }
    }

    @Override
    public void look(boolean fenced) {
        try {
            synchronized (this) {
                SharedMutex.Outcome outcome = first == null ? null : wait.look(first.taker, first.recovering);
                if (outcome == null || !outcome.isWait()) {
                    settle(outcome);
                    called = true;
                } else {
                    sleep(wait.pause(fenced, outcome));
                }
            }
            rouse();
        } catch (RuntimeException | Error failure) {
            failed = mutex.failure(failure);
            called = true;
        }
    }

    private void sleep(long nanos) {
        called |= nanos == 0;
        long now = System.nanoTime();
        wakeAt = now + nanos;
        if (nanos == Waiters.LOOK_AGAIN) {
            wakeAt -= Math.floorMod(wakeAt, nanos); // at the same time for all lines of a reactor
        }
        if (offered != null && lookAt - wakeAt < 0) {
            wakeAt = lookAt;
        }
        expire(now);
    }

    /** What came of a look for the first in line. */
    private void settle(SharedMutex.Outcome outcome) {
        if (outcome == SharedMutex.Outcome.TAKEN) {
            wait.taken(first.begin);
            offered = first;
            offered.state = State.OFFERED;
            lookAt = System.nanoTime() + offered.grace;
            Failpoint.after("line: offered");
        } else if (outcome == SharedMutex.Outcome.REFUSED) {
            first.state = State.FAILED;
            first.failure = mutex.refused();
        } else {
            return;
        }
        rousing.add(first);
        unlink(first);
    }

    /** An offer that nobody has taken up in time is not to keep others waiting. */
    private void withdraw(long now) {
        if (offered == null || now - lookAt < 0) {
            return;
        }
        if (!mutex.isWanted()) {
            lookAt = now + GRACE;
            return;
        }
        Place place = offered;
        offered = null;
        place.state = State.WAITING;
        place.after = first;
        if (first == null) {
            last = place;
        } else {
            first.before = place;
        }
        first = place;
        nextDeadline = Deadline.first(nextDeadline, place.deadline);
        place.isExpired = false;
        restUntil = now + place.grace; // the others are to have it first
        place.grace = Math.min(2 * place.grace, LONGEST_GRACE);
        mutex.giveBack(place.taker);
        Failpoint.after("line: withdrawn");
    }

    /** Those whose time is over say so by themselves. */
    private void expire(long now) {
        if (nextDeadline == Deadline.NEVER) {
            return;
        }
        if (now - nextDeadline >= 0) {
            nextDeadline = Deadline.NEVER;
            for (Place place = first; place != null; place = place.after) {
                if (place.deadline == Deadline.NEVER || place.isExpired) {
                    continue;
                }
                if (now - place.deadline >= 0) {
                    place.isExpired = true;
                    rousing.add(place);
                } else {
                    nextDeadline = Deadline.first(nextDeadline, place.deadline);
                }
            }
        }
        wakeAt = Deadline.first(nextDeadline, wakeAt);
    }

    private void rouse() {
        for (Place place = rousing.poll(); place != null; place = rousing.poll()) {
            place.rouse();
        }
    }

    /** Nobody gets the lock any more. */
    private void fail(Throwable failure) {
        SharedMutex.Wait done;
        Place untaken;
        List<Place> roused;
        synchronized (this) {
            untaken = offered;
            offered = null;
            if (untaken != null) {
                fail(untaken, failure);
            }
            while (first != null) {
                fail(first, failure);
                unlink(first);
            }
            done = wait;
            wait = null;
            begun = null;
            failed = null;
            roused = List.copyOf(rousing);
            rousing.clear();
            reactor = null;
        }
        try {
            if (untaken != null) {
                mutex.giveBack(untaken.taker);
            }
        } catch (RuntimeException | Error same) {
            mutex.failure(same); // which is what its taker is told
        }
        end(done);
        roused.forEach(Place::rouse);
    }

    private void fail(Place place, Throwable failure) {
        place.state = State.FAILED;
        place.failure = mutex.failure(failure);
        rousing.add(place);
    }
}
