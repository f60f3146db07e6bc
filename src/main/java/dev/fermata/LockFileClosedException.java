// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;
import java.nio.file.Path;

/** The lock file was closed in this process, before or while the lock was waited for. Nothing was acquired. */
public final class LockFileClosedException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param path the file
     */
    public LockFileClosedException(Path path) {
        super(Printable.of(path) + " has been closed in this process; open it again");
    }
}
