// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import dev.fermata.SharedMutex;
import java.lang.foreign.MemorySegment;

/** A record of two halves behind a named mutex. It is whole when both hold the same number: that of its updates. */
final class Halves {
    static final String LOCK = "two halves";
    private static final long FIRST = 0;
    private static final long SECOND = 64;
    private static final long SIZE = 128;

    private final SharedMutex mutex;
    private final MemorySegment payload;

    Halves(LockFile file) {
        mutex = file.mutex(LOCK, SIZE);
        payload = mutex.payload();
    }

    SharedMutex mutex() {
        return mutex;
    }

    long first() {
        return payload.get(JAVA_LONG, FIRST);
    }

    long second() {
        return payload.get(JAVA_LONG, SECOND);
    }

    boolean isWhole() {
        return first() == second();
    }

    /** The next state. To be called, as all of these, by the holder of the lock. */
    void update() {
        writeFirst();
        payload.set(JAVA_LONG, SECOND, first());
    }

    /** The first half of an update. */
    void writeFirst() {
        payload.set(JAVA_LONG, FIRST, second() + 1);
    }

    /** Takes back an update of which only the first half was written. */
    void repair() {
        payload.set(JAVA_LONG, FIRST, second());
    }

    @Override
    public String toString() {
        return first() + "|" + second();
    }
}
