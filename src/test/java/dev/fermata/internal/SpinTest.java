// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.LockFile;
import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.LockPath;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SpinTest {
    private static final int LITTLE = 400;

    private static SpinBudget adaptive(int sleep) {
        return new SpinBudget(SpinBudget.MEASURED, true, () -> sleep);
    }

    /** Waits for a release that comes after so many ns; whether spinning was enough. */
    private static boolean await(SpinBudget budget, int section) {
        boolean enough = budget.allowed() > section;
        if (enough) {
            budget.succeeded(section);
        } else {
            budget.failed();
        }
        return enough;
    }

    private static long count(SpinBudget budget, int waits, int section) {
        return IntStream.range(0, waits).filter(i -> await(budget, section)).count();
    }

    @Test
    void theLimitIsWhatASleepCostsFrom1To20Microseconds() {
        for (int[] expected : new int[][] {
                {0, 1_000}, {999, 1_000}, {2_345, 2_345}, {20_001, 20_000}, {Integer.MAX_VALUE, 20_000}}) {
            SpinBudget budget = adaptive(expected[0]);
            for (int i = 0; i < 100; i++) {
                budget.allowed();
                budget.succeeded(100_000);
            }
            assertEquals(expected[1], budget.allowed(), expected[0] + " ns");
        }
    }

    @Test
    void theFirstSpinGoesToTheLimitThatIsAssumed() {
        assertEquals(Calibration.ASSUMED, adaptive(Calibration.ASSUMED).allowed());
    }

    @Test
    void aLockWithLongSectionsIsSoonLookedAtOnlyBrieflyAndNowAndThenToTheLimit() {
        SpinBudget budget = adaptive(20_000);
        assertEquals(0, count(budget, 100, 1_000_000));
        int brief = 0;
        for (int i = 0; i < 640; i++) {
            int allowed = budget.allowed();
            assertTrue(allowed == 20_000 || allowed >= LITTLE && allowed < LITTLE + 10, allowed + " ns");
            brief += allowed == 20_000 ? 0 : 1;
            budget.failed();
        }
        assertEquals(630, brief);
    }

    @Test
    void aLockIsSpunForAgainSoonAfterItsSectionsHaveBecomeShort() {
        SpinBudget budget = adaptive(20_000);
        count(budget, 1000, 1_000_000);
        assertTrue(count(budget, 64, 9_000) >= 1, "within 64 waits");
        assertEquals(200, count(budget, 200, 9_000));
    }

    @Test
    void aSpinLastsTwiceAsLongAsTheMeanOfThoseBeforeAndALittleMore() {
        SpinBudget budget = adaptive(20_000);
        count(budget, 200, 3_000);
        assertEquals(2 * 3_000 + LITTLE, budget.allowed(), 10);
    }

    @Test
    void spinningGoesOnWhileEverySecondSpinSucceedsAndNotIfEveryFourthDoes() {
        SpinBudget budget = adaptive(20_000);
        count(budget, 200, 3_000);
        for (int i = 0; i < 200; i++) {
            assertTrue(await(budget, 3_000));
            await(budget, 1_000_000);
        }
        for (int i = 0; i < 50; i++) {
            await(budget, 3_000);
            count(budget, 3, 1_000_000);
        }
        assertTrue(IntStream.range(0, 63).filter(i -> budget.allowed() > 3_000).count() <= 1);
    }

    @Test
    void whatIsSetIsKeptTo() {
        SpinBudget budget = new SpinBudget(7_000, true, () -> 1_000);
        assertEquals(1_000, count(budget, 1_000, 6_999));
        assertEquals(0, count(budget, 1_000, 1_000_000));
        assertEquals(7_000, budget.allowed());
        assertEquals(0, new SpinBudget(0, true, () -> 20_000).allowed());
        assertEquals(1_000_000, new SpinBudget(SpinBudget.MAX, true, () -> 1_000).allowed());
    }

    @Test
    void aSpinEndsAtTheDeadline() {
        SpinBudget budget = new SpinBudget(7_000, true, () -> 1_000);
        assertEquals(12_000, budget.until(5_000, Deadline.NEVER));
        assertEquals(12_000, budget.until(5_000, 12_001));
        assertEquals(6_000, budget.until(5_000, 6_000));
        assertEquals(4_000, budget.until(5_000, 4_000));
        assertEquals(5_000, new SpinBudget(0, true, () -> 1_000).until(5_000, Deadline.NEVER));
    }

    @Test
    void nobodySpinsOnASingleProcessor() throws Exception {
        for (long spin : new long[] {SpinBudget.MEASURED, 1, SpinBudget.MAX}) {
            SpinBudget budget = new SpinBudget(spin, false, () -> 20_000);
            assertEquals(0, IntStream.range(0, 200).map(i -> budget.allowed()).max().orElseThrow());
        }
        assertEquals("0 ns, calibrated: false", opened("-XX:ActiveProcessorCount=1"));
    }

    @Test
    void whatASleepCostsIsMeasuredByThreadsThatEnd() throws Exception {
        assumeTrue(Spin.LIMIT > 0, "nobody spins on a single processor");
        assertEquals("2000 ns, calibrated: true", opened("-XX:ActiveProcessorCount=2"));
    }

    private static String opened(String option) throws Exception {
        try (LockPath place = LockPath.create()) {
            return ChildJvm.run(Opener.class, List.of(ChildJvm.NATIVE_ACCESS, option), place.file().toString()).output();
        }
    }

    /** Opens a file, waits for the end of what measures, and says whether there was a result. */
    static final class Opener {
        private Opener() {
        }

        public static void main(String[] args) throws Exception {
            int first = new SpinBudget(SpinBudget.MEASURED).allowed();
            try (LockFile _ = LockFile.open(Path.of(args[0]))) {
                long deadline = Deadline.after(Spin.LIMIT > 0 ? 10_000 : 500, TimeUnit.MILLISECONDS);
                while (!Deadline.passed(deadline) && (Calibration.sleep() == Calibration.ASSUMED || isCalibrating())) {
                    Thread.sleep(1);
                }
            }
            System.out.println(first + " ns, calibrated: "
                    + (Calibration.sleep() != Calibration.ASSUMED && !isCalibrating()));
        }

        private static boolean isCalibrating() {
            return Thread.getAllStackTraces().keySet().stream()
                    .anyMatch(thread -> thread.getName().equals(Calibration.NAME));
        }
    }
}
