// SPDX-License-Identifier: Apache-2.0
package dev.fermata.word;

import dev.fermata.testing.ContractLock;
import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Nested;

/** {@link LockContract} for every lock of this package. */
class LockContractTest {
    private static final int[] BEYOND_ONE = {2, 3, -1, Integer.MIN_VALUE, Integer.MAX_VALUE};
    private static final int[] BEYOND_TWO = {3, -1, Integer.MIN_VALUE, Integer.MAX_VALUE};
    private static final int[] BIT_31 = {-1, Integer.MIN_VALUE, Integer.MIN_VALUE | 1};

    @Nested
    class OfSpinLock extends LockContract {
        @Override ContractLock lockAt(MemorySegment segment, long offset) {
            return new ContractLock.Spin(SpinLock.at(segment, offset));
        }

        @Override int[] impossibleValues() {
            return BEYOND_ONE;
        }
    }

    @Nested
    class OfSpinLockThatDoesNotSpin extends LockContract {
        @Override ContractLock lockAt(MemorySegment segment, long offset) {
            return new ContractLock.Spin(SpinLock.at(segment, offset, 0));
        }

        @Override int[] impossibleValues() {
            return BEYOND_ONE;
        }
    }

    @Nested
    class OfWordMutex extends LockContract {
        @Override ContractLock lockAt(MemorySegment segment, long offset) {
            return new ContractLock.Mutex(WordMutex.at(segment, offset));
        }

        @Override int[] impossibleValues() {
            return BEYOND_TWO;
        }
    }

    @Nested
    class OfWordMutexWithCounterAndOwner extends LockContract {
        @Override ContractLock lockAt(MemorySegment segment, long offset) {
            return new ContractLock.Mutex(
                    WordMutex.at(segment, offset).withSlowPathCounter(offset + 8).withOwnerWord(offset + 16));
        }

        @Override int[] impossibleValues() {
            return BEYOND_TWO;
        }
    }

    @Nested
    class OfWordReadWriteLockExclusive extends LockContract {
        @Override ContractLock lockAt(MemorySegment segment, long offset) {
            return new ContractLock.Exclusive(WordReadWriteLock.at(segment, offset));
        }

        @Override int[] impossibleValues() {
            return BIT_31;
        }
    }

    @Nested
    class OfWordReadWriteLockShared extends LockContract {
        @Override ContractLock lockAt(MemorySegment segment, long offset) {
            return new ContractLock.Shared(WordReadWriteLock.at(segment, offset));
        }

        @Override ContractLock otherAt(MemorySegment segment, long offset) {
            return new ContractLock.Exclusive(WordReadWriteLock.at(segment, offset));
        }

        @Override int[] impossibleValues() {
            return BIT_31;
        }
    }
}
