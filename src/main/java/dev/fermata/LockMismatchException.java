// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;

/** There is a lock with that name, but of another type or with other parameters. It is unchanged. */
public final class LockMismatchException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param name the lock
     * @param found what it is
     * @param expected what was asked for
     */
    public LockMismatchException(String name, String found, String expected) {
        super("lock \"%s\" is %s, expected %s; ask for what it is, or choose another name".formatted(
                Printable.of(name), found, expected));
    }
}
