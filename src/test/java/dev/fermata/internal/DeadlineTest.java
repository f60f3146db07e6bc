// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class DeadlineTest {
    @ParameterizedTest
    @EnumSource
    void aTimeoutOfZeroOrLessHasPassedAtOnce(TimeUnit unit) {
        for (long timeout : new long[] {0, -1, Long.MIN_VALUE}) {
            long deadline = Deadline.after(timeout, unit);
            assertTrue(Deadline.passed(deadline), timeout + " " + unit);
            assertTrue(deadline > 0, "the kernel refuses negative times");
        }
    }

    @ParameterizedTest
    @EnumSource
    void aTimeoutThatOverflowsNeverPasses(TimeUnit unit) {
        assertEquals(Deadline.NEVER, Deadline.after(Long.MAX_VALUE, unit));
        assertFalse(Deadline.passed(Deadline.NEVER));
    }

    @ParameterizedTest
    @EnumSource
    void aDeadlineLiesTheTimeoutAhead(TimeUnit unit) {
        long before = System.nanoTime();
        long deadline = Deadline.after(3, unit);
        long after = System.nanoTime();
        assertTrue(before + unit.toNanos(3) <= deadline && deadline <= after + unit.toNanos(3));
    }

    @Test
    void theLargestTimeoutThatFitsIsKept() {
        long timeout = Long.MAX_VALUE / 2;
        long before = System.nanoTime();
        assertTrue(Deadline.after(timeout, TimeUnit.NANOSECONDS) >= before + timeout);
    }

    @Test
    void aDeadlineThatIsStillAheadHasNotPassed() {
        assertFalse(Deadline.passed(Deadline.after(1, TimeUnit.DAYS)));
        assertFalse(Deadline.passed(Deadline.NEVER - 1));
        assertTrue(Deadline.passed(System.nanoTime()));
    }

    @Test
    void theEarlierOfTwoDeadlinesIsTaken() {
        long before = System.nanoTime();
        assertEquals(before + 1_000, Deadline.earlier(before + 1_000, TimeUnit.HOURS.toNanos(1)));
        assertEquals(before - 1, Deadline.earlier(before - 1, 0));
        for (long later : new long[] {Deadline.NEVER, Deadline.NEVER - 1, before + TimeUnit.HOURS.toNanos(1)}) {
            long earlier = Deadline.earlier(later, 1_000);
            assertTrue(before + 1_000 <= earlier && earlier <= System.nanoTime() + 1_000);
        }
    }
}
