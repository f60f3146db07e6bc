// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;
import java.nio.file.Path;

/**
 * The lock file was deleted or replaced while it was open: those who open it now get another file, and other locks.
 *
 * <p>Where {@code unlock} throws it, the lock has been released, but since when others could hold the lock of the new
 * file is not known. Close the file, and open it again.
 */
public final class LockFileReplacedException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param path the file
     * @param found what is there now
     */
    public LockFileReplacedException(Path path, String found) {
        super("%s was deleted or replaced while it was open: %s; close it and open it again".formatted(
                Printable.of(path), found));
    }
}
