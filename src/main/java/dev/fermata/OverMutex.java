// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

/** What is built over a mutex in its own entry. A class, not an interface: its users do not see the mutex. */
abstract class OverMutex {
    abstract SharedMutex mutex();

    /** Finishes what an error has cut off in a lock of a file; the guardian has it called. */
    static void finish(Object lock) {
        switch (lock) {
            case SharedMutex mutex -> mutex.finish();
            case OverMutex over -> over.mutex().finish();
            default -> { }
        }
    }
}
