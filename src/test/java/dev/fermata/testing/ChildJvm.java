// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import dev.fermata.Fermata;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** A further JVM with the same classes. Its output and its errors are one stream. */
public final class ChildJvm implements AutoCloseable {
    /** Options of a child that may call native code. */
    public static final String NATIVE_ACCESS = "--enable-native-access=ALL-UNNAMED";

    /** What lines to the test begin with. */
    static final String ANSWER = "> ";

    private final Process process;
    private final BufferedReader output;

    private ChildJvm(Process process) {
        this.process = process;
        this.output = process.inputReader();
    }

    /** How a child ended. */
    public record End(int code, String output) {
    }

    /** Starts one. */
    public static ChildJvm start(Class<?> main, List<String> options, String... arguments) throws IOException {
        return start(main, options, Map.of(), arguments);
    }

    /** Starts one with further environment variables. */
    public static ChildJvm start(
            Class<?> main, List<String> options, Map<String, String> environment, String... arguments)
            throws IOException {
        return start(List.of(), main, options, environment, arguments);
    }

    /** Starts one through another program, whose command line is continued with that of the JVM; waits for its end. */
    public static End runUnder(List<String> program, Class<?> main, List<String> options)
            throws IOException, InterruptedException {
        return end(start(program, main, options, Map.of()));
    }

    /** Starts one through another program, whose command line is continued with that of the JVM. */
    public static ChildJvm startUnder(List<String> program, Class<?> main, List<String> options) throws IOException {
        return start(program, main, options, Map.of());
    }

    private static ChildJvm start(List<String> program, Class<?> main, List<String> options,
            Map<String, String> environment, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(program);
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m"));
        command.addAll(options);
        command.addAll(List.of("-cp", origin(Fermata.class) + ":" + origin(main), main.getName()));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().remove("JAVA_TOOL_OPTIONS");
        builder.environment().putAll(environment);
        return new ChildJvm(builder.start());
    }

    /** Options of a child that calls native code in the same way as this JVM, after others. */
    static List<String> likeThisOne(List<String> options) {
        List<String> all = new ArrayList<>(options);
        all.add(NATIVE_ACCESS);
        all.add("-Ddev.fermata.native=" + System.getProperty("dev.fermata.native", "ffm"));
        all.add("-Ddev.fermata.waitv=" + System.getProperty("dev.fermata.waitv", "on"));
        return all;
    }

    /** Starts one and waits for its end. */
    public static End run(Class<?> main, List<String> options, String... arguments)
            throws IOException, InterruptedException {
        return run(main, options, Map.of(), arguments);
    }

    /** Starts one with further environment variables and waits for its end. */
    public static End run(Class<?> main, List<String> options, Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        return end(start(main, options, environment, arguments));
    }

    private static End end(ChildJvm started) throws InterruptedException {
        try (ChildJvm child = started) {
            String output = child.output.lines().collect(Collectors.joining("\n"));
            return new End(child.process.waitFor(), output);
        }
    }

    private static String origin(Class<?> type) {
        try {
            return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        } catch (URISyntaxException impossible) {
            throw new AssertionError(impossible);
        }
    }

    public long pid() {
        return process.pid();
    }

    /** Sends it a line. */
    public void send(String line) throws IOException {
        process.outputWriter().write(line + "\n");
        process.outputWriter().flush();
    }

    /** The process. */
    public Process process() {
        return process;
    }

    /** The next line of its output; fails where there is none. */
    public String readLine() throws IOException {
        String line = output.readLine();
        if (line == null) {
            throw new AssertionError("the child ended without a further line");
        }
        return line;
    }

    /** All of its output that has not been read, up to its end. */
    public String rest() {
        return output.lines().collect(Collectors.joining("\n"));
    }

    /** The next line that it says to the test, without its mark; what its log writes is skipped. */
    public String answer() throws IOException {
        StringBuilder log = new StringBuilder();
        for (String line = output.readLine(); line != null; line = output.readLine()) {
            if (line.startsWith(ANSWER)) {
                return line.substring(ANSWER.length());
            }
            log.append(line).append('\n');
        }
        throw new AssertionError("the child ended without a further answer: " + log);
    }

    /** The next line that it says is to be that one. */
    public void expect(String answer) throws IOException {
        String found = answer();
        if (!found.equals(answer)) {
            throw new AssertionError("the child said \"" + found + "\", expected \"" + answer + '"');
        }
    }

    /** Waits until it has been killed, or has killed itself. */
    public void awaitDeath() throws InterruptedException {
        int code = process.waitFor();
        if (code != 128 + 9) {
            throw new AssertionError("the child ended with " + code + ": " + rest());
        }
    }

    /** Tells all of them to end, by the end of their input, and waits for that; how many do not end. */
    public static int endAll(List<ChildJvm> children) throws IOException, InterruptedException {
        int stalls = 0;
        for (ChildJvm child : children) {
            child.process.outputWriter().close();
        }
        for (ChildJvm child : children) {
            if (!child.process.waitFor(60, TimeUnit.SECONDS)) {
                stalls++;
                System.out.println("does not end: pid " + child.pid());
            } else if (child.process.exitValue() != 0) {
                throw new AssertionError("a process ended badly: " + child.rest());
            }
        }
        return stalls;
    }

    /** Waits for its end, which is to be a good one. */
    public void awaitSuccess() throws InterruptedException {
        String rest = rest();
        int code = process.waitFor();
        if (code != 0) {
            throw new AssertionError("the child ended with " + code + ": " + rest);
        }
    }

    /** SIGKILL, and the end of it is awaited. */
    public void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        kill();
    }
}
