// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import dev.fermata.LockFile;
import java.io.IOException;
import java.nio.file.Path;

/**
 * A process that is to be killed: {@code HalfWriter FILE LABEL}. It says "ready"; told to go on, it updates the record
 * once, begins to update it once more, and says "half" with the lock held and one half written. It lives no longer than
 * its parent.
 */
final class HalfWriter {
    private HalfWriter() {
    }

    public static void main(String[] arguments) throws IOException {
        Halves halves = new Halves(
                LockFile.builder(Path.of(arguments[0])).mustExist().label(arguments[1]).open());
        System.out.println("ready");
        if (System.in.read() >= 0) {
            halves.mutex().lock();
            halves.update();
            halves.mutex().unlock();
            halves.mutex().lock();
            halves.writeFirst();
            System.out.println("half");
            while (System.in.read() >= 0) {
                // waits for its end
            }
        }
        Runtime.getRuntime().halt(3); // its parent has gone
    }
}
