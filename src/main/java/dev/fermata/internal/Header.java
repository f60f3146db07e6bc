// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import dev.fermata.LockFileException;
import dev.fermata.LockFileException.Reason;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/**
 * The constant part of a lock file's header. All places follow from four numbers; a header that says anything else is
 * refused.
 */
public record Header(long features, int participants, int entries, long regionLines, long fileIdHigh, long fileIdLow,
        long created) {
    private static final ValueLayout.OfInt INT = JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfLong LONG = JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final int MAX_ENTRIES = 1 << 27;
    private static final long MAX_REGION_LINES = 0x7fff_fffeL;

    public boolean isSymmetric() {
        return (features & Layout.SYMMETRIC) != 0;
    }

    /** How many locks the file can hold; further entries are in the hands of those who insert. */
    public int capacity() {
        return entries - participants;
    }

    public long participant(int slot) {
        return Layout.HEADER + (long) slot * Layout.PARTICIPANT;
    }

    public long cell(int slot) {
        return participant(slot) + Layout.P_CELL;
    }

    public long index() {
        return participant(participants);
    }

    public int indexLength() {
        return Layout.indexLength(entries);
    }

    public long entriesStart() {
        // A power of two of 64-bit words may be less than a line.
        return index() + Layout.lines((long) indexLength() * Long.BYTES) * Layout.LINE;
    }

    public long entry(int number) {
        return entriesStart() + (long) number * Layout.ENTRY;
    }

    public long region() {
        return entry(entries);
    }

    public long line(long number) {
        return region() + number * Layout.LINE;
    }

    public long fileSize() {
        return line(regionLines) + Long.BYTES + 4095 & ~4095L;
    }

    /** The last word of the file, which is the magic again: lost by any truncation. */
    public long end() {
        return fileSize() - Long.BYTES;
    }

    /** Writes it and what else the header's page begins with. */
    public void writeTo(MemorySegment page) {
        page.fill((byte) 0);
        page.set(LONG, Layout.H_MAGIC, Layout.MAGIC);
        page.set(INT, Layout.H_BYTE_ORDER, Layout.BYTE_ORDER_MARK);
        page.set(INT, Layout.H_VERSION, Layout.MAJOR | Layout.MINOR << 16);
        page.set(LONG, Layout.H_FEATURES, features);
        page.set(LONG, Layout.H_FILE_SIZE, fileSize());
        page.set(LONG, Layout.H_PARTICIPANTS, participant(0));
        page.set(INT, Layout.H_PARTICIPANT_COUNT, participants);
        page.set(INT, Layout.H_PARTICIPANT_STRIDE, Layout.PARTICIPANT);
        page.set(LONG, Layout.H_INDEX, index());
        page.set(LONG, Layout.H_INDEX_LENGTH, indexLength());
        page.set(LONG, Layout.H_ENTRIES, entriesStart());
        page.set(INT, Layout.H_ENTRY_COUNT, entries);
        page.set(INT, Layout.H_ENTRY_STRIDE, Layout.ENTRY);
        page.set(LONG, Layout.H_REGION, region());
        page.set(LONG, Layout.H_REGION_LINES, regionLines);
        page.set(LONG, Layout.H_FILE_ID, fileIdHigh);
        page.set(LONG, Layout.H_FILE_ID + 8, fileIdLow);
        page.set(LONG, Layout.H_CREATED, created);
        page.set(INT, Layout.H_CHECKSUM, checksum(page));
    }

    private static int checksum(MemorySegment page) {
        CRC32C crc = new CRC32C();
        crc.update(page.asSlice(0, Layout.H_CHECKSUM).toArray(ValueLayout.JAVA_BYTE));
        return (int) crc.getValue();
    }

    /** Reads it from the first page of a file, and refuses what it does not understand. Changes nothing. */
    public static Header read(MemorySegment page, long fileSize, Path path) throws LockFileException {
        long magic = page.get(LONG, Layout.H_MAGIC);
        if (magic != Layout.MAGIC) {
            boolean swapped = magic == Long.reverseBytes(Layout.MAGIC);
            throw new LockFileException(swapped ? Reason.UNSUPPORTED_FORMAT : Reason.NOT_A_LOCK_FILE, path,
                    "it begins with 0x%016x".formatted(Long.reverseBytes(magic)),
                    "a lock file begins with 0x%016x. Choose another path".formatted(
                            Long.reverseBytes(Layout.MAGIC)));
        }
        int mark = page.get(INT, Layout.H_BYTE_ORDER);
        require(mark == Layout.BYTE_ORDER_MARK, Reason.UNSUPPORTED_FORMAT, path, "its byte-order mark is 0x%08x"
                .formatted(mark), "expected 0x%08x, little-endian".formatted(Layout.BYTE_ORDER_MARK));
        int version = page.get(INT, Layout.H_VERSION);
        require((version & 0xffff) == Layout.MAJOR, Reason.UNSUPPORTED_FORMAT, path,
                "its format is %d.%d".formatted(version & 0xffff, version >>> 16),
                "this is a library for format %d.x. Use the library that created it, or delete the file while nobody"
                        .formatted(Layout.MAJOR) + " uses it");
        int checksum = page.get(INT, Layout.H_CHECKSUM);
        require(checksum == checksum(page), Reason.DAMAGED, path, "its header's checksum is 0x%08x".formatted(checksum),
                "the header's bytes give 0x%08x. Delete the file while nobody uses it".formatted(checksum(page)));
        long features = page.get(LONG, Layout.H_FEATURES);
        require((features & ~Layout.SYMMETRIC) == 0, Reason.UNSUPPORTED_FORMAT, path,
                "it needs features 0x%x".formatted(features),
                "known here are 0x%x. Use a newer library".formatted(Layout.SYMMETRIC));
        int participants = page.get(INT, Layout.H_PARTICIPANT_COUNT);
        int entries = page.get(INT, Layout.H_ENTRY_COUNT);
        long lines = page.get(LONG, Layout.H_REGION_LINES);
        require(participants >= 1 && participants <= Layout.MAX_PARTICIPANTS && entries > participants
                && entries <= MAX_ENTRIES && lines >= 0 && lines <= MAX_REGION_LINES, Reason.DAMAGED, path,
                "it claims %d participants, %d entries, %d lines of payload".formatted(participants, entries, lines),
                "expected 1 to %d, more than participants, and 0 to %d".formatted(
                        Layout.MAX_PARTICIPANTS, MAX_REGION_LINES));
        Header header = new Header(features, participants, entries, lines, page.get(LONG, Layout.H_FILE_ID),
                page.get(LONG, Layout.H_FILE_ID + 8), page.get(LONG, Layout.H_CREATED));
        header.requirePlace(page, path, "file size", Layout.H_FILE_SIZE, header.fileSize());
        header.requirePlace(page, path, "participants' offset", Layout.H_PARTICIPANTS, header.participant(0));
        header.requirePlace(page, path, "participants and their stride", Layout.H_PARTICIPANT_COUNT,
                participants | (long) Layout.PARTICIPANT << 32);
        header.requirePlace(page, path, "index's offset", Layout.H_INDEX, header.index());
        header.requirePlace(page, path, "index's length", Layout.H_INDEX_LENGTH, header.indexLength());
        header.requirePlace(page, path, "entries' offset", Layout.H_ENTRIES, header.entriesStart());
        header.requirePlace(page, path, "entries and their stride", Layout.H_ENTRY_COUNT,
                entries | (long) Layout.ENTRY << 32);
        header.requirePlace(page, path, "region's offset", Layout.H_REGION, header.region());
        require(fileSize == header.fileSize(), Reason.DAMAGED, path, "it has %d bytes".formatted(fileSize),
                "its header says %d. It was truncated or extended; delete it while nobody uses it".formatted(
                        header.fileSize()));
        return header;
    }

    private void requirePlace(MemorySegment page, Path path, String what, long offset, long expected)
            throws LockFileException {
        long found = page.get(LONG, offset);
        require(found == expected, Reason.DAMAGED, path, "the %s is %d".formatted(what, found),
                "expected %d. Delete the file while nobody uses it".formatted(expected));
    }

    private static void require(boolean condition, Reason reason, Path path, String found, String mend)
            throws LockFileException {
        if (!condition) {
            throw new LockFileException(reason, path, found, mend);
        }
    }

    /** A header for a new file; the sizes have been checked. */
    public static Header create(int participants, int capacity, long payload, boolean symmetric,
            java.util.random.RandomGenerator random) {
        return new Header(symmetric ? Layout.SYMMETRIC : 0, participants, capacity + participants,
                Layout.lines(payload), random.nextLong(), random.nextLong(), System.currentTimeMillis());
    }

    /** The largest capacity. */
    public static int maxCapacity() {
        return MAX_ENTRIES - Layout.MAX_PARTICIPANTS;
    }

    /** The largest payload of all locks together, in bytes. */
    public static long maxPayload() {
        return MAX_REGION_LINES * Layout.LINE;
    }
}
