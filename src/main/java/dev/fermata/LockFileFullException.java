// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;
import java.nio.file.Path;

/** The file has no room for a further lock. Those that it holds are not affected. */
public final class LockFileFullException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param path the file
     * @param name the lock that has no room
     * @param found what there is no more of
     */
    public LockFileFullException(Path path, String name, String found) {
        super(("%s has no room for lock \"%s\": %s. Create another file with more capacity or payload, by LockFile.builder"
                + "(path).capacity(locks).payload(bytes)").formatted(Printable.of(path), Printable.of(name), found));
    }
}
