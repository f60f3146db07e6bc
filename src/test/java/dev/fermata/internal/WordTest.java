// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertThrowsExactly;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.DamagedMappingException;
import dev.fermata.InvalidWordException;
import dev.fermata.testing.ChildJvm;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class WordTest {
    private static final int SIZE = 16;

    private Arena arena;
    private MemorySegment segment;

    @BeforeEach
    void allocate() {
        arena = Arena.ofConfined();
        segment = arena.allocate(SIZE, 8).fill((byte) 0x5a);
    }

    @AfterEach
    void free() {
        arena.close();
    }

    /** The first use of a word in a JVM. */
    public static final class FirstUse {
        private FirstUse() {
        }

        public static void main(String[] arguments) {
            try (Arena arena = Arena.ofConfined()) {
                Word word = Word.at(arena.allocate(ValueLayout.JAVA_INT), 0);
                System.out.println(word.casAcquire(0, 1) ? "taken" : "not taken");
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"-Xmixed", "-Xint"})
    void aFullTemporaryDirectoryDoesNotMatter(String mode) throws Exception {
        assumeTrue(ProcessHandle.current().info().user().orElse("").equals("root"), "only root can mount a tmpfs");
        Path directory = Files.createTempDirectory("fermata-test-");
        try { // a mount of its own, which ends with the child
            ChildJvm.End end = ChildJvm.runUnder(List.of("unshare", "-m", "sh", "-c",
                    "mount -t tmpfs -o size=64k none \"$0\" && ! dd if=/dev/zero of=\"$0/fill\" bs=4k 2> /dev/null"
                            + " && exec \"$@\"", directory.toString()),
                    FirstUse.class, List.of(ChildJvm.NATIVE_ACCESS, mode, "-Djava.io.tmpdir=" + directory));
            assertEquals("taken", end.output());
            assertEquals(0, end.code());
        } finally {
            Files.delete(directory);
        }
    }

    private static void assertRefused(MemorySegment segment, long offset, String reason) {
        byte[] before = segment.toArray(ValueLayout.JAVA_BYTE);
        InvalidWordException e = assertThrows(InvalidWordException.class, () -> Word.at(segment, offset));
        assertEquals(offset, e.offset());
        assertTrue(e.getMessage().contains("offset " + offset + " "), e.getMessage());
        assertTrue(e.getMessage().contains(reason), e.getMessage());
        assertArrayEquals(before, segment.toArray(ValueLayout.JAVA_BYTE));
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 5, SIZE - 5})
    void aMisalignedWordIsRefused(long offset) {
        assertRefused(segment, offset, "misaligned; its address must be a multiple of 4");
    }

    @Test
    void theAddressCountsForTheAlignmentAndNotTheOffset() {
        MemorySegment odd = segment.asSlice(1);
        assertRefused(odd, 0, "misaligned");
        assertEquals(0x5a5a5a5a, Word.at(odd, 3).loadRelaxed());
    }

    @ParameterizedTest
    @ValueSource(longs = {
        -1, -4, Integer.MIN_VALUE, Long.MIN_VALUE, Long.MIN_VALUE + 4,
        SIZE - 3, SIZE, SIZE + 4, 1L << 32, Long.MAX_VALUE - 3, Long.MAX_VALUE
    })
    void aWordThatIsOutOfRangeIsRefused(long offset) {
        assertRefused(segment, offset, "out of range");
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 3})
    void aSegmentThatIsTooShortIsRefused(int size) {
        assertRefused(segment.asSlice(0, size), 0, "out of range");
    }

    @Test
    void theNullAddressIsRefused() {
        assertRefused(MemorySegment.NULL, 0, "out of range");
    }

    @Test
    void aReadOnlySegmentIsRefused() {
        assertRefused(segment.asReadOnly(), 0, "read-only");
    }

    @Test
    void memoryOnTheHeapIsRefused() {
        assertRefused(MemorySegment.ofArray(new byte[SIZE]), 0, "heap");
        assertRefused(MemorySegment.ofArray(new int[SIZE]), 0, "heap");
        assertRefused(MemorySegment.ofBuffer(ByteBuffer.allocate(SIZE)), 0, "heap");
    }

    @Test
    void noSegmentIsRefused() {
        assertEquals("segment", assertThrows(NullPointerException.class, () -> Word.at(null, 0)).getMessage());
    }

    @ParameterizedTest
    @ValueSource(longs = {0, 4, SIZE - 4})
    void everyAlignedPlaceHoldsAWordAndNothingIsWritten(long offset) {
        byte[] before = segment.toArray(ValueLayout.JAVA_BYTE);
        assertEquals(0x5a5a5a5a, Word.at(segment, offset).loadAcquire());
        assertArrayEquals(before, segment.toArray(ValueLayout.JAVA_BYTE));
    }

    @Test
    void everyOperationTouchesItsFourBytesOnly() {
        Word word = Word.at(segment, 4);
        word.storeRelaxed(7);
        assertEquals(7, word.loadRelaxed());
        assertFalse(word.casAcquire(6, 8));
        assertEquals(7, word.loadAcquire());
        assertTrue(word.casAcquire(7, 8));
        assertFalse(word.casRelease(7, 9));
        assertTrue(word.casRelease(8, 9));
        assertEquals(9, word.swap(10));
        assertEquals(10, word.swapAcquire(11));
        assertEquals(11, word.swapRelease(-1));
        assertEquals(-1, word.addRelaxed(2));
        assertEquals(1, segment.get(ValueLayout.JAVA_INT, 4));
        assertEquals(0x5a5a5a5a, segment.get(ValueLayout.JAVA_INT, 0));
        assertEquals(0x5a5a5a5a, segment.get(ValueLayout.JAVA_INT, 8));
    }

    @Test
    void wordsAreTheSameIfTheirAddressesAre() {
        assertTrue(Word.at(segment, 4).isAt(Word.at(segment.asSlice(4), 0)));
        assertFalse(Word.at(segment, 4).isAt(Word.at(segment, 0)));
    }

    @Test
    void anImpossibleValueIsNamedWithWhatWasExpected() {
        String message = Word.at(segment, 8).impossible(-2, "0 or 1").getMessage();
        assertTrue(message.contains("offset 8 holds 4294967294 (0xfffffffe); expected 0 or 1"), message);
    }

    @Test
    void everyUseAfterTheEndOfTheArenaIsRefused() {
        Arena other = Arena.ofConfined();
        Word word = Word.at(other.allocate(4, 4), 0);
        other.close();
        assertThrowsExactly(IllegalStateException.class, word::loadRelaxed);
        assertThrowsExactly(IllegalStateException.class, () -> word.casAcquire(0, 1));
    }

    @Test
    void onlyThePageFaultOfTheJvmIsTakenForADamagedMapping() {
        InternalError fault = new InternalError("a fault occurred in an unsafe memory access operation");
        assertEquals(fault, DamagedMappingException.of(fault).getCause());
        InternalError other = new InternalError("something else");
        assertEquals(other, assertThrows(InternalError.class, () -> DamagedMappingException.of(other)));
        assertThrows(InternalError.class, () -> DamagedMappingException.of(new InternalError()));
    }
}
