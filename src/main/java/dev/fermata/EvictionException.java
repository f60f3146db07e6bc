// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

/** A participant was not evicted. Nothing was done to any process. */
public final class EvictionException extends Exception {
    private static final long serialVersionUID = 1L;

    /**
     * Creates the exception.
     *
     * @param participant who was to be evicted
     * @param reason why that was refused
     */
    public EvictionException(Participant participant, String reason) {
        super("%s is not evicted: %s".formatted(participant, reason));
    }
}
