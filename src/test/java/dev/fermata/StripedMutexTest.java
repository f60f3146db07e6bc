// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.testing.LockPath;
import dev.fermata.testing.Waiter;
import dev.fermata.testing.Worker;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Many keys over few mutexes. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StripedMutexTest {
    private static final int STRIPES = 8;

    private LockPath place;
    private LockFile file;
    private StripedMutex striped;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.open(place.file());
        striped = file.stripedMutex("s", STRIPES);
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    private static List<String> keys(int from, int to) {
        List<String> keys = new ArrayList<>();
        for (int i = from; i < to; i++) {
            keys.add("key " + i);
        }
        return keys;
    }

    /** Keys of different stripes. */
    private List<String> apart(int count) {
        Set<SharedMutex> seen = new HashSet<>();
        return keys(0, 1000).stream().filter(key -> seen.add(striped.get(key))).limit(count).toList();
    }

    @Test
    void aKeyAlwaysHasTheSameStripeAndAllStripesHaveKeys() {
        Set<SharedMutex> used = new HashSet<>();
        for (String key : keys(0, 200)) {
            assertSame(striped.get(key), striped.get(new String(key)));
            used.add(striped.get(key));
        }
        assertEquals(STRIPES, used.size());
        assertSame(striped.get("é"), striped.get(new byte[] {(byte) 0xc3, (byte) 0xa9}));
        assertSame(striped.get(0x0102L), striped.get(new byte[] {2, 1, 0, 0, 0, 0, 0, 0}));
        assertSame(striped, file.stripedMutex("s", STRIPES));
        assertThrows(IndexOutOfBoundsException.class, () -> striped.stripe(STRIPES));
        assertEquals(STRIPES, striped.info().size());
    }

    @Test
    void theStripeOfAKeyIsWhatTheProtocolSays() {
        byte[] key = {'a'};
        long h = (0xcbf29ce484222325L ^ 'a') * 0x100000001b3L;
        h = (h ^ h >>> 33) * 0xff51afd7ed558ccdL;
        h = (h ^ h >>> 33) * 0xc4ceb9fe1a85ec53L;
        h ^= h >>> 33;
        assertSame(striped.stripe((int) Long.remainderUnsigned(h, STRIPES)), striped.get(key));
    }

    @Test
    void theNumberOfStripesIsForGood() {
        assertThrows(LockMismatchException.class, () -> file.stripedMutex("s", STRIPES + 1));
        assertThrows(LockMismatchException.class, () -> file.mutex("s"));
        assertThrows(IllegalArgumentException.class, () -> file.stripedMutex("t", 0));
        assertEquals(List.of("s"), file.names());
    }

    @Test
    void severalKeysAreTakenTogetherAndEachStripeOnce() throws Exception {
        List<String> keys = keys(0, 100);
        try (StripedMutex.Locked locked = striped.lockAll(keys)) {
            for (int i = 0; i < STRIPES; i++) {
                assertEquals(1, striped.stripe(i).holdCount());
            }
            IllegalMonitorStateException e = assertThrows(IllegalMonitorStateException.class,
                    () -> Waiter.run(locked::close).result());
            assertTrue(e.getMessage().contains("does not hold"), e.getMessage());
        }
        for (int i = 0; i < STRIPES; i++) {
            assertEquals(LockInfo.State.FREE, striped.stripe(i).info().state());
        }
        striped.lockAll(List.of()).close();
    }

    @Test
    void ofSeveralKeysNoneIsHeldIfOneCannotBeHad() throws Exception {
        List<String> keys = apart(3);
        SharedMutex taken = striped.get(keys.get(1));
        assertNotSame(taken, striped.get(keys.get(0)));
        Hold hold = taken.acquire();
        assertThrows(LockTimeoutException.class, () -> striped.lockAll(keys, Duration.ofMillis(10)));
        assertThrows(LockTimeoutException.class, () -> striped.lockAll(keys, Duration.ZERO));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> striped.lockAll(keys, Duration.ofDays(1)));
        CompletableFuture<StripedMutex.Locked> asked = striped.lockAllAsync(keys);
        assertFalse(asked.isDone());
        asked.cancel(false);
        for (String key : keys) {
            if (striped.get(key) != taken) {
                assertTrue(striped.get(key).tryLock(10, TimeUnit.SECONDS));
                striped.get(key).unlock();
            }
        }
        hold.close();
        striped.lockAll(keys, Duration.ofSeconds(10)).close();
    }

    @Test
    void severalKeysCanBeAskedForAndGivenBackByAnyThread() throws Exception {
        List<String> keys = keys(0, 30);
        StripedMutex.Locked first = striped.lockAllAsync(keys).get();
        CompletableFuture<StripedMutex.Locked> second = striped.lockAllAsync(keys);
        assertFalse(second.isDone());
        Waiter.run(first::close).result();
        second.get().close();
        striped.lockAll(keys, Duration.ofSeconds(10)).close();
    }

    /** Takes two keys in one order, over and over. */
    static void transfers(String... arguments) throws Exception {
        try (LockFile file = LockFile.open(Path.of(arguments[0]))) {
            StripedMutex striped = file.stripedMutex("s", STRIPES);
            Worker.say("ready");
            Worker.hear();
            for (int i = 0; i < 200_000; i++) {
                striped.lockAll(List.of(arguments[1], arguments[2])).close();
            }
            Worker.say("done");
        }
    }

    @Test
    void processesThatTakeKeysInOppositeOrdersDoNotBlockEachOther() throws Exception {
        List<String> keys = apart(2);
        try (Worker one = Worker.start(StripedMutexTest.class, "transfers", List.of(), place.file(), "key 0", keys.get(1));
                Worker other =
                        Worker.start(StripedMutexTest.class, "transfers", List.of(), place.file(), keys.get(1), "key 0")) {
            one.expect("ready");
            other.expect("ready");
            one.tell("go");
            other.tell("go");
            one.expect("done");
            other.expect("done");
        }
    }

    /** Dies with a key. */
    static void holds(String... arguments) throws Exception {
        LockFile file = LockFile.open(Path.of(arguments[0]));
        file.stripedMutex("s", STRIPES).get("key 0").lock();
        Worker.say("locked");
        Worker.hear();
    }

    @Test
    void whoGetsAKeyAfterItsOwnersDeathIsTold() throws Exception {
        try (Worker victim = Worker.start(StripedMutexTest.class, "holds", List.of(), place.file())) {
            victim.expect("locked");
            victim.kill();
            try (StripedMutex.Locked _ = striped.lockAll(keys(0, 100))) {
                for (int i = 0; i < STRIPES; i++) {
                    assertEquals(striped.stripe(i) == striped.get("key 0"), striped.stripe(i).ownerDied());
                }
            }
        }
    }
}
