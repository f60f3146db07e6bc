// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

/**
 * The steps after which tests let a process die or stop. Chosen once by the property {@code dev.fermata.failpoint}:
 * {@code STEP[#N[#stop]]}, the N-th time (from 1) the step is come to, by SIGKILL or SIGSTOP. Without the property the
 * compiler removes all of it.
 */
public final class Failpoint {
    private static final String CHOICE = System.getProperty("dev.fermata.failpoint");
    private static final int SIGSTOP = 19;

    private Failpoint() {
    }

    /** The choice taken apart, where there is one. */
    private static final class Chosen {
        static final String[] PARTS = CHOICE.split("#");
        static int left = PARTS.length > 1 ? Integer.parseInt(PARTS[1]) : 1;

        static synchronized void strike(String step) {
            if (PARTS[0].equals(step) && --left == 0) {
                // By the thread's id: a signal for the process would rather go to another thread, and this one would go on.
                Posix.SYSTEM.kill(Posix.SYSTEM.threadId(), PARTS.length > 2 ? SIGSTOP : Posix.SIGKILL);
            }
        }
    }

    /** The process has just done what the name of the step says. */
    public static void after(String step) {
        if (CHOICE != null) {
            Chosen.strike(step);
        }
    }
}
