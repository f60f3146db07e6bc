// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;

/**
 * Waits for those who have no thread to sleep in the kernel: one thread for up to 63 locks, however many wait for each,
 * and more threads as needed. It sleeps on the words of all of them at once. The threads belong to the process, not to a
 * file; one that has had nothing to do for ten seconds ends.
 *
 * <p>Model: {@code reactor.pml}.
 */
public final class Reactor implements Runnable {
    /** As many as fit with two words each, beside the control word, into one sleep. */
    private static final int CLIENTS = 63;
    /** How long a thread stays without clients, in ns. */
    private static final long LINGER = 10_000_000_000L;
    private static final List<Reactor> ALL = new ArrayList<>(); // under the monitor of the class
    private static final ThreadLocal<Boolean> IS_REACTOR = new ThreadLocal<>();

    /** One lock that is waited for. Its methods are called by one reactor's thread at a time, and never throw. */
    public interface Client {
        /**
         * Does what is due, up to a barrier. Whether there is still somebody to wait for; if not, the reactor forgets this
         * client.
         */
        Next advance();

        /** After the barrier: looks for the last time before it sleeps. */
        void look(boolean fenced);

        /** Whether something has changed since, or the time has come. */
        boolean isDue(long now);

        /** When to call {@link #advance} at the latest. */
        long wakeAt();

        /** Adds the words to sleep on. */
        void words(Words words);
    }

    /** What a client wants after {@link Client#advance}. */
    public enum Next {
        /** A barrier, then {@link Client#look}. */
        BARRIER,
        /** The same, in a file whose releasers have the fence. */
        LOOK,
        /** To sleep. */
        SLEEP,
        /** Nothing any more. */
        END
    }

    /** The words of one sleep. */
    public static final class Words {
        private final MemorySegment addresses = Arena.ofAuto().allocate(JAVA_LONG, 1 + 2 * CLIENTS);
        private final MemorySegment expected = Arena.ofAuto().allocate(JAVA_INT, 1 + 2 * CLIENTS);
        private int n;

        /** One more word, while it holds that value. */
        public void add(Word word, int value) {
            addresses.setAtIndex(JAVA_LONG, n, word.segment().address());
            expected.setAtIndex(JAVA_INT, n, value);
            n++;
        }
    }

    private final Word control = Word.at(Arena.ofAuto().allocate(JAVA_INT), 0);
    private final Queue<Client> inbox = new ArrayDeque<>(); // under the monitor of the class
    private int load; // clients, with those in the inbox; under the monitor of the class
    private final List<Client> clients = new ArrayList<>();
    private final List<Client> looking = new ArrayList<>();
    private final Words words = new Words();

    private Reactor() {
    }

    /** Waits for a client from now on, until it has reached its {@link Next#END}. Which reactor does. */
    public static Reactor add(Client client) {
        Reactor chosen = null;
        synchronized (Reactor.class) {
            for (Reactor reactor : ALL) {
                if (reactor.load < CLIENTS) {
                    chosen = reactor;
                    break;
                }
            }
            if (chosen == null) {
                chosen = start();
            }
            chosen.inbox.add(client);
            chosen.load++;
        }
        chosen.call();
        return chosen;
    }

    private static Reactor start() {
        Reactor reactor = new Reactor();
        Thread thread = Thread.ofPlatform().daemon().inheritInheritableThreadLocals(false)
                .name("fermata-reactor " + (ALL.size() + 1)).unstarted(reactor);
        thread.setContextClassLoader(null); // it outlives whoever comes first
        ALL.add(reactor);
        try {
            thread.start();
        } catch (OutOfMemoryError noThread) {
            ALL.remove(reactor);
            throw noThread;
        }
        return reactor;
    }

    /** Has it look at what is due. */
    public void call() {
        control.addRelaxed(1); // a full fence
        Futex.SYSTEM.wake(control, 1);
    }

    /** Whether this is a reactor's thread, which must not be held up. */
    public static boolean isCurrent() {
        return IS_REACTOR.get() != null;
    }

    @Override
    public void run() {
        IS_REACTOR.set(true);
        long idleSince = System.nanoTime();
        while (true) {
            try {
                int calls = control.loadAcquire(); // first: who calls later is not slept over
                empty();
                if (!clients.isEmpty()) {
                    idleSince = System.nanoTime();
                } else if (System.nanoTime() - idleSince >= LINGER && end()) {
                    return;
                }
                if (!advance()) {
                    sleep(calls);
                }
            } catch (Throwable unexpected) { // out of memory: the locks of others depend on this thread
                report(unexpected);
            }
        }
    }

    private static void report(Throwable unexpected) {
        try {
            System.getLogger("dev.fermata").log(Level.ERROR, "a reactor goes on after", unexpected);
            Attachment.sleep(1);
        } catch (Throwable worse) {
            Thread.onSpinWait();
        }
    }

    private void empty() {
        synchronized (Reactor.class) {
            for (Client client = inbox.poll(); client != null; client = inbox.poll()) {
                clients.add(client);
            }
        }
    }

    private boolean end() {
        synchronized (Reactor.class) {
            return load == 0 && ALL.remove(this);
        }
    }

    /** One round; whether another one is due. */
    private boolean advance() {
        long now = System.nanoTime();
        boolean barrier = false;
        looking.clear();
        for (int i = 0; i < clients.size(); ) {
            Client client = clients.get(i);
            Next next = client.isDue(now) ? client.advance() : Next.SLEEP;
            if (next == Next.END) {
                Client last = clients.removeLast();
                if (last != client) {
                    clients.set(i, last);
                }
                synchronized (Reactor.class) {
                    load--;
                }
                continue;
            }
            if (next != Next.SLEEP) {
                looking.add(client);
                barrier |= next == Next.BARRIER;
            }
            i++;
        }
        boolean fenced = !barrier || NativeCalls.SYSTEM.membarrier() == 0;
        for (Client client : looking) {
            client.look(fenced);
        }
        return !looking.isEmpty() && isDue();
    }

    private boolean isDue() {
        long now = System.nanoTime();
        for (Client client : clients) {
            if (client.isDue(now)) {
                return true;
            }
        }
        return false;
    }

    private void sleep(int calls) {
        long now = System.nanoTime();
        long until = clients.isEmpty() ? now + LINGER : Deadline.NEVER;
        words.n = 0;
        words.add(control, calls);
        for (Client client : clients) {
            until = Deadline.first(until, client.wakeAt());
            client.words(words);
        }
        Failpoint.after("reactor: asleep");
        int woken = NativeCalls.SYSTEM.futexWaitAny(words.addresses, words.expected, words.n, until);
        if (Futex.SystemFutex.result(woken) == Futex.Result.FAULT) {
            Attachment.sleep(1); // a page is gone, which its client finds when it looks; till then the others look as well
        }
    }
}
