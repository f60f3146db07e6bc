// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import java.lang.foreign.MemorySegment;

/**
 * The place given for a word cannot hold one: it is misaligned, out of the segment's range, read-only or on the heap.
 *
 * <p>Nothing has been read or written.
 */
public final class InvalidWordException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    /** In bytes from the start of the segment. */
    private final long offset;

    /**
     * Creates the exception.
     *
     * @param segment the segment that was given
     * @param offset the offset in bytes that was given
     * @param reason what is wrong and how to mend it, as the end of a sentence
     */
    public InvalidWordException(MemorySegment segment, long offset, String reason) {
        super("no word at offset %d of %s: %s".formatted(offset, segment, reason));
        this.offset = offset;
    }

    /**
     * The offset that was refused.
     *
     * @return the offset in bytes from the start of the segment
     */
    public long offset() {
        return offset;
    }
}
