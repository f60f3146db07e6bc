// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import dev.fermata.word.SpinLock;
import dev.fermata.word.WordMutex;
import dev.fermata.word.WordReadWriteLock;
import java.util.concurrent.TimeUnit;

/** An exclusive lock as the contract of locks sees it, and the adapters. */
public interface ContractLock {
    void lock();

    boolean tryLock();

    boolean tryLock(long timeout, TimeUnit unit);

    void unlock();

    /** Adapter of {@link SpinLock}. */
    record Spin(SpinLock it) implements ContractLock {
        @Override public void lock() { it.lock(); }
        @Override public boolean tryLock() { return it.tryLock(); }
        @Override public boolean tryLock(long timeout, TimeUnit unit) { return it.tryLock(timeout, unit); }
        @Override public void unlock() { it.unlock(); }
    }

    /** Adapter of {@link WordMutex}. */
    record Mutex(WordMutex it) implements ContractLock {
        @Override public void lock() { it.lock(); }
        @Override public boolean tryLock() { return it.tryLock(); }
        @Override public boolean tryLock(long timeout, TimeUnit unit) { return it.tryLock(timeout, unit); }
        @Override public void unlock() { it.unlock(); }
    }

    /** Adapter of {@link WordReadWriteLock}, exclusive mode. */
    record Exclusive(WordReadWriteLock it) implements ContractLock {
        @Override public void lock() { it.lockExclusive(); }
        @Override public boolean tryLock() { return it.tryLockExclusive(); }
        @Override public boolean tryLock(long timeout, TimeUnit unit) { return it.tryLockExclusive(timeout, unit); }
        @Override public void unlock() { it.unlockExclusive(); }
    }

    /** Adapter of {@link WordReadWriteLock}, shared mode. */
    record Shared(WordReadWriteLock it) implements ContractLock {
        @Override public void lock() { it.lockShared(); }
        @Override public boolean tryLock() { return it.tryLockShared(); }
        @Override public boolean tryLock(long timeout, TimeUnit unit) { return it.tryLockShared(timeout, unit); }
        @Override public void unlock() { it.unlockShared(); }
    }
}
