// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Participants insert at the same time: each a thread with a directory of its own over the same memory. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DirectoryTest {
    private static final int PARTICIPANTS = 3;
    private static final int NAMES = 4;

    private static Directory.Name name(int number) {
        return Directory.Name.of(("name" + number).getBytes(StandardCharsets.UTF_8));
    }

    private static Header header(long lines) {
        return new Header(0, PARTICIPANTS, NAMES + PARTICIPANTS, lines, 1, 2, 3);
    }

    /** As a file is when it is created. */
    private static MemorySegment memory(Arena arena, Header header) {
        MemorySegment memory = arena.allocate(header.fileSize(), 4096);
        header.writeTo(memory.asSlice(0, Layout.HEADER));
        memory.asSlice(header.index(), (long) header.indexLength() * Long.BYTES).fill((byte) Layout.VACANT);
        Word.storeLong(memory, header.end(), Layout.MAGIC);
        return MemorySegment.ofAddress(memory.address()).reinterpret(memory.byteSize());
    }

    private static int id(int participant) {
        return Layout.id(1, participant);
    }

    /** There are exactly as many lines as the names need, each one. */
    @Test
    void whoeverLosesARaceLeavesNothingMissing() throws Exception {
        Header header = header(NAMES);
        Random random = new Random(20_261_203);
        try (ExecutorService threads = Executors.newFixedThreadPool(PARTICIPANTS)) {
            for (int round = 0; round < 2000; round++) {
                try (Arena arena = Arena.ofShared()) {
                    MemorySegment memory = memory(arena, header);
                    CyclicBarrier start = new CyclicBarrier(PARTICIPANTS);
                    List<Future<List<Integer>>> results = new ArrayList<>();
                    for (int p = 0; p < PARTICIPANTS; p++) {
                        int me = id(p);
                        List<Integer> order = new ArrayList<>(List.of(0, 1, 2, 3));
                        Collections.shuffle(order, random);
                        results.add(threads.submit(() -> {
                            Directory directory = new Directory(memory, header);
                            Integer[] entries = new Integer[NAMES];
                            start.await();
                            for (int number : order) {
                                entries[number] = directory.insert(
                                        name(number), new Directory.Parameters(Layout.MUTEX, 0, 16, 0), me);
                            }
                            return List.of(entries);
                        }));
                    }
                    Set<List<Integer>> answers = new HashSet<>();
                    for (Future<List<Integer>> result : results) {
                        answers.add(result.get());
                    }
                    assertEquals(1, answers.size(), "round " + round);
                    assertEquals(NAMES, new Directory(memory, header).names().size());
                }
            }
        }
    }

    @Test
    void whatOneHasGivenBackIsTakenByAnother() throws Exception {
        Header header = header(2);
        try (Arena arena = Arena.ofShared()) {
            MemorySegment memory = memory(arena, header);
            // Participant 0 has an entry in hand, with one of the two lines, and gives it back.
            Word.storeLong(memory, Layout.H_HEAP, 1);
            Word.storePlain(memory, Layout.H_USED, 1);
            Word.storePlain(memory, header.entry(0) + Layout.E_REGION, 1);
            Word.storePlain(memory, header.entry(0) + Layout.E_REGION_LINES, 1);
            Directory directory = new Directory(memory, header);
            Directory.Parameters parameters = new Directory.Parameters(Layout.MUTEX, 0, 64, 0);
            assertEquals(1, directory.insert(name(0), parameters, id(1)));
            assertEquals(0, directory.insert(name(2), parameters, id(1)));
            Directory.FullException full = assertThrows(Directory.FullException.class,
                    () -> directory.insert(Directory.Name.of(new byte[] {'x'}), parameters, id(1)));
            assertEquals("of 2 lines of payload and long names 0 are left, 1 are needed", full.getMessage());
        }
    }

    @Test
    void anEntryInTheHandsOfAnotherIsWaitedFor() throws Exception {
        Header header = header(1);
        try (Arena arena = Arena.ofShared()) {
            MemorySegment memory = memory(arena, header);
            Word.storeLong(memory, Layout.H_HEAP, 1);
            Word.storePlain(memory, Layout.H_USED, 1);
            Word.storePlain(memory, header.entry(0) + Layout.E_REGION, 1);
            Word.storePlain(memory, header.entry(0) + Layout.E_REGION_LINES, 1);
            Word.storePlain(memory, header.entry(0) + Layout.E_INTENT, id(0));
            Directory directory = new Directory(memory, header);
            Directory.Parameters parameters = new Directory.Parameters(Layout.MUTEX, 0, 64, 0);
            FutureTask<Integer> waits = new FutureTask<>(() -> directory.insert(name(0), parameters, id(1)));
            Thread thread = Thread.ofPlatform().daemon().start(waits);
            while (thread.getState() != Thread.State.TIMED_WAITING) {
                Thread.onSpinWait();
            }
            Word.storeRelease(memory, header.entry(0) + Layout.E_INTENT, 0);
            assertEquals(0, waits.get());
            Word.storeRelease(memory, header.entry(1) + Layout.E_INTENT, id(0));
            long begin = System.nanoTime();
            assertThrows(Directory.FullException.class, () -> directory.insert(name(2), parameters, id(1)));
            assertTrue(System.nanoTime() - begin >= 900_000_000, "it was not waited for");
        }
    }
}
