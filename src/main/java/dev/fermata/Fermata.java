// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.NativeCalls;

/** What Fermata found on this machine. */
public final class Fermata {
    private Fermata() {
    }

    /**
     * Tells how this process reaches the kernel: through the C shim or through libc, and why.
     *
     * <p>Two properties have a say, read once: {@code dev.fermata.native} ({@code ffm}, the default: the shim where it
     * is usable, else libc; {@code libc}: no shim), and {@code dev.fermata.shim}, the path of a shim to use in place
     * of the one in the jar.
     *
     * @return one line for people
     */
    public static String about() {
        return "Fermata: " + NativeCalls.SYSTEM.describe();
    }
}
