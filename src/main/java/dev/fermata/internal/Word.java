// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.DamagedMappingException;
import dev.fermata.InvalidWordException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Objects;

/**
 * An aligned 32-bit word in native or mapped memory, with operations named by their ordering. The static operations do
 * the same, for 32 and 64 bits, at an offset of a segment: for the words of a lock file, whose places are known to be
 * in range and aligned.
 *
 * <p>The Java memory model does not speak of native memory. These operations rest on HotSpot, which compiles them to
 * the same instructions as for fields, and on the hardware.
 */
public final class Word {
    /** The only VarHandles on words. */
    private static final VarHandle INT = ValueLayout.JAVA_INT.varHandle();
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    /**
     * Whether this JVM compiles nothing (-Xint): then a look must precede every read-modify-write, here too. Nothing in
     * java.base tells of -XX:TieredStopAtLevel=0, which calls itself "mixed mode" (PROTOCOL.md, section 6).
     */
    public static final boolean INTERPRETED = System.getProperty("java.vm.info", "").contains("interpreted");

    /** The bytes of the scratch word: a 32-bit and a 64-bit one. */
    private static final int SCRATCH = 2 * Long.BYTES;

    /** Enough calls for HotSpot's first compiler: about 3 ms. See PROTOCOL.md, "Damaged mappings". */
    private static final int WARM_UP = 1000;

    static {
        MemorySegment mapped = scratch();
        Word scratch = new Word(mapped, 0);
        // The kind that lock files are made of.
        MemorySegment page = MemorySegment.ofAddress(mapped.address()).reinterpret(SCRATCH);
        for (int i = 0; i < WARM_UP; i++) {
            long old = loadLong(page, Long.BYTES);
            casLong(page, Long.BYTES, old, old + 1);
            storeLong(page, Long.BYTES, loadLongAcquire(page, Long.BYTES));
            storeLongRelease(page, Long.BYTES, loadLongPlain(page, Long.BYTES));
            storePlain(page, 0, loadPlain(page, 0));
            storeRelease(page, 0, loadRelaxed(page, 0));
            cas(page, 0, loadAcquire(page, 0), 1);
            swap(page, 0, 0);
            scratch.casAcquire(0, 1);
            scratch.casRelease(1, 2);
            scratch.swapAcquire(scratch.loadRelaxed() - 1);
            scratch.swapRelease(scratch.loadPlain() - 1);
            scratch.addRelaxed(1);
            scratch.storeRelaxed(scratch.loadAcquire() - 1);
        }
    }

    private final MemorySegment segment;
    private final long offset;

    /**
     * Memory to warm up on: of a mapped file, as nearly all words are. The profile that HotSpot gathers then knows one
     * kind of segment and not two, which is worth 6 % of an uncontended lock. For the static operations it is made from
     * an address, as the memory of lock files is: with two kinds there, each access makes two virtual calls, and a lock
     * takes three times as long.
     */
    private static MemorySegment scratch() {
        try {
            Path file = Files.createTempFile("fermata-", ".scratch");
            try (FileChannel channel = FileChannel.open(
                    file, StandardOpenOption.READ, StandardOpenOption.WRITE, StandardOpenOption.DELETE_ON_CLOSE)) {
                // Written, not extended by the mapping: a full disk is an exception here, and a SIGBUS later.
                channel.write(ByteBuffer.allocate(SCRATCH));
                return channel.map(FileChannel.MapMode.READ_WRITE, 0, SCRATCH, Arena.ofAuto());
            }
        } catch (IOException | UnsupportedOperationException noSuchFile) {
            return Arena.ofAuto().allocate(SCRATCH, Long.BYTES);
        }
    }

    private Word(MemorySegment segment, long offset) {
        this.segment = segment.asSlice(offset, Integer.BYTES);
        this.offset = offset;
    }

    /**
     * The word at an offset in bytes.
     *
     * @throws InvalidWordException if the place cannot hold one
     */
    public static Word at(MemorySegment segment, long offset) {
        Objects.requireNonNull(segment, "segment");
        if (!segment.isNative()) {
            throw new InvalidWordException(segment, offset,
                    "it is on the Java heap, where no other process sees it; map a file or allocate native memory");
        }
        if (segment.isReadOnly()) {
            throw new InvalidWordException(segment, offset,
                    "the segment is read-only, and taking a lock writes; map the file READ_WRITE");
        }
        if (offset < 0 || offset > segment.byteSize() - Integer.BYTES) {
            throw new InvalidWordException(segment, offset,
                    "out of range; 4 bytes must lie within the segment's " + segment.byteSize());
        }
        if ((segment.address() + offset) % Integer.BYTES != 0) {
            throw new InvalidWordException(segment, offset,
                    "misaligned; its address must be a multiple of 4, found remainder "
                            + (segment.address() + offset) % Integer.BYTES);
        }
        return new Word(segment, offset);
    }

    /** The four bytes of the word. */
    MemorySegment segment() {
        return segment;
    }

    /** Whether both are the same word of the same mapping. */
    public boolean isAt(Word other) {
        return segment.address() == other.segment.address();
    }

    /**
     * Only right beside a read-modify-write of the same thread, which is a full fence and keeps it in its place; never
     * in a loop, out of which the compiler may move it. One access all the same, as the word is aligned. An opaque load
     * there makes C2 check the segment anew for its neighbor, and doubles the cost of an uncontended lock.
     */
    public int loadPlain() {
        return (int) INT.get(segment, 0L);
    }

    public int loadRelaxed() {
        return (int) INT.getOpaque(segment, 0L);
    }

    public int loadAcquire() {
        return (int) INT.getAcquire(segment, 0L);
    }

    public void storeRelaxed(int value) {
        INT.setOpaque(segment, 0L, value);
    }

    /** Acquire. In fact a full fence: the one form that even HotSpot's first compiler makes one instruction of. */
    public boolean casAcquire(int expected, int value) {
        return cas(expected, value);
    }

    /** Release. In fact a full fence, as {@link #casAcquire}. */
    public boolean casRelease(int expected, int value) {
        return cas(expected, value);
    }

    private boolean cas(int expected, int value) {
        return INT.compareAndSet(segment, 0L, expected, value);
    }

    /** Acquire. In fact a full fence; HotSpot makes one instruction of it only in this form. */
    public int swapAcquire(int value) {
        return swap(value);
    }

    /** Release. In fact a full fence, as {@link #swapAcquire}. */
    public int swapRelease(int value) {
        return swap(value);
    }

    /** Acquire and release. */
    public int swap(int value) {
        return (int) INT.getAndSet(segment, 0L, value);
    }

    public int addRelaxed(int delta) {
        return (int) INT.getAndAdd(segment, 0L, delta);
    }

    // ---- the same at an offset of a segment ----

    /** As {@link #loadPlain()}: beside a read-modify-write only, or of what no other thread writes. */
    public static int loadPlain(MemorySegment segment, long offset) {
        return (int) INT.get(segment, offset);
    }

    public static int loadRelaxed(MemorySegment segment, long offset) {
        return (int) INT.getOpaque(segment, offset);
    }

    public static int loadAcquire(MemorySegment segment, long offset) {
        return (int) INT.getAcquire(segment, offset);
    }

    /** For words that only their owner writes. */
    public static void storePlain(MemorySegment segment, long offset, int value) {
        INT.set(segment, offset, value);
    }

    public static void storeRelease(MemorySegment segment, long offset, int value) {
        INT.setRelease(segment, offset, value);
    }

    /** A full fence. */
    public static boolean cas(MemorySegment segment, long offset, int expected, int value) {
        return INT.compareAndSet(segment, offset, expected, value);
    }

    /** A full fence. */
    public static int swap(MemorySegment segment, long offset, int value) {
        return (int) INT.getAndSet(segment, offset, value);
    }

    /** As {@link #loadPlain(MemorySegment, long)}. */
    public static long loadLongPlain(MemorySegment segment, long offset) {
        return (long) LONG.get(segment, offset);
    }

    /** Relaxed. */
    public static long loadLong(MemorySegment segment, long offset) {
        return (long) LONG.getOpaque(segment, offset);
    }

    public static long loadLongAcquire(MemorySegment segment, long offset) {
        return (long) LONG.getAcquire(segment, offset);
    }

    /** For words that only their owner writes. */
    public static void storeLong(MemorySegment segment, long offset, long value) {
        LONG.set(segment, offset, value);
    }

    public static void storeLongRelease(MemorySegment segment, long offset, long value) {
        LONG.setRelease(segment, offset, value);
    }

    /** A full fence. */
    public static boolean casLong(MemorySegment segment, long offset, long expected, long value) {
        return LONG.compareAndSet(segment, offset, expected, value);
    }

    /** The kernel or the JVM found that the page is gone. */
    public DamagedMappingException lost() {
        return new DamagedMappingException(
                ("the page of the word at offset %d is gone;"
                        + " was the file truncated, or is the disk full? Use a fresh file")
                        .formatted(offset),
                null);
    }

    /** The word holds a value that the protocol never writes. */
    public DamagedMappingException impossible(int found, String expected) {
        return new DamagedMappingException(
                ("the word at offset %d holds %d (0x%x); expected %s."
                        + " Something else writes there, or the file was damaged")
                        .formatted(offset, Integer.toUnsignedLong(found), found, expected),
                null);
    }

    @Override
    public String toString() {
        return "word at offset " + offset;
    }
}
