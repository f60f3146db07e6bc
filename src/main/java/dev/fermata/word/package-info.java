// SPDX-License-Identifier: Apache-2.0

/**
 * The published classics over one 32-bit word of any native or mapped memory: for words that are shared with code in
 * other processes and other languages. No file format, no registration, no state outside the word.
 *
 * <p><b>Reading order.</b> {@link dev.fermata.word.WordMutex} is the one to use where all parties are free to choose;
 * its source is the protocol from top to bottom. Then {@link dev.fermata.word.SpinLock} and
 * {@link dev.fermata.word.AtomicFlag}, which are simpler, and {@link dev.fermata.word.WordReadWriteLock}, which is not.
 * The normative text, for all languages, is the project's {@code PROTOCOL.md}.
 *
 * <p><b>Memory contract.</b> Taking a lock has the effect of an acquire, releasing it that of a release: what a thread
 * of any process wrote to the shared memory before it released a word is seen by whoever takes the word afterwards.
 * The Java memory model speaks of fields and arrays only, not of native memory. For native memory this contract rests
 * on HotSpot, which compiles {@link java.lang.invoke.VarHandle} accesses there to the same instructions, and on the
 * hardware. Among threads of one JVM it covers ordinary objects too.
 *
 * <p><b>Memory.</b> The word must lie in memory that all parties map <em>shared</em>, as
 * {@link java.nio.channels.FileChannel#map(java.nio.channels.FileChannel.MapMode, long, long,
 * java.lang.foreign.Arena) FileChannel.map} with {@code READ_WRITE} does. Construction checks that the word is aligned
 * to 4 bytes, in range, writable and off the heap, and writes nothing; a word that is all zero is free. Words that are
 * contended belong on cache lines of their own. An arena cannot be closed while a thread sleeps on a word in it; every
 * use after the close is an {@link java.lang.IllegalStateException}.
 *
 * <p><b>Waiting.</b> Spin for about 2 µs (not on a machine with one CPU), then sleep in the kernel. A waiting thread
 * does not react to {@link java.lang.Thread#interrupt()}; the interrupt status stays as it is. A virtual thread that
 * waits here holds its carrier.
 *
 * <p><b>Death.</b> Nothing here notices that a process has died: what it held stays held, and a process that is killed
 * in the moment between being woken and taking the word takes that wake with it.
 *
 * <p><b>Errors.</b> A file that is truncated under a mapping is reported as
 * {@link dev.fermata.DamagedMappingException}. In compiled code the JVM tells of a lost page only a few instructions
 * later, so the plain {@link java.lang.InternalError} may also arrive in the caller's own code, above all after a method
 * that only looks, such as {@code isLocked}; see
 * {@link dev.fermata.DamagedMappingException#of}. A lock that is released by somebody else in the very moment in which
 * it is taken looks like damage too; only who took a lock, or was handed it, may release it.
 */
package dev.fermata.word;
