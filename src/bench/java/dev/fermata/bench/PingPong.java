// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import dev.fermata.word.AtomicFlag;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.infra.BenchmarkParams;

/** To another process and back, over two flags. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class PingPong {
    private static final int TURNS = 1000;

    private SharedFile file;
    private AtomicFlag ping;
    private AtomicFlag pong;
    private Process other;

    @Setup
    public void start(BenchmarkParams params) throws IOException {
        file = SharedFile.create();
        ping = AtomicFlag.at(file.line(0), 0);
        pong = AtomicFlag.at(file.line(1), 0);
        String language = params.getBenchmark().endsWith(".cPingPong") ? "c" : "java";
        other = new ProcessBuilder(List.of(ProcessHandle.current().info().command().orElseThrow(),
                "--enable-native-access=ALL-UNNAMED",
                "-D" + CLoops.LIBRARY + "=" + System.getProperty(CLoops.LIBRARY),
                "-cp", System.getProperty("java.class.path"),
                Other.class.getName(), file.path().toString(), language)).inheritIO().start();
    }

    @TearDown
    public void stop() throws IOException, InterruptedException {
        AtomicFlag.at(file.line(2), 0).testAndSet();
        ping.testAndSet();
        if (!other.waitFor(10, TimeUnit.SECONDS)) {
            other.destroyForcibly();
        }
        file.close();
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void pingPong() {
        for (int i = 0; i < TURNS; i++) {
            ping.testAndSet();
            pong.awaitSet();
            pong.clear();
        }
    }

    @Benchmark
    @OperationsPerInvocation(TURNS)
    public void cPingPong() {
        CLoops.flagPing(file.line(0), file.line(1), TURNS);
    }

    /** The other process. */
    static final class Other {
        private Other() {
        }

        public static void main(String[] args) throws IOException {
            try (SharedFile file = SharedFile.open(Path.of(args[0]))) {
                if (args[1].equals("c")) {
                    CLoops.flagPong(file.line(0), file.line(1), file.line(2));
                    return;
                }
                AtomicFlag ping = AtomicFlag.at(file.line(0), 0);
                AtomicFlag pong = AtomicFlag.at(file.line(1), 0);
                AtomicFlag stop = AtomicFlag.at(file.line(2), 0);
                while (!stop.isSet()) {
                    ping.awaitSet();
                    ping.clear();
                    pong.testAndSet();
                }
            }
        }
    }
}
