// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.DamagedMappingException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/**
 * The names of a lock file (PROTOCOL.md, section 10; model {@code directory.pml}): an index of 64-bit words, each
 * {tag, 1 + entry} or VACANT, probed linearly. Words are only ever filled, so looking up needs no lock.
 *
 * <p>An entry belongs to who has put his id into its intent; he fills it, publishes it by a compare-and-set of the
 * index word, and then makes the intent its type. Whoever loses that race looks at the same word again, with the same entry
 * in hand, and gives it back if the name has come. What the dead leave, recovery frees or finishes.
 */
final class Directory {
    /** How long those are waited for who have an entry in hand, where there are no others, in ns. */
    private static final long PATIENCE = 1_000_000_000;

    private final MemorySegment memory;
    private final Header header;
    private final int mask;

    Directory(MemorySegment memory, Header header) {
        this.memory = memory;
        this.header = header;
        this.mask = header.indexLength() - 1;
    }

    /** A name as it is compared: its bytes in words, padded with zeros. */
    record Name(long hash, int length, long[] words) {
        static Name of(byte[] bytes) {
            long[] words = new long[(bytes.length + 7) / 8];
            for (int i = 0; i < bytes.length; i++) {
                words[i >> 3] |= (bytes[i] & 0xffL) << 8 * (i & 7);
            }
            return new Name(Layout.hash(bytes), bytes.length, words);
        }

        boolean isInline() {
            return length <= Layout.INLINE_NAME;
        }

        /** Lines of the region that hold it. */
        long lines() {
            return isInline() ? 0 : Layout.lines(length);
        }

        int tag() {
            return (int) (hash >>> 32);
        }
    }

    /** What a lock is made with; the parameter of such as are no mutexes. */
    record Parameters(int type, int flags, long payload, long parameter) {
    }

    /** There is no entry left, or not enough of the region. */
    static final class FullException extends Exception {
        private static final long serialVersionUID = 1L;

        FullException(String message) {
            super(message, null, false, false);
        }
    }

    long entry(int number) {
        return header.entry(number);
    }

    /** The number of the entry with that name, or -1. */
    int find(Name name) {
        int i = (int) name.hash & mask;
        for (int probes = 0; probes <= mask; probes++, i = i + 1 & mask) {
            long word = word(place(i));
            if (word == Layout.VACANT) {
                requireWhole();
                return -1;
            }
            if (isNamed(word, name)) {
                return entryOf(word);
            }
        }
        return -1;
    }

    private long place(int i) {
        return header.index() + (long) i * Long.BYTES;
    }

    /** A word of the index. Where its page was lost, nothing may be taken for absent: that makes second owners. */
    private long word(long place) {
        long word = Word.loadLongAcquire(memory, place);
        if (word == 0) {
            throw damaged("the index holds 0 at " + place, "an entry's number, or -1");
        }
        return word;
    }

    /** Where the file's last word is gone, it was truncated and grown again; where its first, a hole was punched. */
    void requireWhole() {
        if (Word.loadLongAcquire(memory, Layout.H_MAGIC) != Layout.MAGIC
                || Word.loadLongAcquire(memory, header.end()) != Layout.MAGIC) {
            throw damaged("the file's header or end is gone", "what they were when it was opened");
        }
    }

    private int entryOf(long word) {
        int number = (int) word - 1;
        if (number < 0 || number >= header.entries()) {
            throw damaged("an index word refers to entry " + Integer.toUnsignedString(number),
                    "0 to " + (header.entries() - 1));
        }
        return number;
    }

    static DamagedMappingException damaged(String found, String expected) {
        return new DamagedMappingException(found + "; expected " + expected
                + ". Something else writes into the file, or it was damaged; delete it while nobody uses it", null);
    }

    /** Whether a word refers to the entry of that name. An entry that was lost is no entry of another name. */
    private boolean isNamed(long word, Name name) {
        if ((int) (word >>> 32) != name.tag()) {
            return false;
        }
        int number = entryOf(word);
        long entry = entry(number);
        long hash = Word.loadLong(memory, entry + Layout.E_HASH);
        int length = Layout.nameLength(Word.loadRelaxed(memory, entry + Layout.E_KIND));
        if ((int) (hash >>> 32) != name.tag() || length == 0) {
            throw damaged("entry %d has hash 0x%016x and a name of %d bytes".formatted(number, hash, length),
                    "a hash that begins with 0x%08x, as the index has it".formatted(name.tag()));
        }
        if (hash != name.hash || length != name.length) {
            return false;
        }
        long at = name.isInline() ? entry + Layout.E_NAME : region(entry);
        for (int i = 0; i < name.words.length; i++) {
            long found = Word.loadLong(memory, at + (long) i * Long.BYTES);
            if (found != name.words[i]) {
                if ((found & 0xff) == 0) {
                    throw damaged("the name of entry " + number + " has a NUL", "none");
                }
                return false;
            }
        }
        return true;
    }

    /** Where the entry's part of the region begins; checked, as it comes from the file. */
    private long region(long entry) {
        int first = Word.loadRelaxed(memory, entry + Layout.E_REGION);
        long lines = Integer.toUnsignedLong(Word.loadRelaxed(memory, entry + Layout.E_REGION_LINES));
        long start = Integer.toUnsignedLong(first) - 1;
        if (start < 0 || lines == 0 || start + lines > header.regionLines()) {
            throw damaged("an entry has lines %d to %d of the region".formatted(start, start + lines - 1),
                    "at most " + (header.regionLines() - 1));
        }
        return header.line(start);
    }

    int kind(int number) {
        return Word.loadRelaxed(memory, entry(number) + Layout.E_KIND);
    }

    String name(int number) {
        long entry = entry(number);
        int length = Layout.nameLength(kind(number));
        if (length < 1 || length > Layout.MAX_NAME) {
            throw damaged("the name of entry " + number + " has " + length + " bytes", "1 to " + Layout.MAX_NAME);
        }
        long at = length <= Layout.INLINE_NAME ? entry + Layout.E_NAME : region(entry);
        if (length > Layout.INLINE_NAME && at + length > header.region() + header.regionLines() * Layout.LINE) {
            throw damaged("the name of entry " + number + " leaves the region", "less");
        }
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) {
            bytes[i] = (byte) (Word.loadLong(memory, at + (i & ~7)) >>> 8 * (i & 7));
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    long payloadSize(int number) {
        long size = storedSize(number);
        if (size != 0) {
            payloadOffset(number, size); // an impossible one is damage
        }
        return size;
    }

    private long storedSize(int number) {
        return Word.loadLong(memory, entry(number) + Layout.E_PAYLOAD);
    }

    /** The bytes that the lock protects. */
    MemorySegment payload(int number) {
        long size = storedSize(number);
        return size == 0 ? memory.asSlice(0, 0) : memory.asSlice(payloadOffset(number, size), size);
    }

    /** Where in the file they begin, or -1 if there are none. Constant. */
    long payloadOffset(int number) {
        long size = storedSize(number);
        return size == 0 ? -1 : payloadOffset(number, size);
    }

    private long payloadOffset(int number, long size) {
        long before = nameLines(number) + ownLines(number);
        requireLines(number, before, size);
        return region(entry(number)) + before * Layout.LINE;
    }

    private long nameLines(int number) {
        int length = Layout.nameLength(kind(number));
        return length <= Layout.INLINE_NAME ? 0 : Layout.lines(length);
    }

    private long ownLines(int number) {
        int kind = kind(number);
        long parameter = parameter(number);
        long lines = Layout.ownLines(Layout.type(kind), Layout.flags(kind), header.participants(), parameter);
        if (lines < 0 || lines > header.regionLines()) {
            throw damaged("entry %d has parameter %d".formatted(number, parameter), "a smaller one");
        }
        return lines;
    }

    private void requireLines(int number, long before, long size) {
        long lines = linesOf(entry(number));
        if (size < 0 || size > lines * Layout.LINE || before + Layout.lines(size) > lines) {
            throw damaged("entry %d has %d bytes of payload behind %d of %d lines".formatted(number, size, before, lines),
                    "less");
        }
    }

    /** What an entry that is no mutex was made with, else 0. */
    long parameter(int number) {
        return Layout.hasOwner(Layout.type(kind(number))) ? 0 : Word.loadLong(memory, entry(number) + Layout.E_PARAMETER);
    }

    /** The lines that belong to the entry itself. */
    MemorySegment own(int number) {
        long lines = ownLines(number);
        return lines == 0 ? memory.asSlice(0, 0) : memory.asSlice(ownOffset(number), lines * Layout.LINE);
    }

    List<String> names() {
        List<String> names = new ArrayList<>();
        for (int i = 0; i <= mask; i++) {
            long word = word(place(i));
            if (word != Layout.VACANT) {
                names.add(name(entryOf(word)));
            }
        }
        return names;
    }

    /**
     * The entry with that name, inserted if there was none. Whether it has the parameters is for the caller to see. One
     * thread of a participant at a time.
     */
    int insert(Name name, Parameters parameters, int me) throws FullException {
        int inHand = -1;
        long deadline = 0;
        long lines = name.lines() + Layout.lines(parameters.payload)
                + Layout.ownLines(parameters.type, parameters.flags, header.participants(), parameters.parameter);
        int i = (int) name.hash & mask;
        for (int probes = 0; probes <= mask; probes++, i = i + 1 & mask) {
            long place = place(i);
            while (true) {
                long word = word(place);
                if (word != Layout.VACANT) {
                    if (isNamed(word, name)) {
                        giveBack(inHand, me);
                        return entryOf(word);
                    }
                    break;
                }
                if (inHand < 0) {
                    deadline = deadline == 0 ? System.nanoTime() + PATIENCE : deadline;
                    try {
                        inHand = take(lines, me, deadline);
                    } catch (FullException full) {
                        if (word(place) == Layout.VACANT) {
                            throw full;
                        }
                        continue; // the last one may be that of this name
                    }
                    if (inHand < 0) {
                        LockSupport.parkNanos(100_000);
                        continue;
                    }
                    fill(inHand, name, parameters);
                    Failpoint.after("insert: filled");
                }
                if (Word.casLong(memory, place, Layout.VACANT, (long) name.tag() << 32 | inHand + 1)) {
                    Failpoint.after("insert: published");
                    Word.cas(memory, entry(inHand) + Layout.E_INTENT, me, parameters.type);
                    Failpoint.after("insert: used");
                    return inHand;
                }
            }
        }
        giveBack(inHand, me);
        throw new FullException("the index is full");
    }

    private void giveBack(int inHand, int me) {
        if (inHand >= 0) {
            Word.cas(memory, entry(inHand) + Layout.E_INTENT, me, 0);
        }
    }

    /**
     * A free entry with so many lines: one that was never taken, as long as there are any, else one that was given back.
     * -1 if there is none, but somebody has one in hand who may give it back: then to be tried again.
     */
    private int take(long lines, int me, long deadline) throws FullException {
        long left = linesLeft();
        int never = lines <= left ? takeUnused(me) : -1;
        if (never >= 0) {
            if (reserve(entry(never), lines)) {
                return never;
            }
            giveBack(never, me);
        }
        int inHands = 0;
        for (int number = 0; number < header.entries(); number++) {
            int intent = Word.loadAcquire(memory, entry(number) + Layout.E_INTENT);
            if (intent == 0 && isTaken(number, lines, me)) {
                return number;
            }
            inHands += Layout.isParticipant(intent) && intent != me ? 1 : 0;
        }
        if (inHands > 0 && !Deadline.passed(deadline)) {
            return -1;
        }
        String others = inHands == 0 ? "" : ", " + inHands + " of them by processes that have not finished";
        throw new FullException(lines > left
                ? "of %d lines of payload and long names %d are left, %d are needed".formatted(
                        header.regionLines(), left, lines)
                : "all " + header.entries() + " entries are taken" + others);
    }

    /** Takes an entry that nobody has, if it has the lines or there are as many left. */
    private boolean isTaken(int number, long lines, int me) {
        if (linesOf(entry(number)) < lines && linesLeft() < lines
                || !Word.cas(memory, entry(number) + Layout.E_INTENT, 0, me)) {
            return false;
        }
        if (reserve(entry(number), lines)) {
            return true;
        }
        giveBack(number, me);
        return false;
    }

    /** One that was never taken, or -1. */
    private int takeUnused(int me) {
        while (true) {
            int used = Word.loadAcquire(memory, Layout.H_USED);
            if (used < 0 || used > header.entries()) {
                throw damaged(Integer.toUnsignedString(used) + " entries are used", "at most " + header.entries());
            }
            if (used == header.entries()) {
                return -1;
            }
            boolean mine = Word.cas(memory, entry(used) + Layout.E_INTENT, 0, me);
            Failpoint.after("insert: taken");
            Word.cas(memory, Layout.H_USED, used, used + 1); // or another did, on the way to the next one
            if (mine) {
                return used;
            }
        }
    }

    private void fill(int number, Name name, Parameters parameters) {
        long entry = entry(number);
        memory.asSlice(entry + Layout.E_EVENTS, Layout.E_INTENT - Layout.E_EVENTS).fill((byte) 0);
        Word.storePlain(memory, entry + Layout.E_RECOVERED, 0);
        Word.storePlain(memory, entry + Layout.E_SINCE, 0);
        Word.storeLong(memory, entry + Layout.E_HASH, name.hash);
        Word.storePlain(memory, entry + Layout.E_KIND, Layout.kind(parameters.type, parameters.flags, name.length));
        Word.storeLong(memory, entry + Layout.E_PAYLOAD, parameters.payload);
        if (!Layout.hasOwner(parameters.type)) {
            Word.storeLong(memory, entry + Layout.E_PARAMETER, parameters.parameter);
        }
        long at = name.isInline() ? entry + Layout.E_NAME : region(entry);
        for (int i = 0; i < name.words.length; i++) {
            Word.storeLong(memory, at + (long) i * Long.BYTES, name.words[i]);
        }
        Word.storeRelease(memory, entry + Layout.E_OWNER, Layout.FREE);
    }

    private long linesOf(long entry) {
        return Integer.toUnsignedLong(Word.loadRelaxed(memory, entry + Layout.E_REGION_LINES));
    }

    private long linesLeft() {
        long first = Word.loadLongAcquire(memory, Layout.H_HEAP);
        if (first < 0 || first > header.regionLines()) {
            throw damaged(first + " lines of the region are used", "at most " + header.regionLines());
        }
        return header.regionLines() - first;
    }

    /**
     * Gives the entry lines of the region, all zero: those that it has from an earlier try, if they are enough, else
     * new ones; false if there are not as many. A death between the two stores of the header and the entry loses the
     * lines, and nothing else.
     */
    private boolean reserve(long entry, long lines) {
        if (lines == 0) {
            return true;
        }
        if (linesOf(entry) < lines) {
            long first;
            do {
                first = header.regionLines() - linesLeft();
                if (lines > header.regionLines() - first) {
                    return false;
                }
            } while (!Word.casLong(memory, Layout.H_HEAP, first, first + lines));
            Failpoint.after("insert: reserved");
            Word.storeRelease(memory, entry + Layout.E_REGION_LINES, 0);
            Word.storeRelease(memory, entry + Layout.E_REGION, (int) first + 1);
            Word.storeRelease(memory, entry + Layout.E_REGION_LINES, (int) lines);
        }
        memory.asSlice(region(entry), lines * Layout.LINE).fill((byte) 0);
        return true;
    }

    /** Where the lines that belong to the entry itself begin. */
    long ownOffset(int number) {
        long before = nameLines(number);
        requireLines(number, before, ownLines(number) * Layout.LINE);
        return region(entry(number)) + before * Layout.LINE;
    }

    /** Whether the index refers to an entry: looked for where the entry's own hash says. */
    boolean isPublished(int number) {
        long hash = Word.loadLong(memory, entry(number) + Layout.E_HASH);
        int i = (int) hash & mask;
        for (int probes = 0; probes <= mask; probes++, i = i + 1 & mask) {
            long word = word(place(i));
            if (word == Layout.VACANT) {
                return false;
            }
            if ((int) word == number + 1) {
                return true;
            }
        }
        return false;
    }
}
