// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

/**
 * How a lock file is to be opened, and made if there is none. Sizes in bytes.
 *
 * @param permissions of a new file, as an octal mode
 * @param create whether to create a file that is missing
 * @param readOnly only to look into it
 * @param stuckAfter in ns
 * @param spin in ns, or {@link SpinBudget#MEASURED}
 */
public record Settings(int participants, int capacity, long payload, boolean symmetric, int permissions, boolean create,
        boolean anyFileSystem, boolean readOnly, String label, long stuckAfter, long spin) {
    /** The same, but that nothing is created. */
    Settings forInspection() {
        return new Settings(participants, capacity, payload, symmetric, permissions, false, anyFileSystem, true, label,
                stuckAfter, spin);
    }
}
