// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;

/** What tests need from the kernel and Java does not offer. */
public final class Kernel {
    /** A signal that HotSpot does not use, and that is ignored as long as it has no handler. */
    public static final int SIGURG = 23;

    private static final boolean X86 = System.getProperty("os.arch").equals("amd64");
    private static final int SYS_FUTEX = X86 ? 202 : 98;
    private static final int SYS_FUTEX_WAITV = 449;
    /** Whether the tests are run without that call; see {@code dev.fermata.Fermata}. */
    private static final boolean POLLING = System.getProperty("dev.fermata.waitv", "on").equals("off");
    private static final Pattern SHARED_WAIT = Pattern.compile(SYS_FUTEX + " 0x[0-9a-f]+ 0x9 ");
    private static final int SYS_MEMBARRIER = X86 ? 324 : 283;
    private static final int SYS_PIDFD_OPEN = 434;
    private static final int SYS_PROCESS_MRELEASE = 448;
    private static final int MEMBARRIER_GET_REGISTRATIONS = 512;
    private static final int O_RDWR = 2;
    private static final int O_CLOEXEC = 0x80000;

    private static final MethodHandle GETTID = function("gettid", FunctionDescriptor.of(JAVA_INT));
    private static final MethodHandle TGKILL =
            function("tgkill", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT));
    private static final MethodHandle SIGNAL = function("signal", FunctionDescriptor.of(ADDRESS, JAVA_INT, ADDRESS));
    private static final MethodHandle SIGINTERRUPT =
            function("siginterrupt", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
    private static final MethodHandle OPEN = function("open",
            FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT), Linker.Option.firstVariadicArg(2));
    private static final MethodHandle CLOSE = function("close", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    private static final MethodHandle SYSCALL = function("syscall",
            FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
            Linker.Option.firstVariadicArg(1));

    private Kernel() {
    }

    private static MethodHandle function(String name, FunctionDescriptor type, Linker.Option... options) {
        Linker linker = Linker.nativeLinker();
        return linker.downcallHandle(linker.defaultLookup().findOrThrow(name), type, options);
    }

    /** The calling thread's id. */
    public static int tid() {
        try {
            return (int) GETTID.invokeExact();
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Sends a signal to a thread of this process; whether there was such a thread. */
    public static boolean signal(int tid, int signal) {
        try {
            return (int) TGKILL.invokeExact((int) ProcessHandle.current().pid(), tid, signal) == 0;
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /**
     * Handles a signal by a function that does nothing, so that it does no more than interrupt system calls. The
     * function is libc's {@code abs}: it takes an int, as a handler does, and can be called at any moment.
     */
    static void handle(int signal) {
        install(signal, Linker.nativeLinker().defaultLookup().findOrThrow("abs"));
        try {
            int done = (int) SIGINTERRUPT.invokeExact(signal, 1); // no SA_RESTART
            if (done != 0) {
                throw new AssertionError("siginterrupt failed");
            }
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Back to the default. */
    static void unhandle(int signal) {
        install(signal, MemorySegment.NULL);
    }

    private static void install(int signal, MemorySegment handler) {
        try {
            MemorySegment before = (MemorySegment) SIGNAL.invokeExact(signal, handler);
            if (before.address() == -1) {
                throw new AssertionError("cannot handle signal " + signal);
            }
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Opens a file for reading and writing: a new open file description. */
    public static int open(Path path) {
        try (Arena arena = Arena.ofConfined()) {
            int fd = (int) OPEN.invokeExact(arena.allocateFrom(path.toString()), O_RDWR | O_CLOEXEC, 0);
            if (fd < 0) {
                throw new AssertionError("cannot open " + path);
            }
            return fd;
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Closes a file. */
    public static void close(int fd) {
        try {
            int done = (int) CLOSE.invokeExact(fd);
            if (done != 0) {
                throw new AssertionError("cannot close " + fd);
            }
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** The commands of membarrier that this process has registered for, as bits; -1 where the kernel cannot tell. */
    public static long membarrierRegistrations() {
        try {
            return (long) SYSCALL.invokeExact((long) SYS_MEMBARRIER, (long) MEMBARRIER_GET_REGISTRATIONS, 0L, 0L);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** SIGKILL, without the detours of {@link Process}. */
    public static void kill(long pid) {
        call(X86 ? 62 : 129, pid, 9);
    }

    /** How often a thread of this process has gone to sleep; 0 where it has ended. */
    public static long sleeps(int tid) throws IOException {
        try (var lines = Files.lines(Path.of("/proc/self/task/" + tid + "/status"))) {
            return lines.filter(line -> line.startsWith("voluntary_ctxt_switches:"))
                    .mapToLong(line -> Long.parseLong(line.substring(line.indexOf(':') + 1).strip())).sum();
        } catch (IOException | UncheckedIOException e) {
            if (!Files.exists(Path.of("/proc/self/task/" + tid))) {
                return 0;
            }
            throw e;
        }
    }

    /** SIGKILL, and the memory is taken from the dying process at once, as out-of-memory daemons do. */
    public static void killAndReap(long pid) {
        long pidfd = call(SYS_PIDFD_OPEN, pid, 0);
        kill(pid);
        call(SYS_PROCESS_MRELEASE, pidfd, 0); // fails where the process is gone already
        close((int) pidfd);
    }

    private static long call(int number, long a, long b) {
        try {
            return (long) SYSCALL.invokeExact((long) number, a, b, 0L);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Whether a thread sleeps in the futex of the word at an address of its process. */
    public static boolean isAsleepOn(long pid, int tid, long address) {
        return blockedIn(pid, tid).startsWith("%d 0x%x ".formatted(SYS_FUTEX, address));
    }

    /** Whether a thread sleeps on several futexes. */
    public static boolean isAsleepOnSeveral(long pid, int tid) {
        return POLLING ? isAsleepForLong(pid, tid) : blockedIn(pid, tid).startsWith(SYS_FUTEX_WAITV + " ");
    }

    /** Whether a thread goes on sleeping on one shared futex, for longer than the moment that a first sleep lasts. */
    private static boolean isAsleepForLong(long pid, int tid) {
        for (int i = 0; i < 4; i++) {
            if (!SHARED_WAIT.matcher(blockedIn(pid, tid)).lookingAt()) {
                return false;
            }
            LockSupport.parkNanos(1_000_000);
        }
        return true;
    }

    /** SIGSTOP; returns when the process is stopped. */
    public static void stop(long pid) throws IOException, InterruptedException {
        kill("-STOP", pid);
        awaitStopped(pid);
    }

    /** SIGCONT. */
    public static void resume(long pid) throws IOException, InterruptedException {
        kill("-CONT", pid);
    }

    private static void kill(String signal, long pid) throws IOException, InterruptedException {
        int code = new ProcessBuilder("kill", signal, Long.toString(pid)).inheritIO().start().waitFor();
        if (code != 0) {
            throw new AssertionError("kill " + signal + " " + pid + " ended with " + code);
        }
    }

    /** Returns when a process has been stopped by a signal. */
    public static void awaitStopped(long pid) throws IOException {
        String stat;
        do {
            LockSupport.parkNanos(100_000);
            stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
        } while (stat.charAt(stat.lastIndexOf(')') + 2) != 'T');
    }

    /** The thread of a JVM that runs {@code main}: as the launcher's first thread, it has the launcher's name. */
    public static int mainThread(long pid) throws IOException {
        String launcher = Files.readString(Path.of("/proc/" + pid + "/comm"));
        try (var tasks = Files.newDirectoryStream(Path.of("/proc/" + pid + "/task"))) {
            for (Path task : tasks) {
                int tid = Integer.parseInt(task.getFileName().toString());
                if (tid != pid && Files.readString(task.resolve("comm")).equals(launcher)) {
                    return tid;
                }
            }
        }
        throw new AssertionError("process " + pid + " has no main thread");
    }

    /** The system call that a thread is blocked in, and its arguments; "running" if it is not blocked. */
    private static String blockedIn(long pid, int tid) {
        try {
            return Files.readString(Path.of("/proc/" + pid + "/task/" + tid + "/syscall"));
        } catch (java.nio.file.NoSuchFileException ended) {
            return "ended";
        } catch (IOException e) {
            if (!Files.exists(Path.of("/proc/" + pid + "/task/" + tid))) {
                return "ended";
            }
            throw new UncheckedIOException("cannot see what thread " + tid + " waits for", e);
        }
    }
}
