// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/** The loops of {@code src/bench/c/loops.c}: one downcall each, with the number of turns. */
final class CLoops {
    /** Names the library; set by {@link Bench}. */
    static final String LIBRARY = "dev.fermata.bench.library";

    private static final SymbolLookup LOOPS =
            SymbolLookup.libraryLookup(Path.of(System.getProperty(LIBRARY)).toAbsolutePath(), Arena.global());

    private static final MethodHandle MUTEX = function("mutex_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle MUTEX_CALLED = function("mutex_called_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle SPIN = function("spin_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle RW_SHARED = function("rw_shared_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle RW_EXCLUSIVE = function("rw_exclusive_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle FLAG = function("flag_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle FLAG_PING = function("flag_ping", ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle FLAG_PONG = function("flag_pong", ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle PAUSE = function("pause_loop", JAVA_LONG);
    private static final MethodHandle PTHREAD_INIT = function("pthread_init", ADDRESS, JAVA_INT);
    private static final MethodHandle PTHREAD = function("pthread_loop", ADDRESS, JAVA_LONG);
    private static final MethodHandle MISSES =
            function("misses_loop", ADDRESS, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle RESERVE_AND_WRITE = function("reserve_and_write", ADDRESS, JAVA_LONG);

    private CLoops() {
    }

    private static MethodHandle function(String name, MemoryLayout... parameters) {
        return Linker.nativeLinker().downcallHandle(
                LOOPS.find(name).orElseThrow(), FunctionDescriptor.of(JAVA_INT, parameters));
    }

    private interface Call {
        int run() throws Throwable;
    }

    private static void call(Call call) {
        try {
            int refused = call.run();
            if (refused != 0) {
                throw new AssertionError("a lock in C misbehaved");
            }
        } catch (RuntimeException | Error unchecked) {
            throw unchecked;
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    static void mutex(MemorySegment word, long n) {
        call(() -> (int) MUTEX.invokeExact(word, n));
    }

    static void mutexCalled(MemorySegment word, long n) {
        call(() -> (int) MUTEX_CALLED.invokeExact(word, n));
    }

    static void spin(MemorySegment word, long n) {
        call(() -> (int) SPIN.invokeExact(word, n));
    }

    static void rwShared(MemorySegment word, long n) {
        call(() -> (int) RW_SHARED.invokeExact(word, n));
    }

    static void rwExclusive(MemorySegment word, long n) {
        call(() -> (int) RW_EXCLUSIVE.invokeExact(word, n));
    }

    static void flag(MemorySegment word, long n) {
        call(() -> (int) FLAG.invokeExact(word, n));
    }

    static void flagPing(MemorySegment ping, MemorySegment pong, long n) {
        call(() -> (int) FLAG_PING.invokeExact(ping, pong, n));
    }

    static void flagPong(MemorySegment ping, MemorySegment pong, MemorySegment stop) {
        call(() -> (int) FLAG_PONG.invokeExact(ping, pong, stop));
    }

    static void pause(long n) {
        call(() -> (int) PAUSE.invokeExact(n));
    }

    static void initPthread(MemorySegment mutex, boolean robust) {
        call(() -> (int) PTHREAD_INIT.invokeExact(mutex, robust ? 1 : 0));
    }

    static void pthread(MemorySegment mutex, long n) {
        call(() -> (int) PTHREAD.invokeExact(mutex, n));
    }

    /** An index of a power of two of 64-bit words, each the number of an entry; then the entries. */
    static void misses(MemorySegment index, long length, long entries, long n) {
        call(() -> (int) MISSES.invokeExact(index, length, entries, n));
    }

    static void reserveAndWrite(Path path, long size) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment name = arena.allocateFrom(path.toString());
            call(() -> (int) RESERVE_AND_WRITE.invokeExact(name, size));
        }
    }
}
