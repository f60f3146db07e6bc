// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.Hold;
import dev.fermata.LockFile;
import dev.fermata.LockInfo;
import dev.fermata.LockTimeoutException;
import dev.fermata.SharedMutex;
import dev.fermata.demo.DemoRecord.Language;
import dev.fermata.demo.DemoRecord.Slot;
import dev.fermata.demo.DemoRecord.State;
import dev.fermata.word.WordMutex;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/**
 * One of the JVMs of {@link Mixed}: platform threads, virtual threads and requests contend for the same mutexes, in all
 * ways there are, and are interrupted, cancelled and run out of time; one more thread contends for the word.
 *
 * <p>A record is {first, second, inside, fence}. An update is first := first + 1, and later, maybe in another thread,
 * second := first. It reads steps from its input, and answers in lines that begin with "&gt; ".
 */
final class MixedMember {
    static final int LOCKS = 4;
    static final long RECORD = 64;
    static final long FIRST = 0;
    static final long SECOND = 8;
    private static final long INSIDE = 16;
    private static final long FENCE = 24;
    static final String WORD = "word record";

    private static final int PLATFORM_THREADS = 4;
    private static final int VIRTUAL_THREADS = 48;
    private static final int REQUESTERS = 48;
    /** How long nobody may wait. */
    static final long STALL = TimeUnit.SECONDS.toNanos(20);

    /** What is counted, in the order of the answer; the updates of each record follow. */
    enum Count { PLATFORM, VIRTUAL, ASYNC, INTERRUPTS, CANCELS, TIMEOUTS, DOUBLES, STALLS, BROKEN }

    private final List<SharedMutex> mutexes;
    private final Random seeds;
    private final Map<Count, LongAdder> counts = new ConcurrentHashMap<>();
    private final long[] updates = new long[LOCKS]; // each under its mutex
    private final AtomicLong ids = new AtomicLong(ProcessHandle.current().pid() << 32);
    private final AtomicBoolean stop = new AtomicBoolean();
    private final List<Waiting> waiting = new ArrayList<>();
    private final List<Contender> contenders = new ArrayList<>();
    private final CountDownLatch requesters = new CountDownLatch(REQUESTERS);
    private final BlockingQueue<Half> halves = new LinkedBlockingQueue<>();
    private final ExecutorService two = Executors.newFixedThreadPool(2);
    private final ExecutorService virtual = Executors.newVirtualThreadPerTaskExecutor();
    private final ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();
    private final List<Executor> executors = List.of(ForkJoinPool.commonPool(), two, virtual, Runnable::run);
    private final Executor refusing = task -> {
        throw new RejectedExecutionException("as was to be expected");
    };
    private final List<Thread> threads = new ArrayList<>();

    private MixedMember(LockFile file, long seed) {
        mutexes = mutexes(file);
        seeds = new Random(seed);
        for (Count count : Count.values()) {
            counts.put(count, new LongAdder());
        }
        for (int i = 0; i < PLATFORM_THREADS + VIRTUAL_THREADS; i++) {
            contenders.add(new Contender(i < PLATFORM_THREADS ? Count.PLATFORM : Count.VIRTUAL));
        }
        for (Contender contender : contenders) {
            contender.thread = contender.kind == Count.PLATFORM
                    ? Thread.ofPlatform().unstarted(contender) : Thread.ofVirtual().unstarted(contender);
            threads.add(contender.thread);
        }
        WordThread word = new WordThread(DemoRecord.of(file.mutex(WORD, DemoRecord.SIZE)));
        threads.add(Thread.ofPlatform().unstarted(word));
        threads.add(Thread.ofPlatform().unstarted(this::interrupt));
    }

    static List<SharedMutex> mutexes(LockFile file) {
        List<SharedMutex> mutexes = new ArrayList<>();
        for (int i = 0; i < LOCKS; i++) {
            mutexes.add(file.mutex("record " + i, RECORD));
        }
        return mutexes;
    }

    public static void main(String[] arguments) throws Exception {
        System.exit(run(arguments)); // the executors would go on
    }

    private static int run(String[] arguments) throws Exception {
        try (LockFile file = LockFile.builder(Path.of(arguments[0])).mustExist().label("mixed").open()) {
            MixedMember member = new MixedMember(file, Long.parseLong(arguments[1]));
            BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
            for (String step = steps.readLine(); step != null; step = steps.readLine()) {
                switch (step) {
                    case "start" -> member.start();
                    case "stop" -> member.stop();
                    case "check" -> member.check();
                    case "end" -> {
                        return 0;
                    }
                    default -> throw new IllegalArgumentException(step);
                }
                System.out.println("> " + step);
            }
            return 3; // its parent has gone
        }
    }

    private void start() {
        List<Requester> asking = new ArrayList<>();
        for (int i = 0; i < REQUESTERS; i++) {
            asking.add(new Requester());
        }
        Thread.ofPlatform().daemon().start(this::watch);
        Thread.ofPlatform().daemon().start(this::finish);
        Thread.ofVirtual().start(this::finish);
        threads.forEach(Thread::start);
        asking.forEach(two::execute);
    }

    private void stop() throws InterruptedException {
        stop.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        requesters.await();
    }

    /** When all are quiet everywhere, nobody waits and nobody holds anything. */
    private void check() throws InterruptedException {
        for (SharedMutex mutex : mutexes) {
            // What was granted at the last moment, to one who had given up, is on its way back.
            for (int i = 0; i < 1000 && !isAtRest(mutex); i++) {
                Thread.sleep(1);
            }
            if (!isAtRest(mutex)) {
                stalled("not to be had in the end: " + mutex);
            }
        }
        StringBuilder line = new StringBuilder("> counts");
        for (Count count : Count.values()) {
            line.append(' ').append(counts.get(count).sum());
        }
        for (int i = 0; i < LOCKS; i++) {
            mutexes.get(i).lock();
            line.append(' ').append(updates[i]);
            mutexes.get(i).unlock();
        }
        System.out.println(line);
    }

    /** Whether it can be had by a thread, and by a request, which is granted at once only if nobody waits in this JVM. */
    private static boolean isAtRest(SharedMutex mutex) {
        if (!mutex.tryLock()) {
            return false;
        }
        mutex.unlock();
        CompletableFuture<Hold> asked = mutex.lockAsync();
        boolean granted = asked.isDone();
        asked.thenAccept(Hold::close);
        return granted && mutex.info().state() == LockInfo.State.FREE;
    }

    private void count(Count what) {
        counts.get(what).increment();
    }

    private void stalled(String what) {
        count(Count.STALLS);
        System.out.println("stalled: " + what);
    }

    private void broken(Throwable failure) {
        count(Count.BROKEN);
        failure.printStackTrace();
    }

    // ---- the update ----

    private long begin(int lock, long fence) {
        long id = ids.incrementAndGet();
        MemorySegment record = mutexes.get(lock).payload();
        if (record.get(JAVA_LONG, INSIDE) != 0 || record.get(JAVA_LONG, FIRST) != record.get(JAVA_LONG, SECOND)
                || record.get(JAVA_LONG, FENCE) >= fence) {
            count(Count.DOUBLES);
        }
        record.set(JAVA_LONG, INSIDE, id);
        record.set(JAVA_LONG, FENCE, fence);
        record.set(JAVA_LONG, FIRST, record.get(JAVA_LONG, FIRST) + 1);
        return id;
    }

    private void end(int lock, long id, Count kind) {
        MemorySegment record = mutexes.get(lock).payload();
        record.set(JAVA_LONG, SECOND, record.get(JAVA_LONG, FIRST));
        if (record.get(JAVA_LONG, INSIDE) != id) {
            count(Count.DOUBLES);
        }
        record.set(JAVA_LONG, INSIDE, 0);
        updates[lock]++;
        count(kind);
    }

    /** An update of which another thread is to do the second half, and to close the hold. */
    private record Half(Hold hold, int lock, long id, Count kind) {
    }

    private void finish() {
        try {
            while (true) {
                finish(halves.take());
            }
        } catch (Throwable failure) {
            broken(failure);
        }
    }

    private void finish(Half half) {
        end(half.lock, half.id, half.kind);
        half.hold.close();
    }

    /** Mostly none; else such a one as takes a virtual thread off its carrier. */
    private static void pause(Random random) {
        int n = random.nextInt(256);
        if (n == 0) {
            LockSupport.parkNanos(random.nextInt(200_000));
        } else if (n < 8) {
            Thread.yield();
        }
    }

    // ---- the watchdog ----

    /** One who may be waiting. */
    private final class Waiting {
        private final String who;
        private volatile SharedMutex mutex; // or the word
        private volatile long since;
        private volatile boolean is;
        private boolean reported;

        Waiting(String who) {
            this.who = who;
            waiting.add(this);
        }

        void begin(SharedMutex mutex) {
            this.mutex = mutex;
            since = System.nanoTime();
            is = true;
        }

        void end() {
            is = false;
        }

        void look() {
            boolean stands = is && System.nanoTime() - since > STALL;
            if (stands && !reported) {
                stalled(who + " waits for " + (mutex == null ? "the word" : mutex));
            }
            reported = stands;
        }
    }

    private void watch() {
        while (true) {
            waiting.forEach(Waiting::look);
            LockSupport.parkNanos(500_000_000);
        }
    }

    /** Interrupts threads at random: most of them wait. */
    private void interrupt() {
        Random random = new Random(seeds.nextLong());
        while (!stop.get()) {
            contenders.get(random.nextInt(contenders.size())).thread.interrupt();
            LockSupport.parkNanos(random.nextInt(1_000_000));
        }
    }

    // ---- threads ----

    /** A thread of either kind. */
    private final class Contender implements Runnable {
        private final Count kind;
        private final Random random = new Random(seeds.nextLong());
        private final Waiting wait;
        private Thread thread;

        Contender(Count kind) {
            this.kind = kind;
            this.wait = new Waiting("a thread, " + kind);
        }

        @Override
        public void run() {
            try {
                while (!stop.get()) {
                    Thread.interrupted(); // one that came late
                    round(random.nextInt(LOCKS));
                }
            } catch (Throwable failure) {
                broken(failure);
            }
        }

        private void round(int lock) {
            SharedMutex mutex = mutexes.get(lock);
            Object taken;
            wait.begin(mutex);
            try {
                taken = take(mutex);
            } catch (InterruptedException e) {
                count(Count.INTERRUPTS);
                return;
            } finally {
                wait.end();
            }
            if (taken instanceof Hold hold) {
                Half half = new Half(hold, lock, begin(lock, hold.fence()), kind);
                if (random.nextInt(4) != 0) {
                    halves.add(half);
                } else {
                    pause(random);
                    finish(half);
                }
            } else if (taken != null) {
                long id = begin(lock, mutex.fence());
                pause(random);
                if (random.nextInt(8) == 0) {
                    mutex.lock(); // once more
                    mutex.unlock();
                }
                end(lock, id, kind);
                mutex.unlock();
            }
        }

        /** The mutex, a hold of it, or {@code null}. */
        private Object take(SharedMutex mutex) throws InterruptedException {
            Duration shortly = Duration.ofNanos(random.nextInt(5_000_000));
            try {
                switch (random.nextInt(9)) {
                    case 0 -> {
                        return mutex.tryLock() ? mutex : null;
                    }
                    case 1 -> {
                        return mutex.tryAcquire().orElse(null);
                    }
                    case 2 -> {
                        return mutex.tryLock(shortly.toNanos(), TimeUnit.NANOSECONDS) ? mutex : null;
                    }
                    case 3 -> mutex.lock(shortly);
                    case 4 -> {
                        return mutex.acquire(shortly);
                    }
                    case 5, 6 -> mutex.lockInterruptibly();
                    case 7 -> {
                        return mutex.acquire();
                    }
                    default -> mutex.lock();
                }
                return mutex;
            } catch (LockTimeoutException e) {
                count(Count.TIMEOUTS);
                return null;
            }
        }
    }

    /** A thread that contends for the word, as the peers in C and Rust do. */
    private final class WordThread implements Runnable {
        private final DemoRecord record;
        private final Waiting wait = new Waiting("a thread");

        WordThread(DemoRecord record) {
            this.record = record;
        }

        @Override
        public void run() {
            try {
                contend(record.claimSlot(Language.JAVA));
            } catch (Throwable failure) {
                broken(failure);
            }
        }

        private void contend(Slot slot) {
            WordMutex mutex = WordMutex.at(record.memory(), DemoRecord.LOCK_WORD)
                    .withSlowPathCounter(DemoRecord.SLOW_PATH_COUNTER).withOwnerWord(DemoRecord.OWNER_WORD);
            long mismatches = 0;
            record.gate().awaitCleared();
            slot.setState(State.RUNNING);
            for (long n = 1; !stop.get(); n++) {
                wait.begin(null);
                mutex.lock();
                wait.end();
                mismatches += record.ownerSlot() == 0 ? 0 : 1;
                record.setOwnerSlot(slot.ownerId());
                record.setCounter(record.counter() + 1);
                mismatches += record.ownerSlot() == slot.ownerId() ? 0 : 1;
                record.setOwnerSlot(0);
                mutex.unlock();
                slot.report(n, 0, mismatches);
                if (n % 256 == 0) {
                    LockSupport.parkNanos(1_000_000); // processors are for the others, too
                }
            }
            slot.setState(State.DONE);
        }
    }

    // ---- requests ----

    /** One who asks, again and again, and has no thread. */
    private final class Requester implements Runnable {
        private final Random random = new Random(seeds.nextLong());
        private final Waiting wait = new Waiting("a request");

        @Override
        public void run() {
            if (stop.get()) {
                requesters.countDown();
                return;
            }
            int lock = random.nextInt(LOCKS);
            SharedMutex mutex = mutexes.get(lock);
            Executor executor = random.nextInt(64) == 0 ? refusing : executors.get(random.nextInt(executors.size()));
            int way = random.nextInt(4); // before anybody else can be here
            int giveUp = random.nextInt(16);
            long nanos = random.nextInt(5_000_000);
            wait.begin(mutex);
            try {
                if (way == 0) {
                    Work work = new Work(lock);
                    CompletableFuture<Integer> asked = mutex.withLock(work, executor);
                    giveUp(asked, giveUp, nanos);
                    asked.whenComplete((done, failure) -> {
                        note(done, failure);
                        work.revoke();
                    });
                } else {
                    CompletableFuture<Hold> asked = way == 1
                            ? mutex.lockAsync(Duration.ofNanos(nanos), executor) : mutex.lockAsync(executor);
                    giveUp(asked, giveUp, nanos);
                    asked.whenComplete((hold, failure) -> {
                        note(hold, failure);
                        update(lock, hold);
                    });
                }
            } catch (Throwable failure) {
                broken(failure);
            }
        }

        private <T> void giveUp(CompletableFuture<T> asked, int how, long nanos) {
            switch (how) {
                case 0 -> asked.cancel(false);
                case 1 -> later.schedule(() -> asked.cancel(true), nanos, TimeUnit.NANOSECONDS);
                case 2 -> later.schedule(() -> asked.complete(null), nanos, TimeUnit.NANOSECONDS);
                case 3 -> later.schedule(() -> asked.completeExceptionally(new CancellationException()), nanos,
                        TimeUnit.NANOSECONDS);
                case 4 -> asked.orTimeout(nanos, TimeUnit.NANOSECONDS);
                default -> { }
            }
        }

        private void note(Object result, Throwable failure) {
            switch (failure) {
                case null -> {
                    if (result == null) {
                        count(Count.CANCELS);
                    }
                }
                case LockTimeoutException late -> count(Count.TIMEOUTS);
                case CancellationException cancelled -> count(Count.CANCELS);
                case TimeoutException late -> count(Count.CANCELS);
                case RejectedExecutionException refused -> { }
                case ArithmeticException ofTheWork -> { }
                default -> broken(failure);
            }
        }

        private void update(int lock, Hold hold) {
            wait.end();
            if (hold != null) {
                try {
                    Half half = new Half(hold, lock, begin(lock, hold.fence()), Count.ASYNC);
                    switch (random.nextInt(4)) {
                        case 0 -> halves.add(half);
                        case 1 -> two.execute(() -> finish(half));
                        default -> {
                            pause(random);
                            finish(half);
                        }
                    }
                } catch (Throwable failure) {
                    broken(failure);
                }
            }
            two.execute(this);
        }

        /** Work under the lock; it may throw. Who gives up after it has begun waits for its end all the same. */
        private final class Work implements java.util.function.Supplier<CompletionStage<Integer>> {
            private final int lock;
            private final AtomicBoolean settled = new AtomicBoolean(); // begun, or given up before

            Work(int lock) {
                this.lock = lock;
            }

            void revoke() {
                if (settled.compareAndSet(false, true)) {
                    update(lock, null);
                }
            }

            @Override
            public CompletionStage<Integer> get() {
                if (!settled.compareAndSet(false, true)) {
                    return CompletableFuture.completedStage(null);
                }
                MemorySegment record = mutexes.get(lock).payload();
                long id = begin(lock, record.get(JAVA_LONG, FENCE) + 1);
                if (random.nextInt(8) == 0) {
                    end(lock, id, Count.ASYNC);
                    update(lock, null);
                    throw new ArithmeticException("as was to be expected");
                }
                return CompletableFuture.supplyAsync(() -> {
                    end(lock, id, Count.ASYNC);
                    update(lock, null);
                    return 1;
                }, random.nextBoolean() ? two : virtual);
            }
        }
    }
}
