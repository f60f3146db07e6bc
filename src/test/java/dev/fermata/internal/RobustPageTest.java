// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.fermata.internal.Futex.Result;
import dev.fermata.testing.SharedFile;
import dev.fermata.testing.Waiter;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the kernel does when a guardian ends. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RobustPageTest {
    @Test
    void theEndOfItsThreadMarksTheLifelineAndItsCopyAndWakesOneSleeperOfEach() throws Exception {
        try (SharedFile file = SharedFile.create()) {
            MemorySegment memory = file.segment();
            Word lifeline = Word.at(memory, 0);
            Word copy = Word.at(memory, Layout.P_LIFELINE_COPY);
            CountDownLatch claimed = new CountDownLatch(1);
            CountDownLatch end = new CountDownLatch(1);
            Thread guardian = Thread.ofPlatform().start(() -> {
                RobustPage page = RobustPage.take();
                page.register();
                page.pointAt(memory.address());
                lifeline.storeRelaxed(Posix.SYSTEM.threadId() | Layout.WAITERS);
                copy.storeRelaxed(Posix.SYSTEM.threadId() | Layout.WAITERS);
                claimed.countDown();
                try {
                    end.await();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            claimed.await();
            int alive = lifeline.loadAcquire();
            Waiter<Result> other = Waiter.call(() -> Futex.SYSTEM.wait(lifeline, alive, Deadline.NEVER));
            other.awaitAsleepOn(memory, 0);
            Waiter<Result> waiter = Waiter.call(() -> Futex.SYSTEM.wait(copy, alive, Deadline.NEVER));
            waiter.awaitAsleepOn(memory, Layout.P_LIFELINE_COPY);
            end.countDown();
            guardian.join();
            assertEquals(Result.WOKEN, other.result());
            assertEquals(Result.WOKEN, waiter.result());
            assertEquals(alive | Layout.DIED, lifeline.loadAcquire() | alive); // the kernel has taken the id away
            assertEquals(alive | Layout.DIED, copy.loadAcquire() | alive);
        }
    }

    @Test
    void aPageThatWasGivenBackMarksNothing() throws Exception {
        try (SharedFile file = SharedFile.create()) {
            Word lifeline = Word.at(file.segment(), 0);
            Thread guardian = Thread.ofPlatform().start(() -> {
                RobustPage page = RobustPage.take();
                page.register();
                page.pointAt(file.segment().address());
                lifeline.storeRelaxed(Posix.SYSTEM.threadId() | Layout.WAITERS);
                page.giveBack();
            });
            guardian.join();
            assertEquals(0, lifeline.loadAcquire() & Layout.DIED);
        }
    }
}
