// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine;

/** All ways to wait, on one file. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class MixedTest {
    @ParameterizedTest
    @ValueSource(strings = {"", "--symmetric"})
    void threadsAndVirtualThreadsAndRequestsTakeTurnsWithPrograms(String option) {
        String[] arguments = option.isEmpty() ? new String[] {"--mixed", "3"} : new String[] {"--mixed", "3", option};
        assertEquals(0, new CommandLine(new Mixed()).execute(arguments));
    }
}
