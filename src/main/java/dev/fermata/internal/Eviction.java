// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import dev.fermata.EvictionException;
import dev.fermata.Participant;

/** Ends a participant's process, once it is sure which one that is. */
public final class Eviction {
    private Eviction() {
    }

    /**
     * Descriptor first, identity second: what the descriptor stands for cannot change, what the pid stands for can.
     *
     * @param asked whom
     * @param participant what the file says of the one with that id; {@code null} if there can be none
     */
    public static void evict(Participant asked, Participant participant) throws EvictionException {
        if (participant == null) {
            throw new EvictionException(asked, "no participant of this file can have id 0x%x".formatted(asked.id()));
        }
        if (!participant.alive()) {
            throw new EvictionException(participant, "it is dead already");
        }
        if (!isSame(asked, participant)) {
            throw new EvictionException(asked, "in this file its id is that of " + participant
                    + "; take it from participants() or info() of the same file");
        }
        if (Participants.isThisProcess(participant)) {
            throw new EvictionException(participant, "it is this process");
        }
        if (participant.pid() <= 0 || participant.startTicks() == 0) {
            throw new EvictionException(participant, "it has not said which process it is");
        }
        if (participant.pidNamespace() != Participants.OWN_PID_NAMESPACE) {
            throw new EvictionException(participant, "its pid is of another pid namespace, %d, and means another process"
                    + " in this one, %d; end it from there".formatted(
                            participant.pidNamespace(), Participants.OWN_PID_NAMESPACE));
        }
        int pidfd = Posix.SYSTEM.pidfdOpen(participant.pid());
        if (pidfd < 0) {
            throw new EvictionException(participant, "its process cannot be opened: " + Posix.SYSTEM.describe(-pidfd));
        }
        try {
            long start = Participants.startTicks(Integer.toString(participant.pid()));
            if (start != participant.startTicks()) {
                throw new EvictionException(participant, "the process with that pid was started at tick %d, not %d"
                        .formatted(start, participant.startTicks()));
            }
            int sent = Posix.SYSTEM.pidfdSignal(pidfd, Posix.SIGKILL);
            if (sent < 0) {
                throw new EvictionException(participant, "the kernel refuses: " + Posix.SYSTEM.describe(-sent));
            }
        } finally {
            Posix.SYSTEM.close(pidfd);
        }
    }

    /** In another file, another process may have the same id. */
    private static boolean isSame(Participant one, Participant other) {
        return one.id() == other.id() && one.pid() == other.pid() && one.pidNamespace() == other.pidNamespace()
                && one.startTicks() == other.startTicks() && one.attached().equals(other.attached());
    }
}
