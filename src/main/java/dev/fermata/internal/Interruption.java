// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * A futex wait that {@link Thread#interrupt} ends. To the JVM it is a selector, which an interrupt wakes up; this one
 * wakes by a word of its own, which the thread sleeps on beside the word of the lock.
 *
 * <p>A wake-up may come late, when the thread waits no more and another uses this object: its word is never freed, and
 * a wake is only a hint.
 */
public final class Interruption extends AbstractSelector {
    private static final ConcurrentLinkedQueue<Interruption> FREE = new ConcurrentLinkedQueue<>();

    private final Word word = Word.at(Arena.global().allocate(ValueLayout.JAVA_INT), 0);

    private Interruption() {
        super(null);
    }

    /** {@link Futex#guard} that an interrupt of the calling thread ends, before or in it. */
    public static Futex.Result guard(Word[] words, int[] expected, long deadline) {
        Interruption free = FREE.poll();
        Interruption interruption = free != null ? free : new Interruption();
        interruption.word.swap(0);
        Word[] all = Arrays.copyOf(words, words.length + 1);
        all[words.length] = interruption.word;
        int[] values = Arrays.copyOf(expected, words.length + 1); // its word holds 0
        interruption.begin();
        try {
            return Futex.SYSTEM.guard(all, values, deadline);
        } finally {
            interruption.end();
            FREE.add(interruption);
        }
    }

    @Override
    public Selector wakeup() {
        word.swap(1);
        Futex.SYSTEM.wake(word, Futex.ALL);
        return this;
    }

    @Override
    protected void implCloseSelector() {
        throw new UnsupportedOperationException();
    }

    @Override
    protected SelectionKey register(AbstractSelectableChannel channel, int operations, Object attachment) {
        throw new UnsupportedOperationException(String.valueOf((SelectableChannel) channel));
    }

    @Override
    public Set<SelectionKey> keys() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Set<SelectionKey> selectedKeys() {
        throw new UnsupportedOperationException();
    }

    @Override
    public int selectNow() {
        throw new UnsupportedOperationException();
    }

    @Override
    public int select(long timeout) {
        throw new UnsupportedOperationException();
    }

    @Override
    public int select() {
        throw new UnsupportedOperationException();
    }
}
