// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.foreign.MemorySegment;

/**
 * Repairs what the dead have left in the entries (PROTOCOL.md, section 11; models {@code participants.pml} and
 * {@code shared_mutex.pml}). Nothing but compare-and-sets on whole ids: any number of survivors may do it at a time, any
 * of them may die in it, and it waits for nobody.
 *
 * <p>The cells that say who is dead were read <em>before</em> the barrier, and only they count.
 */
public final class Recovery {
    private final MemorySegment memory;
    private final Header header;
    private final Directory directory;
    private final Futex futex;

    Recovery(MemorySegment memory, Header header, Directory directory, Futex futex) {
        this.memory = memory;
        this.header = header;
        this.directory = directory;
        this.futex = futex;
    }

    private static final Repair[] REPAIRS = new Repair[256]; // by type; filled before the first file is open

    /** Who is to be taken for dead. */
    public interface Dead {
        boolean test(int id);

        /** Those that are dead by cells that were read before the barrier. */
        static Dead by(long[] cells) {
            return id -> Layout.isValidId(id, cells.length) && isDead(id, cells[Layout.slot(id)]);
        }

        private static boolean isDead(int id, long cell) {
            requirePlausible(id, cell);
            return Layout.isDead(id, cell);
        }
    }

    /**
     * What the dead have left in an entry of one type, beside an owner word. Compare-and-sets of what holds a dead one's
     * whole id; any number of survivors do it at a time, and the next does it again.
     */
    public interface Repair {
        /** Whether anything was changed. */
        boolean repair(MemorySegment words, MemorySegment own, Dead dead);
    }

    /** Says how entries of a type are repaired. */
    public static void register(int type, Repair repair) {
        REPAIRS[type] = repair;
    }

    /** A cell whose generation was overwritten must not be taken for the death of those before. */
    static void requirePlausible(int id, long cell) {
        if (Layout.age(id, cell) > Layout.MAX_AGE) {
            throw Directory.damaged("0x%x is of generation %d, and its cell holds 0x%016x".formatted(id, id >>> 8, cell),
                    "at most %d generations in between".formatted(Layout.MAX_AGE));
        }
    }

    /** Repairs every entry that was ever taken, and the one that may just have been. */
    void sweep(Dead dead) {
        int used = Word.loadAcquire(memory, Layout.H_USED);
        int last = used < 0 || used >= header.entries() ? header.entries() - 1 : used;
        for (int number = 0; number <= last; number++) {
            repair(number, dead);
        }
    }

    void repair(int number, Dead dead) {
        long entry = header.entry(number);
        int intent = Word.loadAcquire(memory, entry + Layout.E_INTENT);
        int type = intent == 0 || Layout.isType(intent) ? intent : finish(number, entry, intent, dead);
        if (type == 0) {
            return;
        }
        repairAs(type, number, dead);
        wake(entry + Layout.E_EVENTS);
        if (Layout.hasSecondEvents(type)) {
            wake(directory.ownOffset(number) + Layout.O_EVENTS);
        }
    }

    /** What the dead have left in an entry that somebody uses; whether anything was changed. */
    boolean repairFor(int number, Dead dead) {
        return repairAs(Layout.type(directory.kind(number)), number, dead);
    }

    private boolean repairAs(int type, int number, Dead dead) {
        long entry = header.entry(number);
        boolean changed = Layout.hasOwner(type) && repairLock(memory, entry, dead);
        Repair repair = REPAIRS[type];
        return repair != null && repair.repair(memory.asSlice(entry, Layout.ENTRY), directory.own(number), dead) || changed;
    }

    /** An entry that is being inserted, or whose intent was overwritten: what type it is if it can be in use, else 0. */
    private int finish(int number, long entry, int intent, Dead dead) {
        int type = directory.isPublished(number) ? Layout.type(directory.kind(number)) : 0;
        if (dead.test(intent)) {
            Word.cas(memory, entry + Layout.E_INTENT, intent, type);
            Failpoint.after("recover: intent");
        }
        return type;
    }

    /** The lock of one entry, by whoever has had the barrier: heir first. Returns whether anything was changed. */
    static boolean repairLock(MemorySegment memory, long entry, Dead dead) {
        int heir = Word.loadAcquire(memory, entry + Layout.E_HEIR);
        boolean changed = heir != 0 && dead.test(heir) && Word.cas(memory, entry + Layout.E_HEIR, heir, 0);
        Failpoint.after("recover: heir");
        int owner = Word.loadAcquire(memory, entry + Layout.E_OWNER);
        if (Layout.isReserved(owner)) {
            int reservedFor = Layout.reservedFor(owner);
            if (dead.test(reservedFor) || Word.loadAcquire(memory, entry + Layout.E_HEIR) != reservedFor) {
                changed |= Word.cas(memory, entry + Layout.E_OWNER, owner, Layout.FREE); // nobody died inside
            }
        } else if (Layout.isParticipant(owner) && dead.test(owner)) {
            changed |= Word.cas(memory, entry + Layout.E_OWNER, owner, Layout.ABANDONED);
        }
        Failpoint.after("recover: owner");
        return changed;
    }

    /**
     * Wakes everybody who may be asleep, whoever repaired the entry. SLEPT is cleared last, and only if nothing has
     * happened since: one who dies in between leaves it to the next sweep.
     */
    private void wake(long at) {
        int events = Word.loadAcquire(memory, at);
        while ((events & Layout.SLEPT) != 0) {
            int next = Layout.nextEpoch(events);
            if (Word.cas(memory, at, events, next)) {
                Failpoint.after("recover: epoch");
                futex.wake(Word.at(memory, at), Futex.ALL);
                Failpoint.after("recover: woken");
                Word.cas(memory, at, next, next & ~Layout.SLEPT);
                return;
            }
            events = Word.loadAcquire(memory, at);
        }
    }
}
