// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import picocli.CommandLine;

/** Processes that die while they wait. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DeadWaitersTest {
    @Test
    void theOthersGoOnAndTheirPlacesComeBack() {
        assertEquals(0, new CommandLine(new DeadWaiters()).execute("--waiters", "15"));
    }
}
