// SPDX-License-Identifier: Apache-2.0
package dev.fermata.demo;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import dev.fermata.LockFile;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.LockPeer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Processes that open files that are not there yet, lock, add and leave; run by {@code scripts/stress --fresh}. */
@Command(name = "stress", mixinStandardHelpOptions = true,
        description = "Processes that race to make lock files, and leave them.")
public final class FreshPaths implements Callable<Integer> {
    @Option(names = "--fresh", required = true, description = "How many files.")
    private int files;

    @Option(names = "--processes", defaultValue = "32", description = "Processes; default ${DEFAULT-VALUE}.")
    private int processes;

    public static void main(String[] args) {
        System.exit(new CommandLine(new FreshPaths()).execute(args));
    }

    @Override
    public Integer call() throws Exception {
        int wrong = 0;
        List<LockPeer> peers = new ArrayList<>();
        try (LockPath place = LockPath.create()) {
            for (int i = 0; i < processes; i++) {
                peers.add(LockPeer.launch());
            }
            for (LockPeer peer : peers) {
                peer.tell("fresh " + place.directory() + " " + files);
            }
            for (LockPeer peer : peers) {
                peer.expect("updated");
            }
            for (int i = 0; i < files; i++) {
                Path path = place.directory().resolve(Integer.toString(i));
                try (LockFile file = LockFile.builder(path).mustExist().open()) {
                    long count = file.mutex("m", LockPeer.RECORD).payload().get(JAVA_LONG, 0);
                    if (count != processes) {
                        wrong++;
                        System.out.printf("stress: file %d was updated %d times, expected %d%n", i, count, processes);
                    }
                }
            }
        } finally {
            peers.forEach(LockPeer::close);
        }
        System.out.printf("stress: %s files=%d processes=%d wrong=%d%n", wrong == 0 ? "PASS" : "FAIL", files, processes,
                wrong);
        return wrong == 0 ? CommandLine.ExitCode.OK : CommandLine.ExitCode.SOFTWARE;
    }
}
