// SPDX-License-Identifier: Apache-2.0
package dev.fermata.testing;

import dev.fermata.internal.Futex;
import dev.fermata.internal.Word;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;

/**
 * A futex that does what a test has written down: each wait takes the next step of the script, which may change the
 * word as another process would, and says what the wait returned. A wait beyond the script is a failure. All calls are
 * recorded, a wake with the value that the word had at that moment.
 */
public final class ScriptedFutex implements Futex {
    /** What happens during one wait. */
    public interface Step {
        Result during(Word word);
    }

    /** A call of {@link #wait}. */
    public record Wait(int expected, long deadline) {
    }

    /** A call of {@link #wake}. */
    public record Wake(int count, int found) {
    }

    private final Queue<Step> script = new ArrayDeque<>();
    private final List<Wait> waits = new ArrayList<>();
    private final List<Wake> wakes = new ArrayList<>();
    private Runnable onWake = () -> { };

    /** Appends a step. */
    public ScriptedFutex then(Step step) {
        script.add(step);
        return this;
    }

    /** Appends a step in which another party stores a value. */
    public ScriptedFutex thenStore(int value, Result result) {
        return then(word -> {
            word.storeRelaxed(value);
            return result;
        });
    }

    /** Appends a step in which nothing happens. */
    public ScriptedFutex thenReturn(Result result) {
        return then(_ -> result);
    }

    /** What happens during each wake. */
    public ScriptedFutex onWake(Runnable action) {
        onWake = action;
        return this;
    }

    public List<Wait> waits() {
        return List.copyOf(waits);
    }

    /** The expected values of all waits. */
    public List<Integer> expectations() {
        return waits.stream().map(Wait::expected).toList();
    }

    public List<Wake> wakes() {
        return List.copyOf(wakes);
    }

    @Override
    public Result wait(Word word, int expected, long deadline) {
        waits.add(new Wait(expected, deadline));
        if (word.loadRelaxed() != expected) {
            throw new AssertionError("a wait for %d, while the word holds %d".formatted(expected, word.loadRelaxed()));
        }
        Step step = script.poll();
        if (step == null) {
            throw new AssertionError("a wait that is not in the script: " + waits.getLast());
        }
        return step.during(word);
    }

    @Override
    public Result waitAny(Word[] words, int[] expected, long deadline) {
        throw new AssertionError("nothing here waits on several words");
    }

    @Override
    public Result guard(Word[] words, int[] expected, long deadline) {
        throw new AssertionError("nothing here waits on lifelines");
    }

    @Override
    public int wake(Word word, int count) {
        wakes.add(new Wake(count, word.loadRelaxed()));
        onWake.run();
        return 0;
    }
}
