// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import picocli.CommandLine;

/** Processes that all want files which are not there yet. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FreshPathsTest {
    @Test
    void everybodyGetsTheSameFileAndNoUpdateIsLost() {
        assertEquals(0, new CommandLine(new FreshPaths()).execute("--fresh", "50", "--processes", "6"));
    }
}
