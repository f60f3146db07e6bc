// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

/**
 * Every offset and constant of the lock file, as PROTOCOL.md, section 8, has them, and the few computations on them.
 * All numbers are little-endian; offsets and sizes are in bytes unless a name says otherwise.
 */
public final class Layout {
    // ---- header: constant from creation on, but for the last block ----
    public static final int HEADER = 4096;
    /** "FERMATA" and 1. */
    public static final long MAGIC = 0x01_41_54_41_4d_52_45_46L;
    /** The magic of a file that is being written in place. */
    public static final long UNFINISHED = 0x00_41_54_41_4d_52_45_46L;
    public static final int BYTE_ORDER_MARK = 0x01020304;
    public static final int MAJOR = 1;
    public static final int MINOR = 0;

    public static final int H_MAGIC = 0;
    public static final int H_BYTE_ORDER = 8;
    public static final int H_VERSION = 12; // major in the low half, minor in the high one
    public static final int H_FEATURES = 16;
    public static final int H_FILE_SIZE = 24;
    public static final int H_PARTICIPANTS = 32;
    public static final int H_PARTICIPANT_COUNT = 40;
    public static final int H_PARTICIPANT_STRIDE = 44;
    public static final int H_INDEX = 48;
    public static final int H_INDEX_LENGTH = 56;
    public static final int H_ENTRIES = 64;
    public static final int H_ENTRY_COUNT = 72;
    public static final int H_ENTRY_STRIDE = 76;
    public static final int H_REGION = 80;
    public static final int H_REGION_LINES = 88;
    public static final int H_FILE_ID = 96; // 16 bytes
    public static final int H_CREATED = 112; // ms since 1970
    public static final int H_CHECKSUM = 120; // CRC-32C of what precedes it
    /** Nonzero: owners from before the last reset may still be in the entries. */
    public static final int H_DIRTY = 128;
    /** How many entries were ever taken: sweeps go up to and including this one. */
    public static final int H_USED = 132;
    /** The next line of the region that was never given out. */
    public static final int H_HEAP = 136;
    /** The machine's boot and the file's inode at the last reset, as text. For people, and to know a copy. */
    public static final int H_PLACE = 192;
    public static final int H_PLACE_SIZE = 128;

    /** The releaser has a full fence, and nobody needs membarrier. */
    public static final long SYMMETRIC = 1;

    // ---- bytes that are locked by fcntl, not written ----
    /** Held while attaching and detaching. */
    public static final long BYTE_A = 256;
    /** Held shared by every participant. */
    public static final long BYTE_U = 257;
    /** Held while inserting a name: a courtesy. */
    public static final long BYTE_I = 258;

    // ---- participants ----
    public static final int MAX_PARTICIPANTS = 127;
    public static final int PARTICIPANT = 2048;
    /** 64 bits: lifeline in the low half, generation in the high one. Its first byte is the slot's byte lock. */
    public static final int P_CELL = 0;
    /** What the lifeline was when the slot was claimed; the kernel marks it right after the lifeline. Waiters watch it. */
    public static final int P_LIFELINE_COPY = 8;
    public static final int P_INFO = 64;
    public static final int P_GENERATION = 64; // of the rest of the line; stored last
    public static final int P_PID = 68;
    public static final int P_PID_NAMESPACE = 72; // inode, 64 bits
    public static final int P_START = 80; // clock ticks since boot, 64 bits
    public static final int P_ATTACHED = 88; // ms since 1970
    public static final int P_UID = 96;
    public static final int P_LANGUAGE = 100; // 1 Java, 2 C, 3 Rust
    public static final int P_LABEL = 128; // UTF-8, padded with zeros
    public static final int P_LABEL_SIZE = 128;
    public static final int P_THREADS = 1024;
    public static final int THREADS = 16;
    public static final int THREAD = 64;
    public static final int T_ID = 0;
    public static final int T_ENDED = 8; // 1 if the thread has ended
    public static final int T_NAME = 16; // UTF-8, padded with zeros
    public static final int T_NAME_SIZE = 48;
    public static final int JAVA = 1;

    /** The kernel's bits in a lifeline; the rest is the guardian's thread id. */
    public static final int WAITERS = 0x8000_0000;
    public static final int DIED = 0x4000_0000;
    /** What the kernel leaves of a lifeline when its thread ends. */
    public static final int DEAD = WAITERS | DIED;
    /** No thread id is as large: the kernel's limit. */
    private static final int THREAD_IDS = 1 << 22;
    /** Owners are swept long before their slot has been given to so many others. */
    public static final int MAX_AGE = 1 << 16;

    // ---- index ----
    /** A word that was never filled. Not 0: so a page of the index that is lost does not say that names are absent. */
    public static final long VACANT = -1;

    // ---- entries: a hot line and a cold one ----
    public static final int ENTRY = 128;
    public static final int E_OWNER = 0;
    public static final int E_EVENTS = 4;
    public static final int E_HEIR = 8;
    public static final int E_HANDED = 12; // about the ms of the monotonic clock, 32 bits; the heir sleeps on it
    public static final int E_FENCE = 16; // 64 bits
    public static final int E_HOLDER = 24; // participant id in the high half, thread id in the low one
    public static final int E_CONTENDED = 32; // 64 bits, as the next two
    public static final int E_SLEPT = 40;
    public static final int E_LONGEST_WAIT = 48; // ns
    /** 0 free, the type of lock that it is, or the id of the participant that fills the entry. */
    public static final int E_INTENT = 56;
    public static final int E_SINCE = 60; // s since 1970
    public static final int E_HASH = 64;
    public static final int E_KIND = 72; // type | flags << 8 | length of the name << 16
    public static final int E_RECOVERED = 76;
    public static final int E_PAYLOAD = 80; // 64 bits
    public static final int E_REGION = 88; // 1 + the first line, or 0
    public static final int E_REGION_LINES = 92;
    public static final int E_NAME = 96; // names of up to 32 bytes, longer ones at the start of the region
    public static final int INLINE_NAME = 32;
    public static final int LINE = 64;
    public static final int MAX_NAME = 255;
    /** Between a lock's name and that of a part of it, which has an entry of its own. */
    public static final char PART = '\u001f';

    /** A constant of entries that are no mutexes, 64 bits: what they were made with. */
    public static final int E_PARAMETER = 48;

    public static final int STRICT = 1; // flags

    // ---- types ----
    public static final int MUTEX = 1;
    public static final int READ_WRITE_LOCK = 2;
    public static final int CONDITION = 3;
    public static final int SEMAPHORE = 4;
    public static final int LATCH = 5;
    public static final int BARRIER = 6;
    public static final int EVENT = 7;
    public static final int SEQUENCE = 8;
    public static final int ONCE = 9;
    public static final int ELECTION = 10;
    public static final int FAIR_MUTEX = 11;
    public static final int STRIPES = 12;
    public static final int SNAPSHOT = 13;
    private static final String[] TYPES = {"no lock", "a mutex", "a read-write lock", "a condition", "a semaphore",
        "a latch", "a barrier", "an event", "a sequence", "a once", "an election", "a fair mutex", "a striped mutex",
        "a snapshot"};

    /** The eventcount of own line 0, where a type has two. */
    public static final int O_EVENTS = 4;
    /** Of an election's own line: the term that began last, and that resigned last; 64 bits each. */
    public static final int O_ELECTED = 8;
    public static final int O_ENDED = 16;

    // ---- words of other types ----
    /** What a sequence has come to, 64 bits. */
    public static final int E_VALUE = 16;

    // ---- owner words ----
    public static final int FREE = 1;
    public static final int ABANDONED = 2;
    /** Owners from here on are participants. */
    public static final int FIRST_ID = 256;
    /** With the id of the participant that may take the lock. */
    public static final int RESERVED = 0x8000_0000;

    // ---- events ----
    /** Somebody may be asleep. */
    public static final int ASLEEP = 1;
    /** Somebody has been asleep, and recovery must wake. */
    public static final int SLEPT = 2;

    private static final int GENERATIONS = 0x7f_ffff;

    private Layout() {
    }

    /** What a type is called in messages. */
    public static String typeName(int type) {
        return isType(type) ? TYPES[type] : "a lock of unknown type " + type;
    }

    /** Whether there is such a type. */
    public static boolean isType(int type) {
        return type > 0 && type < TYPES.length;
    }

    /** Whether a type is an owner word with all that belongs to it, and perhaps more. */
    public static boolean hasOwner(int type) {
        return switch (type) {
            case MUTEX, READ_WRITE_LOCK, ONCE, ELECTION, SNAPSHOT -> true;
            default -> false;
        };
    }

    /** How many lines of the region belong to an entry itself, before its payload. */
    public static long ownLines(int type, int flags, int participants, long parameter) {
        return switch (type) {
            case ELECTION -> 1;
            default -> 0;
        };
    }

    /** Whether a type has a second eventcount, in its first own line. */
    public static boolean hasSecondEvents(int type) {
        return switch (type) {
            case ELECTION -> true;
            default -> false;
        };
    }

    /** The next value of an eventcount: the next epoch, with ASLEEP clear and SLEPT as it is. */
    public static int nextEpoch(int events) {
        return events & SLEPT | (events | ASLEEP | SLEPT) + 1;
    }

    // ---- ids and cells ----

    public static int id(int generation, int slot) {
        return (generation & GENERATIONS) << 8 | slot;
    }

    public static int slot(int id) {
        return id & 0xff;
    }

    public static boolean isReserved(int owner) {
        return owner < 0;
    }

    /** The participant that a reservation is for. */
    public static int reservedFor(int owner) {
        return owner & ~RESERVED;
    }

    public static boolean isParticipant(int owner) {
        return owner >= FIRST_ID;
    }

    /** Whether an id can be one of a file with that many participants. */
    public static boolean isValidId(int id, int participants) {
        return id >= FIRST_ID && slot(id) < participants;
    }

    public static long cell(int generation, int lifeline) {
        return (long) generation << 32 | lifeline & 0xffff_ffffL;
    }

    public static int generation(long cell) {
        return (int) (cell >>> 32);
    }

    public static int lifeline(long cell) {
        return (int) cell;
    }

    /** Whether a lifeline is one that the protocol writes: none, a thread's, or a dead one. */
    public static boolean isLifeline(int lifeline) {
        int thread = lifeline & ~WAITERS;
        return lifeline == 0 || lifeline == DEAD || lifeline < 0 && thread > 0 && thread < THREAD_IDS;
    }

    /** Generations count up; their low 23 bits are never 0, so that an id is never below 256. */
    public static int nextGeneration(int generation) {
        int next = generation + 1;
        return (next & GENERATIONS) == 0 ? next + 1 : next;
    }

    public static boolean isDied(long cell) {
        return (lifeline(cell) & DIED) != 0;
    }

    /**
     * How much older than its cell an id is, in generations: 0 the same; above 0 its participant is gone; below 0 it
     * came after the cell was read.
     */
    public static int age(int id, long cell) {
        int age = generation(cell) - (id >>> 8) & GENERATIONS;
        return age > GENERATIONS / 2 ? age - GENERATIONS - 1 : age;
    }

    /** Whether, by a cell that was read before, the participant is dead: only then may anything of it be touched. */
    public static boolean isDead(int id, long cell) {
        int age = age(id, cell);
        return age > 0 || age == 0 && isDied(cell);
    }

    /** Whether, by a cell, the participant is there and alive. */
    public static boolean isAlive(int id, long cell) {
        return age(id, cell) == 0 && lifeline(cell) != 0 && !isDied(cell);
    }

    // ---- sizes ----

    public static int indexLength(int entries) {
        return Math.max(2, Integer.highestOneBit(2 * entries - 1) << 1);
    }

    public static long lines(long bytes) {
        return (bytes + LINE - 1) / LINE;
    }

    public static int kind(int type, int flags, int nameLength) {
        return type | flags << 8 | nameLength << 16;
    }

    public static int type(int kind) {
        return kind & 0xff;
    }

    public static int flags(int kind) {
        return kind >> 8 & 0xff;
    }

    public static int nameLength(int kind) {
        return kind >>> 16;
    }

    /** FNV-1a over the bytes, then a finalizer, as its high bits alone are poor. */
    public static long hash(byte[] name) {
        long h = 0xcbf29ce484222325L;
        for (byte b : name) {
            h = (h ^ (b & 0xff)) * 0x100000001b3L;
        }
        h = (h ^ h >>> 33) * 0xff51afd7ed558ccdL;
        h = (h ^ h >>> 33) * 0xc4ceb9fe1a85ec53L;
        return h ^ h >>> 33;
    }
}
