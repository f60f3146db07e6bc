// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Layout;
import dev.fermata.internal.Printable;

/**
 * A {@link SharedMutex} that is held by whoever has this object, not by a thread: for code whose work moves from thread to
 * thread. Not re-entrant. It is given back by {@link #close}, from any thread; if it is forgotten, the lock stays held as
 * long as the process lives.
 */
public final class Hold implements AutoCloseable {
    private final SharedMutex mutex;
    private final Thread asker = Thread.currentThread();
    private boolean closed; // under the monitor
    boolean isReleasing; // the mutex sees to it
    private long fence;
    private boolean ownerDied;

    Hold(SharedMutex mutex) {
        this.mutex = mutex;
    }

    /** The thread that asked for it. */
    Thread asker() {
        return asker;
    }

    void acquired(long fence, boolean ownerDied) {
        this.isReleasing = false;
        this.fence = fence;
        this.ownerDied = ownerDied;
    }

    /**
     * The lock that is held.
     *
     * @return the mutex
     */
    public SharedMutex mutex() {
        return mutex;
    }

    /**
     * The fencing token of this acquisition; see {@link SharedMutex#fence}.
     *
     * @return a number that is greater than that of every acquisition before
     */
    public long fence() {
        return fence;
    }

    /**
     * Whether the owner before this one died with the lock.
     *
     * @return whether this acquisition was the one that was told
     */
    public boolean ownerDied() {
        return ownerDied;
    }

    /**
     * Releases the lock. Release. Has no effect the second time.
     *
     * @throws LockFileReplacedException if the file was deleted or replaced meanwhile; the lock is released all the same
     * @throws DamagedMappingException if the file was truncated or damaged
     * @throws LockFileClosedException if the file was closed meanwhile; the lock is abandoned then
     */
    @Override
    public void close() {
        synchronized (this) { // and no call, which the end of the stack could cut off
            if (closed) {
                return;
            }
            closed = true;
        }
        try {
            mutex.release(this, Layout.FREE);
        } catch (Error e) {
            if (!isReleasing) {
                mutex.holder = 0; // as release does
                mutex.unreleased = Layout.FREE;
                mutex.attachment.unfinished = true;
            }
            throw e;
        }
    }

    synchronized boolean isClosed() {
        return closed;
    }

    @Override
    public String toString() {
        return "Hold[\"%s\", fence %d%s]".formatted(
                Printable.of(mutex.name()), fence, isClosed() ? ", closed" : "");
    }
}
