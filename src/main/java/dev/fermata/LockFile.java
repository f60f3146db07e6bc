// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Attachment;
import dev.fermata.internal.Entry;
import dev.fermata.internal.Eviction;
import dev.fermata.internal.Header;
import dev.fermata.internal.Layout;
import dev.fermata.internal.Printable;
import dev.fermata.internal.Settings;
import dev.fermata.internal.SpinBudget;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A file of named locks, shared by all processes that open it.
 *
 * <p>Opening makes the process a <em>participant</em>, with one thread that watches over the others: its guardian. In
 * one JVM a file is open at most once, whatever path it is opened by; every {@code LockFile} of it is a further handle,
 * and the process detaches when the last one is closed. Label, {@code stuckAfter}, {@code spin} and path of the first one
 * count for all of them. Locks that were found through one handle can be used as long as any is open.
 *
 * <p>The file is never deleted by this library, and nothing in it is: locks stay when everybody has left. Delete it only
 * while nobody uses it; those who have it open then get {@link LockFileReplacedException}.
 *
 * <p>A process's death, in any way, is noticed by the others within milliseconds: its slot is taken back and its locks
 * become abandoned, see {@link SharedMutex}. If it was the last one, the next who opens the file does that.
 *
 * <p>Threads. A guardian for each open file, which is a daemon and ends with {@link #close}. Where virtual threads or
 * asynchronous requests wait for locks, daemons named {@code fermata-reactor} wait for them, for all files; one that had
 * nothing to do for ten seconds ends. When the JVM exits, a hook detaches the process, unless it holds locks: then its end
 * is a death, as if it had been killed. The classes, the shim included, belong to the class loader that loaded them: close
 * every file before it is given up.
 *
 * <p>Safe for use by several threads.
 */
public final class LockFile implements AutoCloseable {
    private static final Duration DEFAULT_STUCK_AFTER = Duration.ofSeconds(2);

    private final Attachment attachment;
    private final boolean strict;
    private volatile boolean closed;

    private LockFile(Attachment attachment, boolean strict) {
        this.attachment = attachment;
        attachment.finishWith(OverMutex::finish);
        this.strict = strict;
    }

    /**
     * Opens a lock file, and creates it if there is none: for 64 processes and 1024 locks, usable by this user only.
     *
     * @param path where; on tmpfs (such as {@code /dev/shm}), ext4, xfs or btrfs
     * @return a handle of the file
     * @throws LockFileException if it can't be created or opened; its {@link LockFileException#reason} says which kind
     * @throws IllegalArgumentException if the path is not one of the default file system, but of an archive, for one
     */
    public static LockFile open(Path path) throws LockFileException {
        return builder(path).open();
    }

    /**
     * Begins to open a lock file with other options.
     *
     * @param path where
     * @return a builder
     * @throws IllegalArgumentException if the path is not one of the default file system
     */
    public static Builder builder(Path path) {
        return new Builder(path);
    }

    /** How a file is to be opened, and made if there is none. Sizes count for a new file only. */
    public static final class Builder {
        private final Path path;
        private int participants = 64;
        private int capacity = 1024;
        private long payload = -1;
        private boolean symmetric;
        private int permissions = 0600;
        private boolean create = true;
        private boolean anyFileSystem;
        private boolean readOnly;
        private String label = "";
        private OwnerDeath ownerDeath = OwnerDeath.GRANT;
        private Duration stuckAfter = DEFAULT_STUCK_AFTER;
        private long spin = SpinBudget.MEASURED;

        private Builder(Path path) {
            this.path = Objects.requireNonNull(path, "path");
            require(path.getFileSystem() == FileSystems.getDefault(), "path",
                    Printable.of(path + " of " + path.getFileSystem()),
                    "one of the default file system, which the kernel can map");
            require(!path.toString().isEmpty(), "path", "an empty one", "the name of a file");
        }

        /**
         * How many processes can have a new file open at the same time.
         *
         * @param participants 1 to 127; default 64
         * @return this
         * @throws IllegalArgumentException if it is out of range
         */
        public Builder participants(int participants) {
            require(participants >= 1 && participants <= Layout.MAX_PARTICIPANTS, "participants", participants,
                    "1 to " + Layout.MAX_PARTICIPANTS);
            this.participants = participants;
            return this;
        }

        /**
         * How many locks a new file can hold, at least.
         *
         * @param locks 1 to some 134 million; default 1024
         * @return this
         * @throws IllegalArgumentException if it is out of range
         */
        public Builder capacity(int locks) {
            require(locks >= 1 && locks <= Header.maxCapacity(), "capacity", locks, "1 to " + Header.maxCapacity());
            this.capacity = locks;
            return this;
        }

        /**
         * How many bytes of payload a new file can hold, for all locks together. A payload is rounded up to 64 bytes, and
         * the bytes of names of more than 32 bytes count, too.
         *
         * @param bytes 0 to some 137 billion; default 64 for each lock
         * @return this
         * @throws IllegalArgumentException if it is out of range
         */
        public Builder payload(long bytes) {
            require(bytes >= 0 && bytes <= Header.maxPayload(), "payload", bytes, "0 to " + Header.maxPayload());
            this.payload = bytes;
            return this;
        }

        /**
         * Makes a new file that does without the process-wide barrier: each release has a full fence instead. For kernels
         * without membarrier, and for those who do not want its interrupts. Slower without contention.
         *
         * @return this
         */
        public Builder symmetric() {
            this.symmetric = true;
            return this;
        }

        /**
         * Who may use a new file; the umask has no say. Every user needs to read and write. An empty file that is made a
         * lock file keeps what it has.
         *
         * @param permissions of the file; default {@code rw-------}
         * @return this
         * @throws IllegalArgumentException if the owner may not read and write it
         */
        public Builder permissions(Set<PosixFilePermission> permissions) {
            int mode = 0;
            String text = PosixFilePermissions.toString(Objects.requireNonNull(permissions, "permissions"));
            require(text.startsWith("rw"), "permissions", text, "at least rw for the owner");
            for (char c : text.toCharArray()) {
                mode = mode << 1 | (c == '-' ? 0 : 1);
            }
            this.permissions = mode;
            return this;
        }

        /**
         * What this process is called in messages and inspections.
         *
         * @param label at most 128 bytes in UTF-8
         * @return this
         * @throws IllegalArgumentException if it is too long
         */
        public Builder label(String label) {
            int bytes = Objects.requireNonNull(label, "label").getBytes(StandardCharsets.UTF_8).length;
            require(bytes <= Layout.P_LABEL_SIZE, "label", bytes + " bytes", "at most " + Layout.P_LABEL_SIZE);
            this.label = label;
            return this;
        }

        /**
         * Creates the file if there is none; the default.
         *
         * @return this
         */
        public Builder createIfMissing() {
            this.create = true;
            return this;
        }

        /**
         * Creates nothing: a file that is missing is an error.
         *
         * @return this
         */
        public Builder mustExist() {
            this.create = false;
            return this;
        }

        /**
         * Only to look: names, states, participants. The process attaches to nothing and can lock nothing; a file that
         * can only be read is enough.
         *
         * @return this
         */
        public Builder readOnly() {
            this.readOnly = true;
            return this;
        }

        /**
         * Does not ask what file system the file is on. Locks may then fail to exclude, deaths go unnoticed.
         *
         * @return this
         */
        public Builder anyFileSystem() {
            this.anyFileSystem = true;
            return this;
        }

        /**
         * What an owner's death does to locks that are made through this handle.
         *
         * @param ownerDeath default {@link OwnerDeath#GRANT}
         * @return this
         */
        public Builder ownerDeath(OwnerDeath ownerDeath) {
            this.ownerDeath = Objects.requireNonNull(ownerDeath, "ownerDeath");
            return this;
        }

        /**
         * After how long a waiter reports that a lock does not move: same owner, same acquisition.
         *
         * @param duration default 2 s; looked at once a second
         * @return this
         * @throws IllegalArgumentException if it is not above zero
         */
        public Builder stuckAfter(Duration duration) {
            require(Objects.requireNonNull(duration, "duration").isPositive(), "stuckAfter", duration, "more than 0");
            this.stuckAfter = duration;
            return this;
        }

        /**
         * For how long a thread that finds a lock taken looks at it before it sleeps, using a processor meanwhile. By
         * default at most for as long as a sleep and wake takes here, which is measured at the first opening: 1 to 20 µs;
         * and less for a lock where that has not helped lately. What is set here is kept to, for each lock and each
         * wait. On a single processor nobody spins, whatever is set.
         *
         * @param duration from 0, which never spins, to 1 ms; counted in ns
         * @return this
         * @throws IllegalArgumentException if it is negative or longer
         */
        public Builder spin(Duration duration) {
            Objects.requireNonNull(duration, "duration");
            require(!duration.isNegative() && duration.compareTo(Duration.ofNanos(SpinBudget.MAX)) <= 0, "spin", duration,
                    "0 to 1 ms");
            this.spin = duration.toNanos();
            return this;
        }

        /**
         * Opens the file. Waits for at most 10 s for others who attach or detach.
         *
         * @return a handle of the file
         * @throws LockFileException if it can't be created or opened
         */
        public LockFile open() throws LockFileException {
            return new LockFile(Attachment.open(path, new Settings(participants, capacity,
                    payload < 0 ? (long) capacity * Layout.LINE : payload, symmetric, permissions, create && !readOnly,
                    anyFileSystem, readOnly, label,
                    java.util.concurrent.TimeUnit.NANOSECONDS.convert(stuckAfter), spin)), ownerDeath == OwnerDeath.STRICT);
        }

        private static void require(boolean condition, String what, Object found, String expected) {
            if (!condition) {
                throw new IllegalArgumentException("%s: found %s, expected %s".formatted(what, found, expected));
            }
        }
    }

    /**
     * The mutex of a name, made if there is none, without payload, and for good: what a name stands for never changes. Only
     * to look, use {@link #find}. For one name always the same object, until the last handle is closed.
     *
     * @param name 1 to 255 bytes in UTF-8, compared byte by byte; no NUL
     * @return the mutex
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one
     * @throws LockMismatchException if there is a lock of another type with that name
     */
    public SharedMutex mutex(String name) {
        Object known = attachment.locks().get(Objects.requireNonNull(name, "name"));
        return known instanceof SharedMutex mutex && !closed && attachment.trouble() == null
                ? mutex : mutex(name, -1, null);
    }

    /**
     * The mutex of a name that protects bytes in the file.
     *
     * @param name 1 to 255 bytes in UTF-8, compared byte by byte; no NUL
     * @param payloadBytes how many
     * @return the mutex
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one
     * @throws LockMismatchException if there is a lock of another type or payload with that name
     */
    public SharedMutex mutex(String name, long payloadBytes) {
        return mutex(name, payloadBytes, null);
    }

    /**
     * The mutex of a name, with all that it can be made with.
     *
     * @param name 1 to 255 bytes in UTF-8, compared byte by byte; no NUL
     * @param payloadBytes how many bytes it protects, or -1 for none in a new one and any in one that is there
     * @param ownerDeath what an owner's death does; or {@code null} for the file's in a new one, any in one that is there
     * @return the mutex
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one
     * @throws LockMismatchException if there is a lock of another type or with other parameters with that name
     */
    public SharedMutex mutex(String name, long payloadBytes, OwnerDeath ownerDeath) {
        Objects.requireNonNull(name, "name");
        Builder.require(payloadBytes >= -1 && payloadBytes <= Header.maxPayload(), "payloadBytes", payloadBytes,
                "-1 to " + Header.maxPayload());
        return guarded(() -> {
            attachment.check();
            boolean refusing = ownerDeath == null ? strict : ownerDeath == OwnerDeath.STRICT;
            int number = attachment.insert(
                    name, Layout.MUTEX, refusing ? Layout.STRICT : 0, Math.max(payloadBytes, 0), 0);
            require(number, name, Layout.MUTEX);
            requirePayload(number, name, payloadBytes);
            OwnerDeath is = (Layout.flags(attachment.kind(number)) & Layout.STRICT) != 0
                    ? OwnerDeath.STRICT : OwnerDeath.GRANT;
            if (ownerDeath != null && ownerDeath != is) {
                throw new LockMismatchException(name, "a mutex with owner death " + is, ownerDeath.toString());
            }
            return object(name, number);
        });
    }

    /** Finds the lock of a name, or makes it; refuses one that is another. */
    private <T> T primitive(String name, Class<T> as, int type, int flags, long payload, long parameter,
            Function<Entry, T> make) {
        Objects.requireNonNull(name, "name");
        return guarded(() -> {
            attachment.check();
            int number = attachment.insert(name, type, flags, payload, parameter);
            require(number, name, type);
            requirePayload(number, name, payload);
            int madeWith = Layout.flags(attachment.kind(number));
            if (madeWith != flags || attachment.parameter(number) != parameter) {
                throw new LockMismatchException(name, described(type, madeWith, attachment.parameter(number)),
                        described(type, flags, parameter));
            }
            return as.cast(attachment.locks().computeIfAbsent(
                    name, key -> make.apply(new Entry(attachment, number, key))));
        });
    }

    private static String described(int type, int flags, long parameter) {
        return Layout.typeName(type) + " made with " + parameter + (flags == 0 ? "" : " and flags 0x%x".formatted(flags));
    }

    private void requirePayload(int number, String name, long payloadBytes) {
        long size = attachment.payloadSize(number);
        if (payloadBytes >= 0 && size != payloadBytes) {
            throw new LockMismatchException(name, Layout.typeName(Layout.type(attachment.kind(number))) + " with " + size
                    + " bytes of payload", payloadBytes + " bytes");
        }
    }

    private void require(int number, String name, int type) {
        int found = Layout.type(attachment.kind(number));
        if (found != type) {
            throw new LockMismatchException(name, Layout.typeName(found), Layout.typeName(type));
        }
    }

    /** Whatever looks into the file through this handle. */
    private <T> T guarded(Supplier<T> look) {
        if (closed) {
            throw new LockFileClosedException(path());
        }
        return attachment.guarded(look);
    }

    private SharedMutex object(String name, int number) {
        return (SharedMutex) attachment.locks().computeIfAbsent(
                name, key -> new SharedMutex(attachment, number, key));
    }

    /**
     * The sequence of a name, made if there is none: at 0, without payload.
     *
     * @param name 1 to 255 bytes in UTF-8, compared byte by byte; no NUL
     * @return the sequence, for one name always the same object
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one
     * @throws LockMismatchException if there is something else with that name
     */
    public SharedSequence sequence(String name) {
        return sequence(name, 0);
    }

    /**
     * The sequence of a name, with bytes in the file that are published by it.
     *
     * @param name 1 to 255 bytes in UTF-8, compared byte by byte; no NUL
     * @param payloadBytes how many
     * @return the sequence, for one name always the same object
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one
     * @throws LockMismatchException if there is something else with that name, or with another payload
     */
    public SharedSequence sequence(String name, long payloadBytes) {
        requirePayloadSize(payloadBytes);
        return primitive(name, SharedSequence.class, Layout.SEQUENCE, 0, payloadBytes, 0, SharedSequence::new);
    }

    /**
     * The striped mutex of a name, made if there is none; each of its stripes is a lock of the file.
     *
     * @param name 1 to 255 bytes in UTF-8 together with a separator and a stripe's number, compared byte by byte; no NUL
     * @param stripes how many, 1 to 1048576
     * @return the striped mutex, for one name always the same object
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one with all its stripes
     * @throws LockMismatchException if there is something else with that name, or with another number of stripes
     */
    public StripedMutex stripedMutex(String name, int stripes) {
        Builder.require(stripes >= 1 && stripes <= StripedMutex.MAX, "stripes", stripes, "1 to " + StripedMutex.MAX);
        return primitive(name, StripedMutex.class, Layout.STRIPES, 0, 0, stripes, StripedMutex::new)
                .over(stripe -> mutex(StripedMutex.stripe(name, stripe)));
    }

    /**
     * The election of a name, made if there is none.
     *
     * @param name 1 to 255 bytes in UTF-8, compared byte by byte; no NUL
     * @return the election, for one name always the same object
     * @throws LockNameException if the name can't be one
     * @throws LockFileFullException if there is no room for a new one
     * @throws LockMismatchException if there is something else with that name
     */
    public LeaderElection leaderElection(String name) {
        return primitive(name, LeaderElection.class, Layout.ELECTION, 0, 0, 0, LeaderElection::new);
    }

    private static void requirePayloadSize(long bytes) {
        Builder.require(bytes >= 0 && bytes <= Header.maxPayload(), "payloadBytes", bytes, "0 to " + Header.maxPayload());
    }

    /**
     * The mutex of a name, if there is one. Nothing is made.
     *
     * @param name the name
     * @return the mutex, or empty
     * @throws LockNameException if the name can't be one
     * @throws LockMismatchException if there is a lock of another type with that name
     */
    public Optional<SharedMutex> find(String name) {
        Objects.requireNonNull(name, "name");
        return guarded(() -> {
            int number = attachment.find(name);
            if (number < 0) {
                return Optional.empty();
            }
            require(number, name, Layout.MUTEX);
            return Optional.of(object(name, number));
        });
    }

    /**
     * The names of all locks, but not of parts of them such as stripes. One that is being made may be in it or not.
     *
     * @return a new list, in no order
     */
    public List<String> names() {
        return guarded(() -> attachment.names().stream().filter(name -> name.indexOf(Layout.PART) < 0).toList());
    }

    /**
     * What a lock looks like now.
     *
     * @param name the name
     * @return a snapshot, or empty if there is no such lock
     */
    public Optional<LockInfo> info(String name) {
        return find(name).map(SharedMutex::info);
    }

    /**
     * The processes that have the file open, this one included, and those that are dead and not yet cleared away.
     *
     * @return a new list, in the order of their slots
     */
    public List<Participant> participants() {
        return guarded(attachment.participants()::list);
    }

    /**
     * This process as the others see it.
     *
     * @return the participant
     * @throws UnsupportedOperationException if the file is open for reading only
     */
    public Participant self() {
        if (attachment.participant == 0) {
            attachment.check();
        }
        return guarded(() -> attachment.participants().describe(attachment.participant));
    }

    /**
     * Ends another participant's process by SIGKILL; recovery does the rest. This is the only way to take a lock from a
     * live holder. The process is identified first, by its start time and its pid namespace, and ended through a
     * descriptor, so that no other process can be hit.
     *
     * @param participant whom, from {@link #participants} or {@link LockInfo#owner}
     * @throws EvictionException if nothing was done: it is dead already or this very process, is of another file, is in
     *     another pid namespace, is no longer the process that attached, or this process may not
     */
    public void evict(Participant participant) throws EvictionException {
        Objects.requireNonNull(participant, "participant");
        Eviction.evict(participant, guarded(() -> attachment.isValidId(participant.id())
                ? attachment.participants().describe(participant.id()) : null));
    }

    /**
     * Where the file is.
     *
     * @return the path that it was first opened by
     */
    public Path path() {
        return attachment.path();
    }

    /**
     * Gives up this handle: it finds no locks any more. The last one in a process detaches it: waiters get
     * {@link LockFileClosedException}, locks that are still held become abandoned, and payloads can't be accessed any
     * more. The file and its locks stay. Has no effect the second time.
     *
     * <p>A thread that is inside a method of a lock just then may find its interrupt flag set beside that exception:
     * HotSpot does that to threads that it meets in a mapping that is being closed.
     */
    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            attachment.release();
        }
    }

    @Override
    public String toString() {
        RuntimeException trouble = closed ? new LockFileClosedException(path()) : attachment.trouble();
        return "LockFile[%s]".formatted(
                trouble == null ? Printable.of(path()) : trouble.getMessage()); // which names the path
    }
}
