// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.LockTimeoutException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Queue;
import java.util.SequencedCollection;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/**
 * Those of this process who wait for something that an eventcount announces: until an attempt to have it succeeds.
 * Threads sleep on the eventcount. For virtual threads and asynchronous requests a {@link Reactor} does, and attempts for
 * them, so that nothing that was woken for waits for a carrier.
 *
 * <p>Who changes what is waited for does so by a full fence and calls {@link #wake} then, which wakes all: nobody keeps a
 * wake to himself, so who gives up has nothing to pass on. Where the change is a plain store, the waiters are
 * <em>asymmetric</em>: each has a process-wide barrier between registering and its last look. A process that dies between
 * its change and the wake is seen to by recovery.
 */
public final class Waiters implements Reactor.Client {
    /** How long one sleeps at most, in ns. */
    public static final long LOOK_AGAIN = 1_000_000_000;
    /** How often one looks before the clock is asked. */
    private static final int LOOKS = 16;
    /** How long one sleeps where a barrier has failed, in ns. */
    private static final long MOMENT = 1_000_000;

    /** Looks for what is waited for, and takes it if it is there. Never blocks; may throw what makes waiting pointless. */
    @FunctionalInterface
    public interface Attempt {
        boolean succeeds();
    }

    private enum State { WAITING, DONE, FAILED, LEFT }

    /** One who waits without a thread of the kernel's. Its fields are under the monitor. */
    private abstract static class Place {
        final Attempt attempt;
        final long deadline;
        private State state = State.WAITING;
        private RuntimeException failure;
        private boolean isExpired;

        Place(Attempt attempt, long deadline) {
            this.attempt = attempt;
            this.deadline = deadline;
        }

        /** Its state or its time has changed. Called without the monitor, by a thread that must not be held up. */
        abstract void rouse();
    }

    private final Entry entry;
    private final Word events;
    private final boolean asymmetric;
    private final boolean ordered;
    private final SpinBudget spinning;
    private final Supplier<String> state;
    private final SequencedCollection<Place> places = new LinkedHashSet<>(); // in the order of asking
    private Reactor reactor; // who waits for them, or null
    private volatile boolean called; // to look at once
    private final Queue<Place> rousing = new ArrayDeque<>(); // when the monitor is free
    // Of the reactor's thread.
    private long wakeAt;
    private int e;

    /**
     * Those who wait at an entry, on one of its eventcounts.
     *
     * @param asymmetric whether what they wait for may come by a plain store
     * @param ordered whether the first in line is the first to get it; else each gets what it can
     * @param state what is waited for and how it stands, for people
     */
    public Waiters(Entry entry, Word events, boolean asymmetric, boolean ordered, Supplier<String> state) {
        this.entry = entry;
        this.events = events;
        this.asymmetric = asymmetric && !entry.attachment.symmetric;
        this.ordered = ordered;
        this.state = state;
        this.spinning = new SpinBudget(entry.attachment.settings().spin());
    }

    // ---- those who wake ----

    /** After a change: wakes all who may be asleep. */
    public void wake() {
        wake(events, Futex.ALL);
    }

    /** The next epoch of an eventcount, unless nobody may be asleep or another has begun it; wakes so many. */
    public static void wake(Word events, int count) {
        while (true) {
            int e = events.loadRelaxed();
            if ((e & Layout.ASLEEP) == 0) {
                return;
            }
            if (events.casRelease(e, Layout.nextEpoch(e))) {
                Failpoint.after("wake: epoch");
                Futex.SYSTEM.wake(events, count);
                Failpoint.after("wake: woken");
                return;
            }
        }
    }

    /**
     * Who registers is woken by every change that comes later. A full fence; one even where nothing changes, so that it is
     * seen that somebody has registered. Returns what to sleep on.
     */
    public static int register(Word events) {
        while (true) {
            int e = events.loadRelaxed();
            int registered = e | Layout.ASLEEP | Layout.SLEPT;
            if (events.casAcquire(e, registered)) {
                return registered;
            }
        }
    }

    // ---- those who wait ----

    /** Waits for as long as it takes. */
    public void await(Attempt attempt) {
        try {
            await(attempt, Deadline.NEVER, false);
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Waits until the attempt succeeds; false if the deadline came first. */
    public boolean await(Attempt attempt, long deadline, boolean interruptibly) throws InterruptedException {
        if (interruptibly && Thread.interrupted()) {
            throw new InterruptedException();
        }
        try {
            entry.check();
            if (attempt.succeeds()) {
                return true;
            }
            if (Deadline.passed(deadline)) {
                return false;
            }
            if (spin(attempt, deadline)) {
                return true;
            }
            Headroom.require();
            return Thread.currentThread().isVirtual()
                    ? park(attempt, deadline, interruptibly) : sleep(attempt, deadline, interruptibly);
        } catch (InternalError | IllegalStateException failure) {
            throw entry.failure(failure);
        }
    }

    private boolean spin(Attempt attempt, long deadline) {
        long begin = System.nanoTime();
        long until = spinning.until(begin, deadline);
        for (long now = begin; now < until; now = System.nanoTime()) {
            for (int looks = LOOKS; looks > 0; looks--) {
                if (attempt.succeeds()) {
                    spinning.succeeded(now - begin);
                    return true;
                }
                Spin.pause();
            }
        }
        spinning.failed();
        return false;
    }

    private boolean sleep(Attempt attempt, long deadline, boolean interruptibly) throws InterruptedException {
        entry.attachment.enter(entry.number);
        try {
            while (true) {
                entry.attachment.check();
                int registered = register(events);
                Failpoint.after("wait: registered");
                if (attempt.succeeds()) {
                    return true;
                }
                boolean fenced = !asymmetric || entry.attachment.barrier();
                if (asymmetric && attempt.succeeds()) {
                    return true;
                }
                if (interruptibly && Thread.interrupted()) {
                    throw new InterruptedException();
                }
                if (Deadline.passed(deadline)) {
                    return false;
                }
                sleepOn(registered, Deadline.earlier(deadline, fenced ? LOOK_AGAIN : MOMENT), interruptibly);
            }
        } finally {
            entry.attachment.leave(entry.number);
        }
    }

    private void sleepOn(int registered, long until, boolean interruptibly) {
        Failpoint.after("wait: asleep");
        Futex.Result result = interruptibly
                ? Interruption.guard(new Word[] {events}, new int[] {registered}, until)
                : Futex.SYSTEM.wait(events, registered, until);
        switch (result) {
            case FAULT -> throw events.lost();
            case INVALID, UNSUPPORTED -> throw new AssertionError("the kernel refused to wait on " + entry);
            case WOKEN, CHANGED, TIMED_OUT, INTERRUPTED -> { }
        }
    }

    // ---- those who wait without a thread of the kernel's ----

    private boolean park(Attempt attempt, long deadline, boolean interruptibly) throws InterruptedException {
        Thread thread = Thread.currentThread();
        Place place = new Place(attempt, Deadline.NEVER) { // sees to its time itself
            @Override
            void rouse() {
                LockSupport.unpark(thread);
            }
        };
        boolean interrupted = false;
        join(place);
        try {
            while (!isDone(place)) {
                if (Thread.interrupted()) {
                    interrupted = true;
                    if (interruptibly && leave(place)) {
                        interrupted = false;
                        throw new InterruptedException();
                    }
                } else if (Deadline.passed(deadline)) {
                    if (leave(place)) {
                        return false;
                    }
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
            leave(place); // no effect on one who has what it waited for
        }
    }

    /**
     * Waits without a thread. The executor completes the future, with the result or with what went wrong;
     * {@link LockTimeoutException} where the time is over. To cancel it, or to complete it in another way, gives up: what
     * was got all the same is undone.
     *
     * @param timeout how long, or {@code null} for ever
     */
    public <T> CompletableFuture<T> request(
            Attempt attempt, Supplier<T> result, Runnable undo, Duration timeout, Executor executor) {
        CompletableFuture<T> future = new CompletableFuture<>();
        try {
            Headroom.require();
            entry.check();
            if (isEmpty() && attempt.succeeds()) {
                future.complete(result.get());
                return future;
            }
            long deadline = timeout == null ? Deadline.NEVER
                    : Deadline.after(TimeUnit.NANOSECONDS.convert(timeout), TimeUnit.NANOSECONDS);
            if (Deadline.passed(deadline)) {
                throw timedOut(timeout);
            }
            Request<T> request = new Request<>(attempt, deadline, future, result, undo, timeout, executor);
            future.whenComplete((granted, failure) -> leave(request)); // first: once it is in line, nothing may fail
            join(request);
        } catch (InternalError | IllegalStateException failure) {
            future.completeExceptionally(entry.failure(failure));
        } catch (LockTimeoutException | RuntimeException | Error failure) {
            future.completeExceptionally(failure);
        }
        return future;
    }

    /** What to throw where a time-out is an error. */
    public LockTimeoutException timedOut(Duration timeout) {
        return new LockTimeoutException(entry.name, timeout, state.get());
    }

    private final class Request<T> extends Place implements Runnable {
        private final CompletableFuture<T> future;
        private final Supplier<T> result;
        private final Runnable undo;
        private final Duration timeout;
        private final Executor executor;

        Request(Attempt attempt, long deadline, CompletableFuture<T> future, Supplier<T> result, Runnable undo,
                Duration timeout, Executor executor) {
            super(attempt, deadline);
            this.future = future;
            this.result = result;
            this.undo = undo;
            this.timeout = timeout;
            this.executor = executor;
        }

        @Override
        void rouse() {
            try {
                executor.execute(this);
            } catch (RuntimeException | Error refused) { // what it has got goes back
                Thread.startVirtualThread(() -> {
                    if (future.completeExceptionally(refused)) {
                        undoIfDone();
                    } else {
                        run();
                    }
                });
            }
        }

        @Override
        public void run() {
            if (Reactor.isCurrent()) { // an executor that runs tasks at once
                Thread.startVirtualThread(this);
                return;
            }
            try {
                if (isDone(this)) {
                    if (!future.complete(result.get())) {
                        undoIfDone(); // given up meanwhile
                    }
                } else if (Deadline.passed(deadline) && leave(this)) {
                    future.completeExceptionally(timedOut(timeout));
                }
            } catch (RuntimeException | Error failure) {
                future.completeExceptionally(failure);
            }
        }

        /** Once. */
        private void undoIfDone() {
            if (giveUp(this)) {
                undo.run();
            }
        }
    }

    /** Whether it had got what it waited for; once. */
    private synchronized boolean giveUp(Place place) {
        boolean had = place.state == State.DONE;
        place.state = had ? State.LEFT : place.state;
        return had;
    }

    private synchronized boolean isEmpty() {
        return places.isEmpty();
    }

    private void join(Place place) {
        synchronized (this) {
            places.add(place);
            called = true;
            if (reactor == null) {
                entry.attachment.enter(entry.number);
                try {
                    reactor = Reactor.add(this);
                } catch (RuntimeException | Error failure) { // out of memory, or of threads
                    entry.attachment.leave(entry.number);
                    places.remove(place);
                    place.state = State.LEFT;
                    throw failure;
                }
                return;
            }
        }
        call();
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

    private synchronized boolean isDone(Place place) {
        if (place.state == State.FAILED) {
            throw place.failure;
        }
        return place.state == State.DONE;
    }

    /** Gives up; false if it has got it already, or has failed. */
    private boolean leave(Place place) {
        boolean last;
        synchronized (this) {
            if (place.state != State.WAITING) {
                return false;
            }
            place.state = State.LEFT;
            places.remove(place);
            last = places.isEmpty();
        }
        if (last) {
            call(); // nothing of it is to be left
        }
        return true;
    }

    // ---- the reactor ----

    @Override
    public boolean isDue(long now) {
        try {
            return called || now - wakeAt >= 0 || events.loadRelaxed() != e;
        } catch (InternalError | IllegalStateException lost) { // which the attempt finds
            return true;
        }
    }

    @Override
    public long wakeAt() {
        return wakeAt;
    }

    @Override
    public void words(Reactor.Words words) {
        words.add(events, e);
    }

    @Override
    public Reactor.Next advance() {
        Reactor.Next next;
        try {
            entry.attachment.check();
            next = step();
        } catch (RuntimeException | Error failure) {
            fail(failure);
            next = Reactor.Next.END;
        }
        rouse();
        return next;
    }

    private synchronized Reactor.Next step() {
        do {
            called = false; // first: who calls later is not slept over
            e = register(events);
            attempt();
            if (places.isEmpty()) {
                end();
                return Reactor.Next.END;
            }
        } while (called);
        if (asymmetric) {
            return Reactor.Next.BARRIER;
        }
        sleepFor(LOOK_AGAIN);
        return Reactor.Next.SLEEP;
    }

    @Override
    public void look(boolean fenced) {
        try {
            synchronized (this) {
                attempt();
                sleepFor(fenced ? LOOK_AGAIN : MOMENT);
                called |= places.isEmpty();
            }
        } catch (RuntimeException | Error failure) {
            called = true; // comes to it again
        }
        rouse();
    }

    private void attempt() {
        for (Iterator<Place> all = places.iterator(); all.hasNext(); ) {
            Place place = all.next();
            try {
                if (!place.attempt.succeeds()) {
                    if (ordered) {
                        return;
                    }
                    continue;
                }
                place.state = State.DONE;
            } catch (InternalError | IllegalStateException failure) {
                throw failure; // of the file
            } catch (RuntimeException | Error failure) {
                place.state = State.FAILED;
                place.failure = entry.failure(failure);
            }
            all.remove();
            rousing.add(place);
        }
    }

    /** Sleeps for so long, or until the first deadline; whose time is over says so by himself. */
    private void sleepFor(long nanos) {
        long now = System.nanoTime();
        wakeAt = now + nanos;
        for (Place place : places) {
            if (place.deadline == Deadline.NEVER || place.isExpired) {
                continue;
            }
            if (now - place.deadline >= 0) {
                place.isExpired = true;
                rousing.add(place);
            } else {
                wakeAt = Deadline.first(wakeAt, place.deadline);
            }
        }
    }

    private void end() {
        reactor = null;
        entry.attachment.leave(entry.number);
    }

    private synchronized void fail(Throwable failure) {
        RuntimeException why = entry.failure(failure);
        for (Place place : places) {
            place.state = State.FAILED;
            place.failure = why;
            rousing.add(place);
        }
        places.clear();
        end();
    }

    private void rouse() {
        while (true) {
            Place place;
            synchronized (this) {
                place = rousing.poll();
            }
            if (place == null) {
                return;
            }
            place.rouse();
        }
    }

    @Override
    public String toString() {
        return "waiters at " + entry;
    }
}
