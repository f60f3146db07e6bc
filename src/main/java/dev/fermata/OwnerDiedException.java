// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;

/**
 * The lock's last owner died with it, and the lock is {@link OwnerDeath#STRICT}: what it protects may be half written.
 * Nothing was acquired. Call {@link SharedMutex#recover}.
 */
public final class OwnerDiedException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param lock the lock
     * @param lastOwner who died, or failed to repair what one who died had left, for people
     */
    public OwnerDiedException(String lock, String lastOwner) {
        super("lock \"%s\" is abandoned, %s. Repair what it protects by recover()".formatted(
                Printable.of(lock), lastOwner));
    }
}
