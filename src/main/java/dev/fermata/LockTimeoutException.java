// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;
import java.time.Duration;
import java.util.concurrent.TimeoutException;

/** The lock could not be had in time. The message says who holds it. */
public final class LockTimeoutException extends TimeoutException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param lock the lock
     * @param timeout how long it was waited for
     * @param holder who holds it, for people
     */
    public LockTimeoutException(String lock, Duration timeout, String holder) {
        super("lock \"%s\" could not be had in %s: %s".formatted(Printable.of(lock), timeout, holder));
    }
}
