// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Layout;
import dev.fermata.internal.Word;
import dev.fermata.testing.LockPath;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the end of the stack cuts off in the middle. */
@Tag("slow")
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StackOverflowTest {
    private static final Logger LOG = Logger.getLogger("dev.fermata");

    private LockPath place;
    private LockFile file;
    private SharedMutex mutex;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.open(place.file());
        mutex = file.mutex("m", 16);
        LOG.setLevel(Level.OFF); // each abandoned lock has a warning
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
        LOG.setLevel(null);
    }

    @Test
    void theMutexIsHeldByNobodyAfterwards() throws Exception {
        atTheEndOfTheStack(() -> {
            mutex.lock();
            mutex.unlock();
        });
    }

    @Test
    void noTokenStaysHeld() throws Exception {
        atTheEndOfTheStack(() -> mutex.acquire().close());
    }

    @Test
    void anAbandonedMutexIsHeldByNobodyAfterwards() throws Exception {
        mutex.lock();
        mutex.unlock();
        atTheEndOfTheStack(() -> {
            Word.cas(mutex.memory(), Layout.E_OWNER, Layout.FREE, Layout.ABANDONED);
            if (mutex.tryLock()) {
                mutex.unlock();
            }
        });
    }

    @Test
    void locksCanBeMadeAfterwards() throws Exception {
        AtomicInteger names = new AtomicInteger();
        atTheEndOfTheStack(() -> file.mutex("name" + names.incrementAndGet() % 500));
        file.mutex("new");
    }

    /** Does it at each depth from which nothing deeper can be reached; after each time the mutex can be had. */
    private void atTheEndOfTheStack(Runnable action) throws Exception {
        AtomicInteger cutOff = new AtomicInteger();
        for (int round = 0; round < 3; round++) {
            int depth = round;
            Thread thread = new Thread(null, () -> shift(depth, action, cutOff), "deep", 256 * 1024);
            thread.start();
            thread.join();
            assertTrue(mutex.tryLock(20, TimeUnit.SECONDS), mutex::toString);
            mutex.unlock();
        }
        assertTrue(cutOff.get() > 0);
    }

    /** The same at other distances from the end of the stack. */
    private void shift(int n, Runnable action, AtomicInteger cutOff) {
        if (n > 0) {
            shift(n - 1, action, cutOff);
            return;
        }
        try {
            dive(action, cutOff);
        } finally {
            if (mutex.isHeldByCurrentThread()) {
                mutex.unlock(); // the call to unlock itself was cut off, as a caller can see
            }
        }
    }

    private void dive(Runnable action, AtomicInteger cutOff) {
        try {
            dive(action, cutOff);
        } catch (StackOverflowError end) {
            // here it is
        }
        try {
            action.run();
        } catch (StackOverflowError end) {
            cutOff.incrementAndGet();
        }
    }
}
