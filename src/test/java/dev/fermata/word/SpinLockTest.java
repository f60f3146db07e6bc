// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Test;

/** What {@link LockContract} does not say about {@link SpinLock}. */
class SpinLockTest {
    private final MemorySegment segment = Arena.ofAuto().allocate(ValueLayout.JAVA_INT);

    @Test
    void aNegativeSpinLimitIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> SpinLock.at(segment, 0, -1));
    }

    @Test
    void itTellsItsState() {
        SpinLock lock = SpinLock.at(segment, 0);
        assertFalse(lock.isLocked());
        assertEquals("SpinLock[word at offset 0, free]", lock.toString());
        lock.lock();
        assertTrue(lock.isLocked());
        assertEquals("SpinLock[word at offset 0, locked]", lock.toString());
    }
}
