// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.SharedMutex;
import dev.fermata.word.AtomicFlag;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;

/** The record that the peers share: PROTOCOL.md, section 7. */
public final class DemoRecord {
    public static final long LOCK_WORD = 0;
    public static final long SLOW_PATH_COUNTER = 4;
    public static final long OWNER_WORD = 8;
    public static final long MODE = 12;
    public static final long SLOTS_USED = 16;
    public static final long GATE = 20;
    public static final long COUNTER = 64;
    public static final long OWNER_SLOT = 72;
    public static final long SLOT = 128;
    public static final long SLOT_SIZE = 64;
    public static final int SLOTS = 62;
    public static final long SIZE = 4096;
    public static final long ALIGNMENT = 64;

    private static final VarHandle INT = JAVA_INT.varHandle();
    private static final VarHandle LONG = JAVA_LONG.varHandle();

    /** What the lock word is; or {@link #NAMED}: the lock is the named mutex whose payload the record is. */
    public enum Mode {
        MUTEX, SPIN, RW, NAMED;

        /** Those of a lock word, which all languages know. */
        public static final Set<Mode> OF_A_WORD = Collections.unmodifiableSet(EnumSet.range(MUTEX, RW));

        int code() {
            return ordinal() + 1;
        }

        @Override
        public String toString() {
            return name().toLowerCase();
        }
    }

    /** What a peer is written in. */
    public enum Language {
        JAVA, C, RUST;

        int code() {
            return ordinal() + 1;
        }

        @Override
        public String toString() {
            return name().toLowerCase();
        }
    }

    /** Where a peer's thread stands. */
    public enum State {
        UNUSED, AT_GATE, RUNNING, DONE, FAILED
    }

    /** The caller's arguments do not fit the file, or the file is not what the caller says. */
    public static final class UnsuitableException extends IllegalArgumentException {
        private static final long serialVersionUID = 1L;

        UnsuitableException(String message) {
            super(message);
        }
    }

    private final MemorySegment memory;

    private DemoRecord(MemorySegment memory) {
        this.memory = memory;
    }

    /** Maps the record at an offset of an existing file. */
    public static DemoRecord map(Path file, long offset, Arena arena) throws IOException {
        if (offset < 0 || offset % ALIGNMENT != 0) {
            throw new UnsuitableException("OFFSET is " + offset + "; expected a multiple of " + ALIGNMENT);
        }
        try (FileChannel channel =
                FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            if (channel.size() - SIZE < offset) { // the mapping itself would extend the file
                throw new UnsuitableException(
                        "%s has %d bytes; expected at least %d, for a record of %d at offset %d; make it longer"
                                .formatted(file, channel.size(), offset + SIZE, SIZE, offset));
            }
            return new DemoRecord(channel.map(MapMode.READ_WRITE, offset, SIZE, arena));
        }
    }

    /** The record that a named mutex protects. */
    public static DemoRecord of(SharedMutex mutex) {
        MemorySegment payload = mutex.payload();
        if (payload.byteSize() != SIZE) {
            throw new UnsuitableException("lock \"%s\" has %d bytes of payload; expected a record of %d"
                    .formatted(mutex.name(), payload.byteSize(), SIZE));
        }
        return new DemoRecord(payload);
    }

    public MemorySegment memory() {
        return memory;
    }

    public AtomicFlag gate() {
        return AtomicFlag.at(memory, GATE);
    }

    /** Says what the lock word is, unless another peer has said something else. */
    public void setMode(Mode mode) {
        int found = (int) INT.compareAndExchange(memory, MODE, 0, mode.code());
        if (found != 0 && found != mode.code()) {
            throw new UnsuitableException("the record is in mode %d; this peer was asked for %s, which is %d"
                    .formatted(found, mode, mode.code()));
        }
    }

    /** Claims a slot for a thread of this process. */
    public Slot claimSlot(Language language) {
        int index = (int) INT.getAndAdd(memory, SLOTS_USED, 1);
        if (index < 0 || index >= SLOTS) {
            throw new UnsuitableException("all " + SLOTS + " slots of the record are used; start with a fresh file");
        }
        Slot slot = slot(index);
        slot.set(0, (int) ProcessHandle.current().pid());
        slot.set(4, language.code());
        slot.setState(State.AT_GATE);
        return slot;
    }

    public int slotsLeft() {
        return Math.max(0, SLOTS - slotsUsed());
    }

    public int slotsUsed() {
        return (int) INT.getOpaque(memory, SLOTS_USED);
    }

    public Slot slot(int index) {
        return new Slot(index);
    }

    /** The counter behind the lock: a plain read. */
    public long counter() {
        return memory.get(JAVA_LONG, COUNTER);
    }

    /** The counter behind the lock: a plain write. */
    public void setCounter(long value) {
        memory.set(JAVA_LONG, COUNTER, value);
    }

    /** Who is inside: a plain read. */
    public long ownerSlot() {
        return memory.get(JAVA_LONG, OWNER_SLOT);
    }

    /** Who is inside: a plain write. */
    public void setOwnerSlot(long value) {
        memory.set(JAVA_LONG, OWNER_SLOT, value);
    }

    public long slowPaths() {
        return Integer.toUnsignedLong((int) INT.getOpaque(memory, SLOW_PATH_COUNTER));
    }

    /** One thread's line of the record: written by that thread, read by anybody. */
    public final class Slot {
        private final long at;
        private final long ownerId;

        private Slot(int index) {
            this.at = SLOT + index * SLOT_SIZE;
            // From the process, not from the record: an int that is loaded there must not be widened on the spot
            // (PROTOCOL.md, section 6).
            this.ownerId = ProcessHandle.current().pid() << 32 | index + 1;
        }

        /** What the thread of this process that claimed the slot writes into the owner slot. */
        public long ownerId() {
            return ownerId;
        }

        public int pid() {
            return (int) INT.getOpaque(memory, at);
        }

        public State state() {
            return State.values()[(int) INT.getOpaque(memory, at + 8)];
        }

        public void setState(State state) {
            set(8, state.ordinal());
        }

        public long acquisitions() {
            return (long) LONG.getOpaque(memory, at + 16);
        }

        public long contended() {
            return (long) LONG.getOpaque(memory, at + 24);
        }

        public long mismatches() {
            return (long) LONG.getOpaque(memory, at + 32);
        }

        public void report(long acquisitions, long contended, long mismatches) {
            LONG.setOpaque(memory, at + 16, acquisitions);
            LONG.setOpaque(memory, at + 24, contended);
            LONG.setOpaque(memory, at + 32, mismatches);
        }

        private void set(long field, int value) {
            INT.setOpaque(memory, at + field, value);
        }
    }
}
