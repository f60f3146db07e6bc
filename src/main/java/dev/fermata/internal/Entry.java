// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.DamagedMappingException;
import java.lang.foreign.MemorySegment;
import java.util.function.Supplier;

/** One entry of a lock file, as the lock in it sees it: its words, and what can go wrong with them. */
public final class Entry {
    public final Attachment attachment;
    public final int number;
    public final String name;
    /** The 128 bytes of the entry. */
    public final MemorySegment words;
    /** The lines of the region that belong to it, perhaps none. */
    public final MemorySegment own;

    public Entry(Attachment attachment, int number, String name) {
        this.attachment = attachment;
        this.number = number;
        this.name = name;
        this.words = attachment.memory.asSlice(attachment.entryOffset(number), Layout.ENTRY);
        this.own = attachment.own(number);
    }

    /** The eventcount, or {@code null} where the file is open for reading only. */
    public Word events() {
        return words.isReadOnly() ? null : Word.at(words, Layout.E_EVENTS);
    }

    /** The second one, likewise. */
    public Word secondEvents() {
        return own.isReadOnly() ? null : Word.at(own, Layout.O_EVENTS);
    }

    /** What it was made with. */
    public long parameter() {
        return attachment.parameter(number);
    }

    /** This participant's id, for as long as the file can be used. */
    public int me() {
        int id = attachment.id;
        if (id == 0) {
            attachment.check();
        }
        return id;
    }

    /** Throws where the file cannot be used any more. */
    public void check() {
        if (attachment.id == 0) {
            attachment.check();
        }
    }

    /** Whether a participant is dead, by its cell as it is now. */
    public boolean isDead(int id) {
        return attachment.isDead(id);
    }

    /** Repairs what the dead have left in it; whether anything was changed. */
    public boolean repair() {
        return attachment.repair(number);
    }

    /** Who an id stands for, for people. */
    public String describe(int id) {
        return attachment.isValidId(id) ? attachment.participants().describe(id).toString() : "nobody";
    }

    /** Runs what looks into the file and may change it, and translates what can go wrong there. */
    public <T> T guarded(Supplier<T> action) {
        return attachment.guarded(action);
    }

    /** What to throw for what went wrong in a look: that the file is damaged or was closed, or the failure itself. */
    public RuntimeException failure(Throwable found) {
        return switch (found) {
            case InternalError e -> attachment.damaged(DamagedMappingException.of(e));
            case IllegalStateException e -> attachment.translated(e);
            case RuntimeException e -> e;
            default -> new IllegalStateException("waiting for " + this + " ended with " + found, found);
        };
    }

    /** The word at an offset holds what the protocol never writes: the file is damaged. */
    public DamagedMappingException impossible(long offset, long found, String expected) {
        return attachment.damaged(Directory.damaged("lock \"%s\": the word at offset %d of its entry holds 0x%x".formatted(
                Printable.of(name), offset, found), expected));
    }

    @Override
    public String toString() {
        return "\"%s\" of %s".formatted(Printable.of(name), Printable.of(attachment.path()));
    }
}
