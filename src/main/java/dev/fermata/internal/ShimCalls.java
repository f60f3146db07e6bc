// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/** The calls through the C shim, {@code native/fermata.c}. */
final class ShimCalls implements NativeCalls {
    /** Equal to {@code FERMATA_ABI} in the shim. */
    private static final int ABI = 2;

    private final String origin;
    private final MethodHandle futexWait;
    private final MethodHandle futexWake;
    private final MethodHandle futexWaitAny;
    private final MethodHandle guard;
    private final MethodHandle membarrierRegister;
    private final MethodHandle membarrier;
    private final MethodHandle robustList;
    private final MethodHandle ofdLock;
    private final MethodHandle ofdTest;
    private final MethodHandle pause;
    private final MethodHandle pauseRepeatedly;

    ShimCalls(SymbolLookup shim, String origin) {
        this.origin = origin;
        int abi = call(() -> (int) function(shim, "fermata_abi").invokeExact());
        if (abi != ABI) {
            throw new IllegalArgumentException(
                    "%s has ABI %d, expected %d; rebuild it from this version's native/".formatted(origin, abi, ABI));
        }
        futexWait = function(shim, "fermata_futex_wait", ADDRESS, JAVA_INT, JAVA_LONG);
        futexWake = function(shim, "fermata_futex_wake", JAVA_LONG, JAVA_INT);
        futexWaitAny = function(shim, "fermata_futex_waitv", ADDRESS, ADDRESS, JAVA_INT, JAVA_LONG);
        guard = function(shim, "fermata_guard", ADDRESS, ADDRESS, JAVA_INT, JAVA_LONG);
        membarrierRegister = function(shim, "fermata_membarrier_register");
        membarrier = function(shim, "fermata_membarrier");
        robustList = function(shim, "fermata_robust_list", ADDRESS);
        ofdLock = function(shim, "fermata_ofd_lock", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT);
        ofdTest = function(shim, "fermata_ofd_test", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT);
        // Critical: no thread-state transition. Allowed only for calls that end within microseconds.
        pause = Linker.nativeLinker().downcallHandle(
                address(shim, "fermata_pause"), FunctionDescriptor.ofVoid(), Linker.Option.critical(false));
        pauseRepeatedly = Linker.nativeLinker().downcallHandle(address(shim, "fermata_pause_n"),
                FunctionDescriptor.of(JAVA_INT, JAVA_INT), Linker.Option.critical(false));
    }

    private static MemorySegment address(SymbolLookup shim, String name) {
        return shim.find(name).orElseThrow(
                () -> new IllegalArgumentException("no function " + name + "; not Fermata's shim"));
    }

    private static MethodHandle function(
            SymbolLookup shim, String name, java.lang.foreign.MemoryLayout... parameters) {
        return Linker.nativeLinker().downcallHandle(address(shim, name), FunctionDescriptor.of(JAVA_INT, parameters));
    }

    /** A downcall that returns an int. */
    interface Call {
        int run() throws Throwable;
    }

    static int call(Call call) {
        try {
            return call.run();
        } catch (RuntimeException | Error unchecked) {
            throw unchecked;
        } catch (Throwable impossible) {
            throw new AssertionError("a downcall threw a checked exception", impossible);
        }
    }

    @Override
    public int futexWait(MemorySegment word, int expected, long deadline) {
        return call(() -> (int) futexWait.invokeExact(word, expected, deadline));
    }

    @Override
    public int futexWake(long address, int count) {
        return call(() -> (int) futexWake.invokeExact(address, count));
    }

    @Override
    public int futexWaitAny(MemorySegment addresses, MemorySegment expected, int n, long deadline) {
        return call(() -> (int) futexWaitAny.invokeExact(addresses, expected, n, deadline));
    }

    @Override
    public int guard(MemorySegment addresses, MemorySegment expected, int n, long deadline) {
        return call(() -> (int) guard.invokeExact(addresses, expected, n, deadline));
    }

    @Override
    public int membarrierRegister() {
        return call(() -> (int) membarrierRegister.invokeExact());
    }

    @Override
    public int membarrier() {
        return call(() -> (int) membarrier.invokeExact());
    }

    @Override
    public int robustList(MemorySegment head) {
        return call(() -> (int) robustList.invokeExact(head));
    }

    @Override
    public int ofdLock(int fd, long start, long length, int kind) {
        return call(() -> (int) ofdLock.invokeExact(fd, start, length, kind));
    }

    @Override
    public int ofdTest(int fd, long start, long length, int kind) {
        return call(() -> (int) ofdTest.invokeExact(fd, start, length, kind));
    }

    @Override
    public MethodHandle pause() {
        return pause;
    }

    @Override
    public MethodHandle pauseRepeatedly() {
        return pauseRepeatedly;
    }

    @Override
    public String describe() {
        return "shim from " + origin;
    }
}
