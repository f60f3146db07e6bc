// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

/** What happens to a lock whose owner has died with it. It is told once, to the next one who acquires. */
public enum OwnerDeath {
    /**
     * The lock is granted. A {@linkplain SharedMutex#onOwnerDeath handler} runs under it before {@code lock} returns;
     * without one a warning is logged.
     */
    GRANT,
    /**
     * The lock is refused with {@link OwnerDiedException}, to everybody, until {@link SharedMutex#recover} has
     * succeeded once.
     */
    STRICT
}
