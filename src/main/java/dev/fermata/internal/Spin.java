// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.invoke.MethodHandle;

/** The pause between two looks at a word: the shim's PAUSE, or {@link Thread#onSpinWait} without it. */
public final class Spin {
    /** How often a waiter looks before it sleeps: about 2 µs, less than a sleep and wake. None on a single CPU. */
    public static final int LIMIT = Runtime.getRuntime().availableProcessors() > 1 ? 100 : 0;

    private static final MethodHandle PAUSE = NativeCalls.SYSTEM.pause();
    private static final MethodHandle PAUSE_REPEATEDLY = NativeCalls.SYSTEM.pauseRepeatedly();

    private Spin() {
    }

    /** Pauses once. */
    public static void pause() {
        if (PAUSE == null) {
            Thread.onSpinWait();
            return;
        }
        try {
            PAUSE.invokeExact();
        } catch (RuntimeException | Error unchecked) { // an InternalError, raised late for an access to a lost page
            throw unchecked;
        } catch (Throwable impossible) {
            throw new AssertionError("a downcall threw a checked exception", impossible);
        }
    }

    /**
     * Pauses {@code n} times in one call, or as often as the cap allows: such a call holds up a safepoint, for at most
     * 10 µs. Returns how often.
     */
    public static int pause(int n) {
        if (PAUSE_REPEATEDLY == null) {
            Thread.onSpinWait();
            return 1;
        }
        return ShimCalls.call(() -> (int) PAUSE_REPEATEDLY.invokeExact(n));
    }
}
