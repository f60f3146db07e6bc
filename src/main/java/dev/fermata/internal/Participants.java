// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.Participant;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The participants' part of a lock file: the cells, and what processes say about themselves and their threads.
 *
 * <p>A cell is {generation, lifeline} in one 64-bit word; every change by a program is a compare-and-set of all of it
 * (model {@code participants.pml}). The rest is for people: nothing is decided from it but which free slot is
 * tried first.
 */
public final class Participants {
    /** The inode of this process's pid namespace, or 0 where it cannot be told. */
    public static final long OWN_PID_NAMESPACE = pidNamespace();

    private static final long OWN_START = startTicks("self");
    private static final int OWN_USER = Posix.SYSTEM.userId();

    private final MemorySegment memory;
    private final Header header;

    Participants(MemorySegment memory, Header header) {
        this.memory = memory;
        this.header = header;
    }

    int count() {
        return header.participants();
    }

    /** The cell of a slot. One that was overwritten must not be taken for a death, so that a living owner is robbed. */
    long cell(int slot) {
        long cell = Word.loadLongAcquire(memory, header.cell(slot));
        if (!Layout.isLifeline(Layout.lifeline(cell))) {
            throw Directory.damaged("the cell of slot %d holds 0x%016x".formatted(slot, cell),
                    "a lifeline of 0, 0xc0000000, or bit 31 and a thread");
        }
        return cell;
    }

    /** Looks first, as one who is giving up may come here with the page gone, and interpreted. */
    boolean cas(int slot, long expected, long value) {
        long at = header.cell(slot);
        return Word.loadLongAcquire(memory, at) == expected && Word.casLong(memory, at, expected, value);
    }

    /** All cells, read one after the other. */
    long[] scan() {
        long[] cells = new long[count()];
        for (int i = 0; i < cells.length; i++) {
            cells[i] = cell(i);
        }
        return cells;
    }

    /** The copy of a lifeline: the kernel wakes one sleeper on each, and so a waiter as soon as a guardian. */
    Word lifelineCopy(int slot) {
        return Word.at(memory, header.participant(slot) + Layout.P_LIFELINE_COPY);
    }

    /** The address of a lifeline, for the kernel: the low half of the cell. */
    long lifelineAddress(int slot) {
        return memory.address() + header.cell(slot);
    }

    // ---- for people ----

    private static long pidNamespace() {
        try {
            String link = Files.readSymbolicLink(Path.of("/proc/self/ns/pid")).toString();
            return Long.parseLong(link.substring(link.indexOf('[') + 1, link.indexOf(']')));
        } catch (IOException | RuntimeException hidden) {
            return 0;
        }
    }

    /** When a process was started, in clock ticks since the boot; 0 where it cannot be told. */
    public static long startTicks(String pid) {
        try {
            String stat = Files.readString(Path.of("/proc", pid, "stat"), StandardCharsets.ISO_8859_1);
            return Long.parseLong(stat.substring(stat.lastIndexOf(')') + 2).split(" ")[19]);
        } catch (IOException | RuntimeException hidden) {
            return 0;
        }
    }

    static boolean isThisProcess(Participant participant) {
        return participant.pid() == ProcessHandle.current().pid()
                && participant.pidNamespace() == OWN_PID_NAMESPACE && participant.startTicks() == OWN_START;
    }

    /** All slots, so that what is said of the dead is kept for as long as there are others. */
    int[] longestUnusedFirst() {
        long[] keys = new long[count()];
        for (int slot = 0; slot < keys.length; slot++) {
            keys[slot] = Word.loadLong(memory, header.participant(slot) + Layout.P_ATTACHED) << 8 | slot;
        }
        Arrays.sort(keys);
        int[] slots = new int[keys.length];
        for (int i = 0; i < slots.length; i++) {
            slots[i] = (int) keys[i] & 0xff;
        }
        return slots;
    }

    /** Writes what this process says about itself; the generation last, so that no half of it is believed. */
    void introduce(int slot, int generation, String label) {
        long at = header.participant(slot);
        Word.storeRelease(memory, at + Layout.P_GENERATION, 0);
        memory.asSlice(at + Layout.P_THREADS, Layout.THREADS * Layout.THREAD).fill((byte) 0);
        Word.storePlain(memory, at + Layout.P_PID, (int) ProcessHandle.current().pid());
        Word.storeLong(memory, at + Layout.P_PID_NAMESPACE, OWN_PID_NAMESPACE);
        Word.storeLong(memory, at + Layout.P_START, OWN_START);
        Word.storeLong(memory, at + Layout.P_ATTACHED, System.currentTimeMillis());
        Word.storePlain(memory, at + Layout.P_UID, OWN_USER);
        Word.storePlain(memory, at + Layout.P_LANGUAGE, Layout.JAVA);
        store(at + Layout.P_LABEL, Layout.P_LABEL_SIZE, label);
        Word.storeRelease(memory, at + Layout.P_GENERATION, generation);
    }

    /** Stores text, cut to the size and padded with zeros. */
    void store(long at, int size, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < size; i += Long.BYTES) {
            long word = 0;
            for (int k = 0; k < Long.BYTES && i + k < bytes.length; k++) {
                word |= (bytes[i + k] & 0xffL) << 8 * k;
            }
            Word.storeLong(memory, at + i, word);
        }
    }

    static String loadText(MemorySegment memory, long at, int size) {
        byte[] bytes = new byte[size];
        int length = 0;
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) (Word.loadLong(memory, at + (i & ~7)) >>> 8 * (i & 7));
            length = bytes[i] == 0 ? length : i + 1;
        }
        return new String(bytes, 0, length, StandardCharsets.UTF_8);
    }

    /** Says that a thread of the participant has that name. Two threads may share a row; the later one has it. */
    void nameThread(int slot, long thread, String name) {
        long row = row(slot, thread);
        Word.storeLong(memory, row + Layout.T_ID, 0);
        Word.storeLong(memory, row + Layout.T_ENDED, 0);
        store(row + Layout.T_NAME, Layout.T_NAME_SIZE, name);
        Word.storeLongRelease(memory, row + Layout.T_ID, thread);
    }

    void threadEnded(int slot, long thread) {
        long row = row(slot, thread);
        if (Word.loadLongAcquire(memory, row + Layout.T_ID) == thread) {
            Word.storeLong(memory, row + Layout.T_ENDED, 1);
        }
    }

    private long row(int slot, long thread) {
        return header.participant(slot) + Layout.P_THREADS + (thread & Layout.THREADS - 1) * Layout.THREAD;
    }

    /** What is known of a thread: "thread 27 main", "thread 27 main, which has ended". */
    public String describeThread(int slot, long thread) {
        long row = row(slot, thread);
        if ((Word.loadLongAcquire(memory, row + Layout.T_ID) & 0xffff_ffffL) != thread) {
            return "thread " + thread;
        }
        String ended = Word.loadLong(memory, row + Layout.T_ENDED) == 1 ? ", which has ended" : "";
        String name = Printable.of(loadText(memory, row + Layout.T_NAME, Layout.T_NAME_SIZE));
        return "thread " + thread + " \"" + name + "\"" + ended;
    }

    /** Who has, or had, that id. What is left of a slot that was taken again says no more than that it is dead. */
    public Participant describe(int id) {
        int slot = Layout.slot(id);
        long cell = cell(slot);
        boolean alive = Layout.isAlive(id, cell);
        long at = header.participant(slot);
        int generation = Word.loadAcquire(memory, at + Layout.P_GENERATION);
        if (Layout.id(generation, slot) != id) {
            return new Participant(id, slot, 0, OWN_PID_NAMESPACE, 0, 0, "unknown", "", Instant.EPOCH, alive);
        }
        String language = switch (Word.loadRelaxed(memory, at + Layout.P_LANGUAGE)) {
            case 1 -> "Java";
            case 2 -> "C";
            case 3 -> "Rust";
            default -> "unknown";
        };
        return new Participant(id, slot, Word.loadRelaxed(memory, at + Layout.P_PID),
                Word.loadLong(memory, at + Layout.P_PID_NAMESPACE), Word.loadLong(memory, at + Layout.P_START),
                Word.loadRelaxed(memory, at + Layout.P_UID), language,
                loadText(memory, at + Layout.P_LABEL, Layout.P_LABEL_SIZE),
                Instant.ofEpochMilli(Word.loadLong(memory, at + Layout.P_ATTACHED)), alive);
    }

    /** Everybody whose slot is taken. */
    public List<Participant> list() {
        List<Participant> present = new ArrayList<>();
        for (int slot = 0; slot < count(); slot++) {
            long cell = cell(slot);
            if (Layout.lifeline(cell) != 0) {
                present.add(describe(Layout.id(Layout.generation(cell), slot)));
            }
        }
        return present;
    }
}
