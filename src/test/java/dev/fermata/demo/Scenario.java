// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.Random;

/**
 * One primitive under kills: what a thread of many processes does with it over and over, and how one sees in the end
 * that nothing was lost or had twice. See {@link FamilyStress}.
 */
interface Scenario {
    /** What it is called on the command line. */
    String name();

    /** Makes what the rounds need. In every process, first in the one that is not killed. */
    void prepare(LockFile file) throws Exception;

    /**
     * What a thread does over and over. It returns within a few seconds, even where it is the last one; so it waits with
     * a time-out. It adds 1 to {@link Tally#PROGRESS} for what it has achieved, and to {@link Tally#DOUBLES} for what must
     * not be.
     */
    void round(LockFile file, Tally tally, Random random) throws Exception;

    /** What was lost, when all threads have ended or were killed: 0. */
    long lost(LockFile file, Tally.All all) throws Exception;

    /** How many processes take part at a time. */
    default int processes() {
        return 4;
    }

    /** A thread's own line in the file: eight numbers that outlive it. Nobody else writes them. */
    record Tally(MemorySegment line, int slot) {
        /** What it has achieved. */
        static final int PROGRESS = 0;
        /** What must not be. */
        static final int DOUBLES = 1;
        /** From here on for the scenario. */
        static final int FIRST = 2;
        static final int COLUMNS = 8;

        long get(int column) {
            return line.get(JAVA_LONG, column * 8L);
        }

        void set(int column, long value) {
            line.set(JAVA_LONG, column * 8L, value);
            VarHandle.releaseFence();
        }

        void add(int column, long value) {
            set(column, get(column) + value);
        }

        /** Those of all threads there were. */
        record All(MemorySegment lines, int count) {
            Tally of(int slot) {
                return new Tally(lines.asSlice(slot * 64L, 64), slot);
            }

            long sum(int column) {
                long sum = 0;
                for (int slot = 0; slot < count; slot++) {
                    sum += of(slot).get(column);
                }
                return sum;
            }
        }
    }
}
