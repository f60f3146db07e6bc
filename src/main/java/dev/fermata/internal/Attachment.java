// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.DamagedMappingException;
import dev.fermata.LockFileClosedException;
import dev.fermata.LockFileException;
import dev.fermata.LockFileFullException;
import dev.fermata.LockFileReplacedException;
import dev.fermata.LockNameException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * This process's part in one lock file: its mapping, its participant, and what the locks need of both. There is one for
 * a file, by device and inode, however often and by whatever path it is opened.
 */
public final class Attachment {
    private static final ConcurrentHashMap<Key, Attachment> OPEN = new ConcurrentHashMap<>();
    private static final Object[] STRIPES = new Object[64];
    /** How long others that insert are waited for, in ns. */
    private static final long COURTESY = 100_000_000;

    static {
        for (int i = 0; i < STRIPES.length; i++) {
            STRIPES[i] = new Object();
        }
    }

    private record Key(long device, long inode) {
        static Key of(Posix.Status status) {
            return new Key(status.device(), status.inode());
        }
    }

    /**
     * What the locks write into owner words: this participant's id, or 0 as soon as the file can't be used any more. Plain:
     * only that and where the closer has had a handshake with every thread does it matter.
     */
    public int id;

    /** Seconds since 1970, as of less than two seconds ago. */
    public int clock = (int) (System.currentTimeMillis() / 1000);

    /** This participant's id, as long as it is attached and afterwards; 0 where the file is only inspected. */
    public final int participant;

    /** Whether an error has cut off a lock's method in the middle; set by the lock, where not even a call is possible. */
    public volatile boolean unfinished;

    public final MemorySegment memory;
    public final boolean symmetric;
    final Path path;
    final Settings settings;
    final Header header;
    private final int fd;
    private final Posix.Status status;
    private final Arena users;
    private final Participants participants;
    private final Directory directory;
    private final Recovery recovery;
    private final ReentrantLock insertion = new ReentrantLock();
    private final Guardian guardian;
    private final ConcurrentHashMap<String, Object> locks = new ConcurrentHashMap<>();
    private final ConcurrentHashMap<Integer, AtomicInteger> awaited = new ConcurrentHashMap<>();
    private final Thread[] threads = new Thread[Layout.THREADS];
    private volatile Consumer<Object> finisher = lock -> { };
    private volatile Supplier<RuntimeException> trouble;
    private volatile boolean damaged; // whatever the trouble was first
    private int references = 1;

    /** Made by the guardian once it is attached, or for inspection without one. */
    Attachment(Path path, Settings settings, Header header, int fd, Posix.Status status, int participant,
            Guardian guardian) throws LockFileException {
        this.path = path;
        this.settings = settings;
        this.header = header;
        this.fd = fd;
        this.status = status;
        this.participant = participant;
        this.guardian = guardian;
        this.symmetric = header.isSymmetric();
        this.users = Arena.ofShared();
        this.memory = map(path, fd, header, users,
                guardian == null ? Posix.PROT_READ : Posix.PROT_READ | Posix.PROT_WRITE);
        this.participants = new Participants(memory, header);
        this.directory = new Directory(memory, header);
        this.recovery = new Recovery(memory, header, directory, Futex.SYSTEM);
        if (guardian == null) {
            trouble = () -> new UnsupportedOperationException(
                    Printable.of(path) + " is open for reading only; open it without readOnly() to lock");
        } else {
            id = participant;
        }
    }

    static MemorySegment map(Path path, int fd, Header header, Arena arena, int protection) throws LockFileException {
        long size = header.fileSize();
        long address = Posix.SYSTEM.map(fd, size, protection);
        if (address < 0) {
            throw Creation.failed(path, size + " bytes cannot be mapped", (int) -address);
        }
        MemorySegment segment = MemorySegment.ofAddress(address)
                .reinterpret(size, arena, mapped -> Posix.SYSTEM.unmap(mapped.address(), size));
        return (protection & Posix.PROT_WRITE) != 0 ? segment : segment.asReadOnly();
    }

    // ---- open and close ----

    /** Opens a file, or takes part in what this process has open already. */
    public static Attachment open(Path path, Settings settings) throws LockFileException {
        if (settings.readOnly()) {
            return Guardian.inspect(path, settings);
        }
        while (true) {
            Key key;
            try {
                key = Key.of(Posix.SYSTEM.status(path.toString()));
            } catch (Posix.ErrnoException absent) {
                if (absent.errno != Posix.ENOENT || !settings.create()) {
                    throw Creation.failed(path, "it cannot be opened", absent.errno);
                }
                return shareOrEnter(start(path, settings));
            }
            synchronized (stripe(key)) {
                Attachment open = OPEN.get(key);
                if (open != null && open.trouble == null) {
                    open.references++;
                    return open;
                }
                Attachment opened = start(path, settings);
                if (Key.of(opened.status).equals(key)) {
                    OPEN.put(key, opened);
                    return opened;
                }
                opened.end(); // the file was replaced in between
            }
        }
    }

    private static Object stripe(Key key) {
        return STRIPES[key.hashCode() & STRIPES.length - 1];
    }

    /** Another thread of this process may have opened the new file, too. */
    private static Attachment shareOrEnter(Attachment opened) {
        Key key = Key.of(opened.status);
        synchronized (stripe(key)) {
            Attachment open = OPEN.get(key);
            if (open != null && open.trouble == null) {
                open.references++;
                opened.end();
                return open;
            }
            OPEN.put(key, opened);
            return opened;
        }
    }

    private static Attachment start(Path path, Settings settings) throws LockFileException {
        Guardian guardian = new Guardian(path, settings);
        try {
            Attachment attached = guardian.start().join();
            if (settings.spin() == SpinBudget.MEASURED) {
                Calibration.begin();
            }
            return attached;
        } catch (CompletionException e) {
            switch (e.getCause()) {
                case LockFileException refused -> throw refused;
                case RuntimeException unchecked -> throw unchecked;
                case Error error -> throw error;
                default -> throw new AssertionError(e.getCause());
            }
        }
    }

    /** One user less; the last one detaches this process. */
    public void release() {
        if (guardian == null) { // shared by nobody; a guardian looks at others by one while its opener holds the stripe
            end();
            return;
        }
        Key key = Key.of(status);
        synchronized (stripe(key)) {
            if (--references > 0) {
                return;
            }
            OPEN.remove(key, this);
            end();
        }
    }

    private void end() {
        if (guardian != null) {
            guardian.close();
        } else {
            fail(() -> new LockFileClosedException(path));
            users.close();
            Posix.SYSTEM.close(fd);
        }
    }

    // ---- for the locks ----

    public Path path() {
        return path;
    }

    public Settings settings() {
        return settings;
    }

    public Participants participants() {
        return participants;
    }

    /** One object for a name, for all users in this process. */
    public ConcurrentHashMap<String, Object> locks() {
        return locks;
    }

    /** What finishes with a lock of {@link #locks} that a method was cut off in. */
    public void finishWith(Consumer<Object> finisher) {
        this.finisher = finisher;
    }

    void finishLocks() {
        if (unfinished) {
            unfinished = false; // first: what is cut off now is for the next time
            try {
                locks.values().forEach(finisher);
            } catch (RuntimeException | Error failure) {
                unfinished = true;
                throw failure;
            }
        }
    }

    // ---- the directory ----

    /** The entry with that name, or -1. */
    public int find(String name) {
        return directory.find(Directory.Name.of(bytes(name)));
    }

    /** The entry with that name, made if there is none; its parameters may be others. */
    public int insert(String name, int type, int flags, long payload, long parameter) {
        Directory.Name found = Directory.Name.of(bytes(name));
        int number = directory.find(found);
        if (number >= 0) {
            return number;
        }
        check();
        Headroom.require();
        insertion.lock(); // so that a participant has no more than one entry in hand
        try {
            return insertInTurn(name, found, new Directory.Parameters(type, flags, payload, parameter));
        } finally {
            insertion.unlock();
        }
    }

    private int insertInTurn(String name, Directory.Name found, Directory.Parameters parameters) {
        boolean first = awaitTurn();
        try {
            return directory.insert(found, parameters, participant);
        } catch (Directory.FullException full) {
            throw new LockFileFullException(path, name, full.getMessage());
        } finally {
            if (first) {
                NativeCalls.SYSTEM.ofdLock(fd, Layout.BYTE_I, 1, NativeCalls.OFD_UNLOCK);
            }
        }
    }

    /**
     * Two who insert the same name at the same time need twice the room. So one waits for the other, but not for long:
     * he may be stopped, and it is right without.
     */
    private boolean awaitTurn() {
        long deadline = Deadline.after(COURTESY, TimeUnit.NANOSECONDS);
        while (NativeCalls.SYSTEM.ofdLock(fd, Layout.BYTE_I, 1, NativeCalls.OFD_EXCLUSIVE) < 0) {
            if (Deadline.passed(deadline)) {
                return false;
            }
            LockSupport.parkNanos(20_000);
        }
        return true;
    }

    private static byte[] bytes(String name) {
        ByteBuffer encoded;
        try {
            encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(name));
        } catch (CharacterCodingException e) {
            throw new LockNameException(name, "it has half of a surrogate pair; expected text that can be UTF-8");
        }
        if (encoded.remaining() < 1 || encoded.remaining() > Layout.MAX_NAME) {
            throw new LockNameException(name.length() > 40 ? name.substring(0, 40) + "…" : name,
                    "it has %d bytes in UTF-8, expected 1 to %d".formatted(encoded.remaining(), Layout.MAX_NAME));
        }
        if (name.indexOf('\0') >= 0) {
            throw new LockNameException(name, "it has a NUL character; expected none");
        }
        byte[] bytes = new byte[encoded.remaining()];
        encoded.get(bytes);
        return bytes;
    }

    public long entryOffset(int entry) {
        return header.entry(entry);
    }

    public int kind(int entry) {
        return directory.kind(entry);
    }

    public long parameter(int entry) {
        return directory.parameter(entry);
    }

    /** The lines of the region that belong to the entry itself. */
    public MemorySegment own(int entry) {
        return directory.own(entry);
    }

    public int participantCount() {
        return header.participants();
    }

    public long payloadSize(int entry) {
        return directory.payloadSize(entry);
    }

    public MemorySegment payload(int entry) {
        return directory.payload(entry);
    }

    /** Where in the file the payload lies, or -1 if there is none. */
    public long payloadOffset(int entry) {
        return directory.payloadOffset(entry);
    }

    public List<String> names() {
        return directory.names();
    }

    public boolean isValidId(int id) {
        return Layout.isValidId(id, header.participants());
    }

    /** Why nothing can be acquired here any more, or {@code null}. */
    public RuntimeException trouble() {
        Supplier<RuntimeException> why = trouble;
        return why == null ? null : why.get();
    }

    /** Whether the file was closed here: then what this process held is abandoned. */
    public boolean isUnmapped() {
        return !memory.scope().isAlive();
    }

    /** Throws where nothing can be acquired any more. */
    public void check() {
        Supplier<RuntimeException> why = trouble;
        if (why != null) {
            throw why.get();
        }
    }

    /** From now on nothing is acquired here. The first reason stays, but that closing takes its place. */
    void fail(Supplier<RuntimeException> why) {
        trouble = trouble == null ? why : trouble;
        id = 0;
        VarHandle.fullFence();
    }

    /** The file is damaged: no lock of it can be relied on. Returns what to throw. */
    public DamagedMappingException damaged(DamagedMappingException found) {
        damaged = true;
        fail(() -> new DamagedMappingException(Printable.of(path) + ": " + found.getMessage(), found));
        return new DamagedMappingException(Printable.of(path) + ": " + found.getMessage(), found.getCause());
    }

    boolean isDamaged() {
        return damaged;
    }

    void replaced(String found) {
        fail(() -> new LockFileReplacedException(path, found));
    }

    /** Runs what looks into the file, and translates what can go wrong there. */
    public <T> T guarded(Supplier<T> look) {
        try {
            return look.get();
        } catch (InternalError e) {
            throw damaged(DamagedMappingException.of(e));
        } catch (IllegalStateException e) {
            throw translated(e);
        }
    }

    /** What an exception from within a lock means: that the mapping was closed, that the file is damaged, or itself. */
    public RuntimeException translated(IllegalStateException e) {
        if (isUnmapped()) {
            RuntimeException why = trouble();
            return why == null ? new LockFileClosedException(path) : why;
        }
        return e instanceof DamagedMappingException damaged && trouble == null ? damaged(damaged) : e;
    }

    /**
     * A thread waits for an entry from now on: what the file's closing waits for, and what recovery looks at first.
     * Afterwards {@link #leave}.
     */
    public void enter(int entry) {
        awaited.compute(entry, (key, count) -> {
            AtomicInteger waiting = count == null ? new AtomicInteger() : count;
            waiting.incrementAndGet();
            return waiting;
        });
    }

    public void leave(int entry) {
        awaited.computeIfPresent(entry, (key, count) -> count.decrementAndGet() == 0 ? null : count);
    }

    Iterable<Integer> awaited() {
        return awaited.keySet();
    }

    boolean isAwaited() {
        return !awaited.isEmpty();
    }

    /** Before a waiter's last look: pairs with the releaser's plain store. False where the kernel could not. */
    public boolean barrier() {
        return symmetric || NativeCalls.SYSTEM.membarrier() == 0;
    }

    /** Whether an owner is dead, by its cell as it is now, after the owner word was read. */
    public boolean isDead(int owner) {
        if (!Layout.isValidId(owner, header.participants())) {
            throw Directory.damaged("an owner word holds 0x%x".formatted(owner), "1, 2 or a participant");
        }
        long cell = participants.cell(Layout.slot(owner));
        Recovery.requirePlausible(owner, cell);
        int age = Layout.age(owner, cell);
        if (age < 0 || age == 0 && Layout.lifeline(cell) == 0) {
            throw Directory.damaged("an owner word holds 0x%x, whose participant has not come yet".formatted(owner),
                    "one that is or was there");
        }
        return age > 0 || Layout.isDied(cell);
    }

    /**
     * The lifeline, for waiters, of an owner or of whom a lock is reserved for; {@code null} unless that is another
     * process, alive.
     */
    public Lifeline lifelineOf(int owner) {
        int id = Layout.isReserved(owner) ? Layout.reservedFor(owner) : owner;
        if (id == participant || !isValidId(id)) {
            return null;
        }
        long cell = participants.cell(Layout.slot(id));
        Word copy = participants.lifelineCopy(Layout.slot(id));
        return Layout.isAlive(id, cell) && copy.loadRelaxed() == Layout.lifeline(cell)
                ? new Lifeline(copy, Layout.lifeline(cell)) : null;
    }

    /** Repairs what the dead have left in one entry; whether anything was changed. */
    public boolean repair(int entry) {
        long[] cells = participants.scan();
        return survey(cells) && recovery.repairFor(entry, Recovery.Dead.by(cells));
    }

    /**
     * Makes sure that no thread of those that are dead by these cells runs on. Those of whom that is not sure are alive
     * in the cells afterwards.
     */
    boolean survey(long[] cells) {
        return survey(cells, header, fd);
    }

    static boolean survey(long[] cells, Header header, int fd) {
        if (!header.isSymmetric()) {
            return NativeCalls.SYSTEM.membarrier() == 0;
        }
        for (int slot = 0; slot < cells.length; slot++) {
            if (Layout.isDied(cells[slot]) && !isByteFree(header, fd, slot)) {
                cells[slot] &= ~(long) Layout.DIED;
            }
        }
        return true;
    }

    /** Whether nobody holds a slot's byte. */
    boolean isByteFree(int slot) {
        return isByteFree(header, fd, slot);
    }

    private static boolean isByteFree(Header header, int fd, int slot) {
        return NativeCalls.SYSTEM.ofdTest(fd, header.cell(slot), 1, NativeCalls.OFD_EXCLUSIVE) == 0;
    }

    /** Makes the thread's name known, as one that may hold locks. */
    public void introduce(Thread thread) {
        int row = (int) thread.threadId() & Layout.THREADS - 1;
        if (threads[row] != thread) {
            threads[row] = thread;
            participants.nameThread(Layout.slot(participant), thread.threadId(), thread.getName());
        }
    }

    void markEndedThreads(Participants participants) {
        for (int row = 0; row < threads.length; row++) {
            Thread thread = threads[row];
            if (thread != null && !thread.isAlive()) {
                participants.threadEnded(Layout.slot(participant), thread.threadId());
                threads[row] = null;
            }
        }
    }

    /** Has another thread do what would hold up the caller, who may hold a lock: to write a log, for one. */
    public void defer(Runnable note) {
        guardian.defer(note);
    }

    // ---- for the guardian ----

    Posix.Status status() {
        return status;
    }

    /** Unmaps what the locks use; false as long as a thread is in a system call with it. */
    boolean closeMapping() {
        try {
            users.close();
            return true;
        } catch (IllegalStateException inUse) {
            return !users.scope().isAlive();
        }
    }

    /** Of a guardian, whom nobody interrupts for good reason. */
    static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            // What it does is not to be broken off.
        }
    }
}
