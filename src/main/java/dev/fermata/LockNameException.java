// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;

/** The name cannot be one of a lock. Nothing has been looked up. */
public final class LockNameException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param name the name, shortened if need be
     * @param reason what is wrong and what is expected
     */
    public LockNameException(String name, String reason) {
        super("\"%s\" cannot be a lock's name: %s".formatted(Printable.of(name), reason));
    }
}
