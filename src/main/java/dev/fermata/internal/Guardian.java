// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.DamagedMappingException;
import dev.fermata.LockFileClosedException;
import dev.fermata.LockFileException;
import dev.fermata.LockFileException.Reason;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The one thread of a process for a lock file. Its life is the participant's: the kernel marks the lifeline when it ends,
 * however it ends. It attaches, then watches the others and the file and recovers what the dead leave, and at last
 * detaches (PROTOCOL.md, section 9; models {@code creation.pml} and {@code participants.pml}).
 *
 * <p>It has a mapping of its own, as it goes on after the locks' mapping is closed.
 */
final class Guardian {
    private static final Posix POSIX = Posix.SYSTEM;
    private static final NativeCalls CALLS = NativeCalls.SYSTEM;
    private static final Futex FUTEX = Futex.SYSTEM;

    /** Where the kernel names the boot; tests put another file in its place. */
    private static final Path BOOT_ID =
            Path.of(System.getProperty("dev.fermata.bootId", "/proc/sys/kernel/random/boot_id"));
    private static final String BOOT = boot();

    /** How long byte A, and a slot whose process is being torn down, are waited for, in ns. */
    private static final long PATIENCE = 10_000_000_000L;
    /** How long a guardian sleeps at most, in ns. */
    private static final long LOOK = 1_000_000_000;
    /** How long it leaves a sweep to each of those before it, in ns. */
    private static final long TURN = 10_000_000;
    /** How many locks a message names. */
    private static final int NAMED = 10;
    /** How long {@link #close} waits at most. */
    private static final long CLOSE_SECONDS = 15;

    private final Path path;
    private final Settings settings;
    private final Thread thread;
    private final CompletableFuture<Attachment> attached = new CompletableFuture<>();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final Thread hook;
    private volatile boolean closing;
    private volatile boolean exiting;
    private final Queue<Runnable> notes = new ArrayDeque<>(); // under its own monitor

    // Of the guardian's thread, from here on.
    private Attachment attachment;
    private int fd = -1;
    private Header header;
    private Arena arena;
    private MemorySegment memory;
    private Participants participants;
    private Directory directory;
    private Recovery recovery;
    private RobustPage page;
    private int slot;
    private long cell;
    private MemorySegment addresses;
    private MemorySegment expected;
    private long nextLook;
    private int looked; // how far from its own slot that of the last look was
    private int calls; // the control word, as of the last look
    private boolean unsure; // a death whose threads may still run: look again soon

    Guardian(Path path, Settings settings) {
        this.path = path;
        this.settings = settings;
        this.thread = Thread.ofPlatform().daemon().name("fermata-guardian " + Printable.of(path)).unstarted(this::run);
        this.hook = Thread.ofPlatform().name("fermata-detach " + Printable.of(path)).unstarted(this::exit);
    }

    CompletableFuture<Attachment> start() {
        thread.start();
        return attached;
    }

    private void run() {
        try {
            open();
        } catch (Throwable refused) {
            try {
                giveUp();
            } catch (Throwable lost) {
                refused.addSuppressed(lost);
            } finally {
                attached.completeExceptionally(asRefusal(refused));
            }
            return;
        }
        boolean detached = false;
        while (!detached) {
            try {
                attached.complete(attachment); // in here, as a fault of before may be told only now
                detached = watch();
            } catch (Throwable unexpected) {
                Thread.onSpinWait(); // even out of memory it stays: its end would be taken for the process's
            }
        }
        ended.countDown();
        attend();
    }

    // ---- opening ----

    /** Damage that is met while opening is a reason why the file cannot be opened. */
    private Throwable asRefusal(Throwable refused) {
        try {
            return switch (refused) {
                case InternalError lost -> asRefusal(DamagedMappingException.of(lost));
                case DamagedMappingException damaged -> {
                    LockFileException refusal = new LockFileException(Reason.DAMAGED, path, damaged.getMessage(),
                            "it was damaged before or while it was opened");
                    refusal.initCause(damaged);
                    yield refusal;
                }
                default -> refused;
            };
        } catch (InternalError other) {
            return other;
        }
    }

    private void open() throws LockFileException {
        for (int tries = 0; ; tries++) {
            fd = openFile(path, settings, Posix.O_RDWR);
            Posix.Status status = statusOf(path, fd);
            requireLockFile(path, fd, status, settings);
            awaitA();
            if (isStill(status)) {
                attach(statusOf(path, fd));
                return;
            }
            POSIX.close(fd);
            fd = -1;
            if (tries == 100) {
                throw new LockFileException(Reason.BUSY, path, "it is replaced again and again", "find out by whom");
            }
        }
    }

    private static int openFile(Path path, Settings settings, int mode) throws LockFileException {
        int flags = mode | Posix.O_CLOEXEC | Posix.O_NONBLOCK;
        int fd = POSIX.open(path.toString(), flags, 0);
        if (fd == -Posix.ENOENT && settings.create()) {
            Creation.createIfMissing(path, settings);
            fd = POSIX.open(path.toString(), flags, 0);
        }
        if (fd == -Posix.EISDIR) {
            throw new LockFileException(Reason.NOT_A_LOCK_FILE, path, "it is a directory", "name a file in it");
        }
        if (fd < 0) {
            throw Creation.failed(path, "it cannot be opened", -fd);
        }
        return fd;
    }

    private static Posix.Status statusOf(Path path, int fd) throws LockFileException {
        try {
            return POSIX.status(fd);
        } catch (Posix.ErrnoException e) {
            throw Creation.failed(path, "its status cannot be read", e.errno);
        }
    }

    /** Refuses what is none, before anything of it is locked or mapped. Empty and unfinished files may become one. */
    private static void requireLockFile(Path path, int fd, Posix.Status status, Settings settings)
            throws LockFileException {
        if (!status.isRegular()) {
            throw new LockFileException(Reason.NOT_A_LOCK_FILE, path, "it is not a regular file", "choose another path");
        }
        Creation.requireSuitable(path, fd, settings);
        if (status.size() == 0 || isUnfinished(fd, status)) {
            return;
        }
        readHeader(path, fd, status);
    }

    private static boolean isUnfinished(int fd, Posix.Status status) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment magic = arena.allocate(JAVA_LONG);
            return status.size() >= Layout.HEADER && POSIX.read(fd, magic, 0) == Long.BYTES
                    && magic.get(JAVA_LONG, 0) == Layout.UNFINISHED;
        }
    }

    private static Header readHeader(Path path, int fd, Posix.Status status) throws LockFileException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment page = arena.allocate(Layout.HEADER, 8);
            int read = POSIX.read(fd, page, 0);
            Creation.requireDone(path, "it cannot be read", read);
            if (read < Layout.HEADER) {
                throw new LockFileException(Reason.NOT_A_LOCK_FILE, path, "it has %d bytes".formatted(status.size()),
                        "a lock file has more than %d. Choose another path".formatted(Layout.HEADER));
            }
            Header header = Header.read(page, status.size(), path);
            requireEnd(path, fd, header, arena);
            return header;
        }
    }

    private static void requireEnd(Path path, int fd, Header header, Arena arena) throws LockFileException {
        MemorySegment end = arena.allocate(JAVA_LONG);
        Creation.requireDone(path, "it cannot be read", POSIX.read(fd, end, header.end()));
        if (end.get(JAVA_LONG, 0) != Layout.MAGIC) {
            throw new LockFileException(Reason.DAMAGED, path, "it ends with 0x%016x".formatted(end.get(JAVA_LONG, 0)),
                    "expected 0x%016x. It was truncated and grown again; delete it while nobody uses it".formatted(
                            Layout.MAGIC));
        }
    }

    private void awaitA() throws LockFileException {
        long deadline = System.nanoTime() + PATIENCE;
        int locked;
        while ((locked = CALLS.ofdLock(fd, Layout.BYTE_A, 1, NativeCalls.OFD_EXCLUSIVE)) < 0) {
            if (locked != -Posix.EAGAIN && locked != -Posix.EACCES) {
                throw Creation.failed(path, "its byte A cannot be locked", -locked);
            }
            if (Deadline.passed(deadline)) {
                throw new LockFileException(Reason.BUSY, path, "for 10 s others were attaching or detaching",
                        "one of them may be stopped. Attached: " + describeParticipants());
            }
            Attachment.sleep(1);
        }
        Failpoint.after("attach: A locked");
    }

    private void releaseA() {
        CALLS.ofdLock(fd, Layout.BYTE_A, 1, NativeCalls.OFD_UNLOCK);
    }

    private String describeParticipants() {
        try (Attached look = new Attached(inspect(path, settings))) {
            return look.attachment.participants().list().stream().map(Object::toString)
                    .collect(Collectors.joining("; "));
        } catch (LockFileException | RuntimeException unreadable) {
            return "unknown, as " + unreadable.getMessage();
        }
    }

    private record Attached(Attachment attachment) implements AutoCloseable {
        @Override
        public void close() {
            attachment.release();
        }
    }

    private boolean isStill(Posix.Status status) {
        try {
            return POSIX.status(path.toString()).isSameFile(status);
        } catch (Posix.ErrnoException gone) {
            return false;
        }
    }

    /** Under byte A. */
    private void attach(Posix.Status status) throws LockFileException {
        boolean alone = CALLS.ofdLock(fd, Layout.BYTE_U, 1, NativeCalls.OFD_EXCLUSIVE) == 0;
        if (status.size() == 0 || isUnfinished(fd, status)) {
            if (!alone) {
                throw new LockFileException(Reason.DAMAGED, path, "it is in use, but empty", "it was truncated");
            }
            Creation.finish(path, fd, settings);
            status = statusOf(path, fd);
        }
        header = readHeader(path, fd, status);
        arena = Arena.ofShared();
        memory = Attachment.map(path, fd, header, arena, Posix.PROT_READ | Posix.PROT_WRITE);
        participants = new Participants(memory, header);
        directory = new Directory(memory, header);
        recovery = new Recovery(memory, header, directory, FUTEX);
        addresses = Arena.ofAuto().allocate(JAVA_LONG, Layout.MAX_PARTICIPANTS + 1);
        expected = Arena.ofAuto().allocate(JAVA_INT, Layout.MAX_PARTICIPANTS + 1);
        page = RobustPage.take();
        tryCalls();
        if (alone) {
            Failpoint.after("attach: alone");
            reset(status);
        }
        int shared = CALLS.ofdLock(fd, Layout.BYTE_U, 1, NativeCalls.OFD_SHARED);
        Creation.requireDone(path, "its byte U cannot be shared", shared);
        Failpoint.after("attach: U shared");
        claim();
        int participant = Layout.id(Layout.generation(cell), slot);
        participants.introduce(slot, Layout.generation(cell), settings.label());
        Failpoint.after("attach: introduced");
        attachment = new Attachment(path, settings, header, fd, status, participant, this);
        thread.setName("fermata-guardian " + Printable.of(path) + " slot " + slot);
        releaseA();
        Failpoint.after("attach: A released");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException exiting) {
            // The process's end is a death then.
        }
    }

    /**
     * Every call that will ever be made, once and without effect: what the kernel or a seccomp filter does not like has
     * to show now, when it is no false death.
     */
    private void tryCalls() throws LockFileException {
        require("membarrier", CALLS.membarrierRegister());
        require("membarrier", CALLS.membarrier());
        require("set_robust_list", page.register());
        long control = page.control().segment().address();
        addresses.setAtIndex(JAVA_LONG, 0, control);
        expected.setAtIndex(JAVA_INT, 0, -1); // it is 0 or little more: no sleep
        int waited = CALLS.futexWaitAny(addresses, expected, 1, 0);
        if (waited != -Posix.EAGAIN) {
            require("futex_waitv", waited);
        }
        waited = CALLS.futexWait(page.control().segment(), -1, 0);
        if (waited != -Posix.EAGAIN) {
            require("futex", waited);
        }
        require("futex", CALLS.futexWake(control, 1));
        require("fcntl with F_OFD_GETLK", CALLS.ofdTest(fd, Layout.BYTE_A, 1, NativeCalls.OFD_EXCLUSIVE));
    }

    private void require(String call, int result) throws LockFileException {
        if (result < 0 && !(call.equals("membarrier") && header.isSymmetric())) {
            throw new LockFileException(Reason.REFUSED_BY_KERNEL, path,
                    "the kernel refuses " + call + ": " + POSIX.describe(-result), call.equals("membarrier")
                    ? "it is needed here; create the file with symmetric(), which does without"
                    : "locks cannot survive a death without it. A container's seccomp profile may have to allow it");
        }
    }

    /** Nobody is attached, whatever the cells say. What owners there are is left to the sweep. */
    private void reset(Posix.Status status) throws LockFileException {
        syncDirectory();
        String place = place(status);
        boolean elsewhere = !Participants.loadText(memory, Layout.H_PLACE, Layout.H_PLACE_SIZE).equals(place);
        for (int s = 0; s < participants.count(); s++) {
            long busy = participants.cell(s);
            if (Layout.lifeline(busy) != 0) {
                Word.storeRelease(memory, Layout.H_DIRTY, 1);
                participants.cas(s, busy, Layout.cell(Layout.nextGeneration(Layout.generation(busy)), 0));
                Failpoint.after("reset: cell");
            }
        }
        if (elsewhere) {
            // After a power loss, and in a copy, owners may be younger than their cells.
            recovery.sweep(id -> true);
            Failpoint.after("reset: swept");
            participants.store(Layout.H_PLACE, Layout.H_PLACE_SIZE, place);
        }
    }

    private void syncDirectory() throws LockFileException {
        Path parent = path.toAbsolutePath().getParent();
        int directory = POSIX.open(parent.toString(), Posix.O_RDONLY | Posix.O_DIRECTORY | Posix.O_CLOEXEC, 0);
        if (directory >= 0) { // a directory may be searched, but not read: then its name is as durable as can be had
            POSIX.fsync(directory);
            POSIX.close(directory);
        }
    }

    private static String place(Posix.Status status) {
        return "boot %s device %x inode %x".formatted(BOOT, status.device(), status.inode());
    }

    private static String boot() {
        try {
            return Files.readString(BOOT_ID).strip();
        } catch (IOException hidden) {
            return ""; // as if it were always the same boot
        }
    }

    /** Takes a slot: byte, list, cell, in this order. */
    private void claim() throws LockFileException {
        long deadline = System.nanoTime() + PATIENCE;
        while (true) {
            boolean beingTornDown = false;
            boolean again = false; // a slot that has just changed
            for (int s : participants.longestUnusedFirst()) {
                if (Layout.lifeline(participants.cell(s)) != 0) {
                    beingTornDown |= Layout.isDied(participants.cell(s));
                } else if (CALLS.ofdLock(fd, header.cell(s), 1, NativeCalls.OFD_EXCLUSIVE) < 0) {
                    beingTornDown = true;
                } else if (claim(s)) {
                    return;
                } else {
                    CALLS.ofdLock(fd, header.cell(s), 1, NativeCalls.OFD_UNLOCK);
                    again = true;
                }
            }
            recover(participants.scan());
            if (!beingTornDown && !again || Deadline.passed(deadline)) {
                throw new LockFileException(Reason.TOO_MANY_PARTICIPANTS, path,
                        "all %d slots are taken".formatted(participants.count()),
                        "end one of them, or create the file with more participants. Attached: "
                                + participants.list().stream().map(Object::toString).collect(Collectors.joining("; ")));
            }
            Attachment.sleep(1);
        }
    }

    private boolean claim(int s) {
        Failpoint.after("attach: byte locked");
        long free = participants.cell(s);
        if (Layout.lifeline(free) != 0) {
            return false;
        }
        if (!Layout.isParticipant(Layout.id(Layout.generation(free), s))) { // no generation that was ever written
            participants.cas(s, free, Layout.cell(Layout.nextGeneration(Layout.generation(free)), 0));
            return false;
        }
        page.pointAt(participants.lifelineAddress(s));
        int lifeline = POSIX.threadId() | Layout.WAITERS;
        participants.lifelineCopy(s).storeRelaxed(lifeline);
        Failpoint.after("attach: list set");
        long mine = Layout.cell(Layout.generation(free), lifeline);
        if (!participants.cas(s, free, mine)) {
            page.empty();
            return false;
        }
        slot = s;
        cell = mine;
        Failpoint.after("attach: claimed");
        return true;
    }

    /** Opening has failed somewhere on the way. */
    private void giveUp() {
        try {
            if (cell != 0) {
                participants.cas(slot, cell, Layout.cell(Layout.nextGeneration(Layout.generation(cell)), 0));
            }
        } finally {
            if (page != null) {
                page.giveBack(); // before the mapping goes that it points into
            }
            if (arena != null) {
                arena.close();
            }
            if (fd >= 0) {
                POSIX.close(fd); // and all its byte locks
            }
        }
    }

    /** An attachment for looking only: without a guardian, a participant or a lock. */
    static Attachment inspect(Path path, Settings settings) throws LockFileException {
        int fd = openFile(path, settings.forInspection(), Posix.O_RDONLY);
        try {
            Posix.Status status = statusOf(path, fd);
            if (!status.isRegular()) {
                throw new LockFileException(
                        Reason.NOT_A_LOCK_FILE, path, "it is not a regular file", "choose another path");
            }
            return new Attachment(path, settings, readHeader(path, fd, status), fd, status, 0, null);
        } catch (LockFileException | RuntimeException refused) {
            POSIX.close(fd);
            throw refused;
        }
    }

    // ---- watching ----

    /** One round; whether the participant is detached now. Nothing may end the thread before. */
    private boolean watch() {
        try {
            if (closing) {
                attend(); // as long as it can be looked up who died
                if (detach()) {
                    return true;
                }
            }
            if (attachment.isDamaged()) {
                pass(); // there is nothing left to look at
                return false;
            }
            long[] cells = participants.scan();
            unsure = false;
            if (Word.loadAcquire(memory, Layout.H_DIRTY) != 0) {
                recover(cells);
                if (!unsure) {
                    Word.storeRelease(memory, Layout.H_DIRTY, 0);
                }
                return false;
            }
            if (anyDied(cells)) {
                recoverInTurn(cells);
                cells = participants.scan();
                unsure = anyDied(cells);
            }
            if (System.nanoTime() - nextLook >= 0) {
                nextLook = System.nanoTime() + LOOK;
                look(cells);
            }
            await(cells, unsure ? TURN : nextLook - System.nanoTime());
        } catch (DamagedMappingException damaged) {
            attachment.damaged(damaged);
        } catch (InternalError lost) {
            fail(lost);
        } catch (Throwable unexpected) {
            System.getLogger("dev.fermata").log(
                    Level.ERROR, "the guardian of " + Printable.of(path) + " goes on after", unexpected);
            pass();
        }
        return false;
    }

    private void fail(InternalError lost) {
        try {
            attachment.damaged(DamagedMappingException.of(lost));
        } catch (InternalError other) {
            System.getLogger("dev.fermata").log(
                    Level.ERROR, "the guardian of " + Printable.of(path) + " goes on after", other);
            pass();
        }
    }

    /** Sleeps on the control word alone. */
    private void pass() {
        answerCalls();
        if (closing) {
            Attachment.sleep(1);
        } else {
            FUTEX.wait(page.control(), calls, System.nanoTime() + LOOK);
        }
    }

    private static boolean anyDied(long[] cells) {
        for (long c : cells) {
            if (Layout.isDied(c)) {
                return true;
            }
        }
        return false;
    }

    /** What this process waits for first; then everything, each guardian in its turn unless another has done it. */
    private void recoverInTurn(long[] cells) {
        long[] dead = cells.clone();
        if (attachment.survey(dead)) {
            for (int number : attachment.awaited()) {
                recovery.repair(number, Recovery.Dead.by(dead));
            }
        }
        int before = 0;
        for (int s = 0; s < slot; s++) {
            before += Layout.lifeline(cells[s]) != 0 && !Layout.isDied(cells[s]) ? 1 : 0;
        }
        long deadline = System.nanoTime() + before * TURN;
        while (before > 0 && !Deadline.passed(deadline) && !closing) {
            await(cells, deadline - System.nanoTime());
            long[] now = participants.scan();
            if (!anyDied(now)) {
                return;
            }
            cells = now;
        }
        recover(cells);
    }

    /** Sweeps for all that are dead by these cells, and frees their slots at last. */
    private void recover(long[] cells) {
        long[] dead = cells.clone();
        if (attachment == null ? !surveyAlone(dead) : !attachment.survey(dead)) {
            unsure = true;
            return;
        }
        Failpoint.after("recover: barrier");
        recovery.sweep(Recovery.Dead.by(dead));
        Failpoint.after("recover: swept");
        for (int s = 0; s < dead.length; s++) {
            if (Layout.isDied(dead[s])) {
                participants.cas(s, dead[s], Layout.cell(Layout.nextGeneration(Layout.generation(dead[s])), 0));
                Failpoint.after("recover: freed");
            }
        }
    }

    private boolean surveyAlone(long[] cells) {
        return Attachment.survey(cells, header, fd);
    }

    /** Once a second: is the file whole, in its place, and is everybody there who says so? */
    private void look(long[] cells) {
        attachment.clock = (int) (System.currentTimeMillis() / 1000);
        attachment.markEndedThreads(participants);
        attachment.finishLocks();
        long size = sizeByName();
        if (size < 0) {
            size = sizeByDescriptor();
        }
        if (size != header.fileSize()) {
            throw Directory.damaged("the file has %d bytes".formatted(size), Long.toString(header.fileSize()));
        }
        directory.requireWhole();
        lookAtNext(cells);
        if (participants.cell(slot) != cell) {
            throw Directory.damaged("this participant's cell holds 0x%x".formatted(participants.cell(slot)),
                    "0x%x".formatted(cell));
        }
    }

    /**
     * Is the next participant there, who says so? One in each look, of all guardians each another: a call for each of them
     * from each guardian would be thousands a second.
     */
    private void lookAtNext(long[] cells) {
        for (int i = 0; i < cells.length; i++) {
            looked = (looked + 1) % cells.length;
            int s = (slot + looked) % cells.length;
            if (s != slot && Layout.lifeline(cells[s]) != 0 && !Layout.isDied(cells[s])) {
                // Cell first, byte second: whoever is there holds it for longer than the cell says so.
                if (attachment.isByteFree(s)) {
                    participants.cas(s, cells[s], Layout.cell(Layout.generation(cells[s]), Layout.DEAD));
                    unsure = true;
                }
                return;
            }
        }
    }

    /** The file's size, or -1 if its name does not tell: then that may be because it was replaced. */
    private long sizeByName() {
        try {
            Posix.Status there = POSIX.status(path.toString());
            if (there.isSameFile(attachment.status())) {
                return there.size();
            }
            attachment.replaced("another file is there, inode %d instead of %d".formatted(
                    there.inode(), attachment.status().inode()));
        } catch (Posix.ErrnoException e) {
            if (e.errno == Posix.ENOENT || e.errno == Posix.ENOTDIR) { // else it is out of sight, which says nothing
                attachment.replaced("there is no file of that name");
            }
        }
        return -1;
    }

    private long sizeByDescriptor() {
        try {
            return POSIX.status(fd).size();
        } catch (Posix.ErrnoException e) {
            throw new AssertionError(
                    "the status of " + Printable.of(path) + " cannot be read: " + POSIX.describe(e.errno));
        }
    }

    /** Sleeps until a lifeline is not what it was, or this guardian is called, or the time is over. */
    private void await(long[] cells, long nanos) {
        answerCalls();
        addresses.setAtIndex(JAVA_LONG, 0, page.control().segment().address());
        expected.setAtIndex(JAVA_INT, 0, calls);
        int n = 1;
        for (int s = 0; s < cells.length; s++) {
            if (s != slot) {
                addresses.setAtIndex(JAVA_LONG, n, participants.lifelineAddress(s));
                expected.setAtIndex(JAVA_INT, n, Layout.lifeline(cells[s]));
                n++;
            }
        }
        if (closing) {
            return;
        }
        int woken = CALLS.guard(addresses, expected, n, System.nanoTime() + Math.max(nanos, 0));
        Futex.Result result = Futex.SystemFutex.result(woken);
        if (woken > 0) {
            Attachment.sleep(1); // who waits for the dead knows as well, and is to have the processor first
        }
        if (result == Futex.Result.FAULT) {
            throw Directory.damaged("the page of a lifeline is gone", "a whole file");
        }
        if (result == Futex.Result.INVALID || result == Futex.Result.UNSUPPORTED) {
            throw new AssertionError("the kernel refused to wait for lifelines: " + result);
        }
    }

    // ---- leaving ----

    /** Detaches. Returns when that is done, or takes unusually long. */
    void close() {
        closing = true;
        call();
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException exiting) {
            // then it runs
        }
        boolean interrupted = false;
        try {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CLOSE_SECONDS);
            while (true) {
                try {
                    ended.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                    return;
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** The shutdown hook. Who holds a lock does not detach: then the process's end is a death. */
    private void exit() {
        exiting = true;
        closing = true;
        call();
        try {
            ended.await(1, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            // the end comes all the same
        }
    }

    private void call() {
        page.control().addRelaxed(1);
        FUTEX.wake(page.control(), Futex.ALL);
    }

    /** What is said here is done before it sleeps again. */
    private void answerCalls() {
        calls = page.control().loadAcquire(); // first: who calls later is not slept over
        attend();
    }

    /** Has the guardian do, in a moment, what would hold up the caller. */
    void defer(Runnable note) {
        synchronized (notes) {
            notes.add(note);
        }
        call();
        if (ended.getCount() == 0) {
            attend();
        }
    }

    /** Does what was deferred, once those who deferred it have had the processor. */
    private void attend() {
        Runnable note = next();
        if (note != null && !closing) {
            Attachment.sleep(1);
        }
        for (; note != null; note = next()) {
            note.run();
        }
    }

    private Runnable next() {
        synchronized (notes) {
            return notes.poll();
        }
    }

    private boolean detach() {
        attachment.fail(() -> new LockFileClosedException(path));
        boolean damaged = attachment.isDamaged();
        int me = Layout.id(Layout.generation(cell), slot);
        if (!damaged) {
            if (exiting && !held(me).isEmpty()) {
                ended.countDown();
                Attachment.sleep(1000);
                return false;
            }
            for (int number : attachment.awaited()) {
                wakeWaiters(header.entry(number) + Layout.E_EVENTS);
                if (Layout.hasSecondEvents(Layout.type(directory.kind(number)))) {
                    wakeWaiters(directory.ownOffset(number) + Layout.O_EVENTS);
                }
            }
        }
        if (attachment.isAwaited() || !attachment.closeMapping()) {
            Attachment.sleep(1);
            return false;
        }
        Failpoint.after("detach: unmapped");
        // From here on no thread of this process can touch the file.
        if (!damaged) {
            report(held(me));
            recovery.sweep(id -> id == me);
            long[] cells = participants.scan();
            if (anyDied(cells)) {
                recover(cells);
            }
            try {
                awaitA();
            } catch (LockFileException busy) {
                // Without A the slot is not freed. The end of this thread marks it, and others free it; for that the
                // mapping has to stay, and the bytes must not be taken by others before.
                return true;
            }
            participants.cas(slot, cell, Layout.cell(Layout.nextGeneration(Layout.generation(cell)), 0));
            Failpoint.after("detach: freed");
        }
        page.giveBack();
        Failpoint.after("detach: list empty");
        arena.close();
        POSIX.close(fd); // with its bytes: the slot's, U and A
        return true;
    }

    private void wakeWaiters(long at) {
        Word events = Word.at(memory, at);
        int e = events.loadAcquire();
        events.casRelease(e, Layout.nextEpoch(e)); // or another did
        FUTEX.wake(events, Futex.ALL);
    }

    /** The entries that this process owns. */
    private List<Integer> held(int me) {
        List<Integer> held = new ArrayList<>();
        int used = Math.min(Word.loadAcquire(memory, Layout.H_USED), header.entries());
        for (int number = 0; number < used; number++) {
            if (Word.loadAcquire(memory, header.entry(number) + Layout.E_OWNER) == me) {
                held.add(number);
            }
        }
        return held;
    }

    /** Says what becomes abandoned; later, as a log may block. */
    private void report(List<Integer> held) {
        if (held.isEmpty()) {
            return;
        }
        String names = held.stream().limit(NAMED).map(number -> '"' + Printable.of(directory.name(number)) + '"')
                .collect(Collectors.joining(", ")) + (held.size() > NAMED ? ", and %d more".formatted(held.size() - NAMED) : "");
        synchronized (notes) {
            notes.add(() -> System.getLogger("dev.fermata").log(Level.WARNING,
                    "{0} was closed while this process held {1}: abandoned now, and the next owner is told",
                    Printable.of(path), names));
        }
    }
}
