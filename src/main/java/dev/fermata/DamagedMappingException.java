// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

/**
 * The memory behind a lock is not what it was: the file was truncated, a hole was punched into it, or something that
 * does not follow the protocol wrote into the word.
 *
 * <p>No lock in that memory can be relied on any more, and whether the calling thread holds one is not known. Stop
 * using the mapping, find out who changed the file, and start again with a fresh one.
 */
public final class DamagedMappingException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    /** What HotSpot says when a mapped page is gone; there is no type for it. */
    private static final String PAGE_FAULT = "unsafe memory access";

    /**
     * Creates the exception.
     *
     * @param message what was found, what was expected and how to mend it
     * @param cause the JVM's own error, or {@code null}
     */
    public DamagedMappingException(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Translates the JVM's own error for an access to a lost page.
     *
     * <p>The fast path of a lock touches memory that the caller has mapped, and so does the caller's own code behind
     * the lock. Where such a page is gone HotSpot throws an {@link InternalError}, for compiled code a few
     * instructions late and so perhaps in the caller's own method. A caller that wants one type for all of it wraps
     * its loop and hands such an error to this method.
     *
     * @param error the error that was caught
     * @return the exception to throw in its place
     * @throws InternalError the given error itself, if it speaks of something else
     */
    public static DamagedMappingException of(InternalError error) {
        if (error.getMessage() == null || !error.getMessage().contains(PAGE_FAULT)) {
            throw error;
        }
        return new DamagedMappingException(
                "a page of the mapping is gone; was the file truncated, or is the disk full? Use a fresh file", error);
    }
}
