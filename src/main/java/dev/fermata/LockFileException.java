// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;
import java.io.IOException;
import java.nio.file.Path;

/**
 * A lock file could not be created, opened or attached to. Nothing in the file has been changed, unless it was a lock
 * file and the {@link Reason} says that only the last step failed.
 */
public final class LockFileException extends IOException {
    private static final long serialVersionUID = 1L;

    /** What was wrong, for programs. */
    public enum Reason {
        /** There is no such file, and it was not to be created; or its directory does not exist. */
        NOT_FOUND,
        /** It is not a regular file, or does not begin as a lock file does. */
        NOT_A_LOCK_FILE,
        /** Its format is of another major version, or byte order, or has features that are unknown here. */
        UNSUPPORTED_FORMAT,
        /** It begins as a lock file, but contradicts itself, or is not as long as it says. */
        DAMAGED,
        /** Its file system is not one that is known to do what is needed. */
        UNSUITABLE_FILE_SYSTEM,
        /** There is no space for it. */
        NO_SPACE,
        /** The file's mode, or the system's settings, do not allow it. */
        NOT_PERMITTED,
        /** Others were attaching or detaching for all of the time that it was waited for. */
        BUSY,
        /** Every slot for a participant is taken. */
        TOO_MANY_PARTICIPANTS,
        /** The kernel refused a call that is needed. */
        REFUSED_BY_KERNEL
    }

    /** What was wrong. */
    private final Reason reason;

    /** As given. */
    private final transient Path file;

    /**
     * Creates the exception.
     *
     * @param reason what was wrong
     * @param path the file
     * @param found what was found
     * @param mend what was expected, or how to mend it
     */
    public LockFileException(Reason reason, Path path, String found, String mend) {
        super("%s: %s; %s".formatted(Printable.of(path), found, mend));
        this.reason = reason;
        this.file = path;
    }

    /**
     * What was wrong.
     *
     * @return the reason
     */
    public Reason reason() {
        return reason;
    }

    /**
     * The file.
     *
     * @return its path as it was given, or {@code null} after deserialization
     */
    public Path path() {
        return file;
    }
}
