// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static dev.fermata.internal.NativeCalls.OFD_EXCLUSIVE;
import static dev.fermata.internal.NativeCalls.OFD_SHARED;
import static dev.fermata.internal.NativeCalls.OFD_UNLOCK;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.fermata.testing.ChildJvm;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.SharedFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.MethodSource;

/** What is not the futex (see {@link FutexTest}), through both ways to the kernel. */
@ParameterizedClass
@MethodSource("backEnds")
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class NativeCallsTest {
    private static final int EBADF = 9;
    private static final int EAGAIN = 11;
    private static final int EINVAL = 22;
    private static final int FUTEX_OWNER_DIED = 0x40000000;
    private static final int REGISTERED_GLOBAL_EXPEDITED = 4;
    private static final long OFFSET = 64;

    @Parameter
    NativeCalls calls;

    private SharedFile file;
    private int one;
    private int two;

    static Stream<Named<NativeCalls>> backEnds() throws Exception {
        return BackEnds.all();
    }

    @BeforeEach
    void open() throws Exception {
        file = SharedFile.create();
        one = Kernel.open(file.path());
        two = Kernel.open(file.path());
    }

    @AfterEach
    void close() throws Exception {
        Kernel.close(one);
        Kernel.close(two);
        file.close();
    }

    private List<String> options() {
        return List.of(ChildJvm.NATIVE_ACCESS, "-Ddev.fermata.native=" + (calls instanceof LibcCalls ? "libc" : "ffm"));
    }

    @Test
    void thePauseReturnsAndItsRepetitionIsCapped() throws Throwable {
        if (calls instanceof LibcCalls) {
            assertNull(calls.pause());
            assertNull(calls.pauseRepeatedly());
            return;
        }
        calls.pause().invoke();
        assertEquals(64, (int) calls.pauseRepeatedly().invoke(Integer.MAX_VALUE));
        assertEquals(64, (int) calls.pauseRepeatedly().invoke(65));
        assertEquals(64, (int) calls.pauseRepeatedly().invoke(64));
        assertEquals(5, (int) calls.pauseRepeatedly().invoke(5));
        assertEquals(0, (int) calls.pauseRepeatedly().invoke(0));
        assertEquals(0, (int) calls.pauseRepeatedly().invoke(Integer.MIN_VALUE));
    }

    @Test
    void spinningReturnsWhicheverPauseThereIs() {
        Spin.pause();
        assertEquals(NativeCalls.SYSTEM.pauseRepeatedly() == null ? 1 : 64, Spin.pause(1000));
        assertTrue(Spin.LIMIT == 100 || Runtime.getRuntime().availableProcessors() == 1 && Spin.LIMIT == 0);
    }

    @Test
    void theBarrierReachesThoseThatHaveRegistered() throws Exception {
        assertEquals(0, calls.membarrierRegister());
        assertEquals(0, calls.membarrierRegister());
        assertEquals(0, calls.membarrier());
    }

    @Test
    void theBarrierNeedsNoRegistrationOfItsCallerAndRegistrationIsVisible() throws Exception {
        assumeTrue(Kernel.membarrierRegistrations() >= 0, "the kernel is older than 6.3");
        assertEquals("0 barrier 0 register 0 4", ChildJvm.run(Barrier.class, options()).output());
    }

    /** Prints the registration before and after. */
    static final class Barrier {
        public static void main(String[] arguments) {
            NativeCalls calls = NativeCalls.SYSTEM;
            System.out.printf("%d barrier %d register %d %d",
                    Kernel.membarrierRegistrations() & REGISTERED_GLOBAL_EXPEDITED, calls.membarrier(),
                    calls.membarrierRegister(), Kernel.membarrierRegistrations() & REGISTERED_GLOBAL_EXPEDITED);
        }
    }

    @Test
    void theKernelMarksTheWordsOfARegisteredRobustListWhenItsThreadIsKilled() throws Exception {
        try (ChildJvm child = ChildJvm.start(Owner.class, options(), file.path().toString())) {
            int tid = Integer.parseInt(child.readLine());
            assertEquals(tid, file.segment().get(ValueLayout.JAVA_INT, OFFSET));
            child.kill();
            assertEquals(FUTEX_OWNER_DIED, file.segment().get(ValueLayout.JAVA_INT, OFFSET));
            assertEquals(1234, file.segment().get(ValueLayout.JAVA_INT, OFFSET + 4), "a word that is not in the list");
        }
    }

    /** A thread whose robust list holds one word of the file, which holds its id. It waits to be killed. */
    static final class Owner {
        public static void main(String[] arguments) throws Exception {
            try (FileChannel channel = FileChannel.open(
                    Path.of(arguments[0]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                MemorySegment shared = channel.map(MapMode.READ_WRITE, 0, SharedFile.SIZE, Arena.global());
                MemorySegment head = Arena.global().allocate(ValueLayout.JAVA_LONG, 3);
                MemorySegment node = Arena.global().allocate(ValueLayout.JAVA_LONG);
                head.setAtIndex(ValueLayout.JAVA_LONG, 0, node.address());
                head.setAtIndex(ValueLayout.JAVA_LONG, 1, shared.address() + OFFSET - node.address());
                node.set(ValueLayout.JAVA_LONG, 0, head.address());
                Thread.ofPlatform().start(() -> {
                    shared.set(ValueLayout.JAVA_INT, OFFSET, Kernel.tid());
                    shared.set(ValueLayout.JAVA_INT, OFFSET + 4, 1234);
                    int result = NativeCalls.SYSTEM.robustList(head);
                    System.out.println(result == 0 ? Kernel.tid() : result);
                    while (true) {
                        LockSupport.park();
                    }
                }).join();
            }
        }
    }

    @Test
    void anExclusiveFileLockExcludesOtherOpenFileDescriptions() {
        assertEquals(0, calls.ofdTest(two, 0, 1, OFD_EXCLUSIVE));
        assertEquals(0, calls.ofdLock(one, 0, 1, OFD_EXCLUSIVE));
        assertEquals(1, calls.ofdTest(two, 0, 1, OFD_EXCLUSIVE));
        assertEquals(1, calls.ofdTest(two, 0, 1, OFD_SHARED));
        assertEquals(-EAGAIN, calls.ofdLock(two, 0, 1, OFD_EXCLUSIVE));
        assertEquals(-EAGAIN, calls.ofdLock(two, 0, 1, OFD_SHARED));
        assertEquals(0, calls.ofdTest(one, 0, 1, OFD_EXCLUSIVE));
        assertEquals(0, calls.ofdLock(one, 0, 1, OFD_UNLOCK));
        assertEquals(0, calls.ofdTest(two, 0, 1, OFD_EXCLUSIVE));
        assertEquals(0, calls.ofdLock(two, 0, 1, OFD_EXCLUSIVE));
    }

    @Test
    void sharedFileLocksGoTogetherAndKeepAnExclusiveOneOut() {
        assertEquals(0, calls.ofdLock(one, 0, 1, OFD_SHARED));
        assertEquals(0, calls.ofdTest(two, 0, 1, OFD_SHARED));
        assertEquals(0, calls.ofdLock(two, 0, 1, OFD_SHARED));
        assertEquals(-EAGAIN, calls.ofdLock(two, 0, 1, OFD_EXCLUSIVE));
        assertEquals(0, calls.ofdLock(one, 0, 1, OFD_UNLOCK));
        assertEquals(0, calls.ofdLock(two, 0, 1, OFD_EXCLUSIVE));
    }

    @Test
    void fileLocksConcernTheirBytesOnlyAndReachBeyondFourGigabytes() {
        long far = 5L << 32;
        assertEquals(0, calls.ofdLock(one, far, 10, OFD_EXCLUSIVE));
        assertEquals(0, calls.ofdTest(two, 0, far, OFD_EXCLUSIVE));
        assertEquals(1, calls.ofdTest(two, far + 9, 1, OFD_EXCLUSIVE));
        assertEquals(0, calls.ofdTest(two, far + 10, 1, OFD_EXCLUSIVE));
    }

    @Test
    void aFileLockSurvivesThatTheSameProcessOpensAndClosesTheFile() throws Exception {
        assertEquals(0, calls.ofdLock(one, 0, 1, OFD_EXCLUSIVE));
        Files.readAllBytes(file.path());
        FileChannel.open(file.path(), StandardOpenOption.WRITE).close();
        assertEquals(1, calls.ofdTest(two, 0, 1, OFD_EXCLUSIVE));
    }

    @Test
    void aFileLockEndsWithItsOpenFileDescription() {
        int third = Kernel.open(file.path());
        int locked = calls.ofdLock(third, 0, 1, OFD_EXCLUSIVE);
        Kernel.close(third);
        assertEquals(0, locked);
        assertEquals(0, calls.ofdTest(two, 0, 1, OFD_EXCLUSIVE));
    }

    @Test
    void wrongKindsRangesAndFilesAreRefused() {
        for (int kind : new int[] {-1, 3, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            assertEquals(-EINVAL, calls.ofdLock(one, 0, 1, kind));
            assertEquals(-EINVAL, calls.ofdTest(one, 0, 1, kind));
        }
        assertEquals(-EINVAL, calls.ofdLock(one, -1, 1, OFD_EXCLUSIVE));
        assertEquals(-EBADF, calls.ofdLock(-1, 0, 1, OFD_EXCLUSIVE));
        assertEquals(-EBADF, calls.ofdTest(-1, 0, 1, OFD_EXCLUSIVE));
    }

    @Test
    void theDescriptionSaysWhereTheCallsGo() {
        String expected = calls instanceof LibcCalls
                ? "libc's syscall and Thread.onSpinWait (for a test)" : "shim from the build";
        assertEquals(expected, calls.describe());
    }
}
