// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

/**
 * Room on the stack for what must not be cut off in the middle, such as waiting: it is asked for at the start, where
 * {@link StackOverflowError} leaves nothing behind.
 */
public final class Headroom {
    /** Times some 150 bytes of compiled code, or 400 of interpreted. */
    private static final int FRAMES = 128;

    private Headroom() {
    }

    /** @throws StackOverflowError if there is less than about 20 KiB */
    public static void require() {
        dig(FRAMES, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    }

    /** All arguments are needed after the call, so that a compiled frame holds them as well. */
    private static long dig(
            int n, long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) {
        if (n == 0) {
            return a;
        }
        long dug = dig(n - 1, b, c, d, e, f, g, h, i, j, k, l, a);
        return dug + (a ^ b << 1 ^ c << 2 ^ d << 3 ^ e << 4 ^ f << 5 ^ g << 6 ^ h << 7 ^ i << 8 ^ j << 9 ^ k << 10 ^ l << 11);
    }
}
