// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/**
 * Another process, which runs a static method of a test class, {@code void method(String... arguments)}, and talks to
 * the test by lines. It ends with the method, or with the test.
 */
public final class Worker implements AutoCloseable {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private final ChildJvm child;

    private Worker(ChildJvm child) {
        this.child = child;
    }

    /** Starts one, with further options of its JVM. */
    public static Worker start(Class<?> test, String method, List<String> options, Object... arguments) throws IOException {
        String[] line = Stream.concat(Stream.of(test.getName(), method), Arrays.stream(arguments).map(String::valueOf))
                .toArray(String[]::new);
        return new Worker(ChildJvm.start(Worker.class, ChildJvm.likeThisOne(options), line));
    }

    /** Starts one that kills itself after a step, or stops itself. */
    public static Worker startMortal(String step, Class<?> test, String method, Object... arguments) throws IOException {
        return start(test, method, List.of("-Ddev.fermata.failpoint=" + step), arguments);
    }

    /** The next line that it says; what its log has written is skipped. */
    public String answer() throws IOException {
        return child.answer();
    }

    public void expect(String answer) throws IOException {
        child.expect(answer);
    }

    public void tell(String line) throws IOException {
        child.send(line);
    }

    public String ask(String line) throws IOException {
        tell(line);
        return answer();
    }

    public ChildJvm child() {
        return child;
    }

    public long pid() {
        return child.pid();
    }

    /** SIGKILL. */
    public void kill() {
        child.kill();
    }

    /** Waits until it has been killed, or has killed itself. */
    public void awaitDeath() throws InterruptedException {
        child.awaitDeath();
    }

    /** Waits for its end, which is to be a good one. */
    public void awaitSuccess() throws InterruptedException {
        child.awaitSuccess();
    }

    @Override
    public void close() {
        child.close();
    }

    // ---- the other side ----

    /** In the worker: says a line to the test. */
    public static void say(Object line) {
        System.out.println(ChildJvm.ANSWER + line);
        System.out.flush();
    }

    /** In the worker: the next line of the test; ends the process where the test has ended. */
    public static String hear() {
        try {
            String line = INPUT.readLine();
            if (line != null) {
                return line;
            }
        } catch (IOException e) {
            // as if it had ended
        }
        Runtime.getRuntime().halt(3);
        throw new AssertionError();
    }

    /** The other process's program. */
    public static void main(String[] arguments) throws Exception {
        Method method = Class.forName(arguments[0]).getDeclaredMethod(arguments[1], String[].class);
        method.setAccessible(true);
        try {
            method.invoke(null, (Object) Arrays.copyOfRange(arguments, 2, arguments.length));
        } catch (InvocationTargetException e) {
            e.getCause().printStackTrace();
            System.exit(1);
        }
    }
}
