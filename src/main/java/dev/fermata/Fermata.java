// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.NativeCalls;

/** What Fermata found on this machine. */
public final class Fermata {
    private Fermata() {
    }

    /**
     * Tells how this process reaches the kernel: through the C shim or through libc, and why; and whether it does
     * without {@code futex_waitv}, the call of Linux 5.16 that sleeps on several words, and looks at them every 2 ms.
     *
     * <p>Three properties have a say, read once: {@code dev.fermata.native} ({@code ffm}, the default: the shim where it
     * is usable, else libc; {@code libc}: no shim), {@code dev.fermata.shim}, the path of a shim to use in place
     * of the one in the jar, and {@code dev.fermata.waitv} ({@code on}, the default: {@code futex_waitv} where the kernel
     * has it and no filter refuses it; {@code off}: not even tried).
     *
     * @return one line for people
     */
    public static String about() {
        return "Fermata: " + NativeCalls.SYSTEM.describe();
    }
}
