// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import dev.fermata.internal.Printable;
import java.time.Instant;

/**
 * A process that is attached to a lock file, or was. All of it is what the process wrote about itself, for people; only
 * whether it is alive is the kernel's word.
 *
 * @param id the number that owner words hold: unique for each time a process attaches
 * @param slot which of the file's slots it has
 * @param pid its process id, in its own pid namespace; 0 where another process has the slot now, or it is not written yet
 * @param pidNamespace the inode of that namespace
 * @param startTicks when it was started, in clock ticks since the boot
 * @param uid the user it runs as
 * @param language "Java", "C" or "Rust"
 * @param label the label it gave itself, perhaps empty
 * @param attached when it attached
 * @param alive whether it is alive
 */
public record Participant(int id, int slot, int pid, long pidNamespace, long startTicks, int uid, String language,
        String label, Instant attached, boolean alive) {
    /**
     * Pid, label and whether it is alive; the pid's namespace where it is not this process's. What could not be printed
     * is escaped.
     */
    @Override
    public String toString() {
        if (pid == 0) {
            return alive ? "a process that is attaching, alive" : "a process whose slot another one has taken since, dead";
        }
        return "pid %d%s%s, %s".formatted(pid,
                pidNamespace == dev.fermata.internal.Participants.OWN_PID_NAMESPACE
                        ? "" : " in pid namespace " + pidNamespace,
                label.isEmpty() ? "" : " \"" + Printable.of(label) + "\"", alive ? "alive" : "dead");
    }
}
