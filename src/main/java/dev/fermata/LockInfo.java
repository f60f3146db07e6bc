// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * What a lock looked like a moment ago, for people and for monitoring. The counters are written by owners without
 * synchronization: they may lag.
 *
 * @param name its name
 * @param state what its owner word says
 * @param owner who holds it, or is dead and still in the word
 * @param thread the owner's thread, and whether it has ended, as seen once a second, or empty
 * @param since since when it is held, within two seconds; {@code null} if it is not
 * @param acquisitions how often it was acquired; the fencing token of the last acquisition
 * @param contended how often it was not free at once
 * @param slept how often it was slept for
 * @param recovered how often an owner's death was told
 * @param longestWait the longest wait that ended with the lock
 * @param ownerDeath what an owner's death does
 * @param payloadBytes how many bytes it protects in the file
 */
public record LockInfo(String name, State state, Optional<Participant> owner, String thread, Instant since,
        long acquisitions, long contended, long slept, long recovered, Duration longestWait, OwnerDeath ownerDeath,
        long payloadBytes) {
    /** What an owner word can say. */
    public enum State {
        /** Nobody holds it. */
        FREE,
        /** Somebody holds it. */
        HELD,
        /** Its last owner died with it; nobody has been told yet. */
        ABANDONED,
        /** It is free, but promised to a waiter. */
        RESERVED
    }

    /** Who holds it and since when, in one line. */
    @Override
    public String toString() {
        return switch (state) {
            case FREE -> "free";
            case ABANDONED -> "abandoned by an owner that died";
            case RESERVED -> "promised to " + owner.map(Participant::toString).orElse("nobody");
            case HELD -> "held by %s, %s, since %s (%d s)".formatted(owner.map(Participant::toString).orElse("?"),
                    thread, since, Math.max(0, Duration.between(since, Instant.now()).toSeconds()));
        };
    }
}
