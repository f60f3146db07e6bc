// SPDX-License-Identifier: Apache-2.0

/**
 * Locks in words of memory-mapped files: taken with atomics, slept on in the kernel's futex, shared by JVMs, C and
 * Rust programs. {@link dev.fermata} has the lock file with named locks that survive the death of their holder,
 * {@link dev.fermata.word} the primitives over a single word.
 */
module dev.fermata {
    exports dev.fermata;
    exports dev.fermata.word;
}
