// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * The robust list of a guardian, of two nodes, and the guardian's control word, in a page of their own. When the thread
 * ends, the kernel walks the list and marks the words that the nodes stand for: the lifeline, then its copy.
 *
 * <p>The page is mapped shared, though nobody shares it: private memory is taken from a dying process by the kernel's
 * out-of-memory reaper before its lists are walked. It is never unmapped, but used again.
 */
final class RobustPage {
    private static final long SIZE = 4096;
    // struct robust_list_head: the first node, the offset from a node to its futex word, a pending node
    private static final long HEAD = 0;
    private static final long FUTEX_OFFSET = 8;
    private static final long PENDING = 16;
    private static final long NODE = 64;
    private static final long SECOND_NODE = NODE + Layout.P_LIFELINE_COPY; // as far apart as what they stand for
    private static final long CONTROL = 128;

    private static final ConcurrentLinkedQueue<RobustPage> FREE = new ConcurrentLinkedQueue<>();
    /** For threads that have ended to be guardians: libc's list is gone. */
    private static final RobustPage EMPTY = new RobustPage();

    private final MemorySegment page;
    private final Word control;

    private RobustPage() {
        long address = Posix.SYSTEM.map(-1, SIZE, Posix.PROT_READ | Posix.PROT_WRITE);
        if (address < 0) {
            throw new OutOfMemoryError("a page of shared memory: " + Posix.SYSTEM.describe((int) -address));
        }
        page = MemorySegment.ofAddress(address).reinterpret(SIZE);
        control = Word.at(page, CONTROL);
        empty();
    }

    static RobustPage take() {
        RobustPage free = FREE.poll();
        return free != null ? free : new RobustPage();
    }

    /** Makes it the calling thread's list; 0 or −errno. */
    int register() {
        return NativeCalls.SYSTEM.robustList(page.asSlice(HEAD, 24));
    }

    /** From now on the end of the thread marks the lifeline at that address, and its copy. */
    void pointAt(long lifeline) {
        Word.storeLong(page, FUTEX_OFFSET, lifeline - (page.address() + NODE));
        Word.storeLong(page, NODE, page.address() + SECOND_NODE);
        Word.storeLong(page, SECOND_NODE, page.address() + HEAD);
        Word.storeLongRelease(page, HEAD, page.address() + NODE);
    }

    /** From now on it marks nothing. */
    void empty() {
        Word.storeLong(page, PENDING, 0);
        Word.storeLongRelease(page, HEAD, page.address() + HEAD);
    }

    /** The calling thread is no guardian any more. */
    void giveBack() {
        empty();
        control.storeRelaxed(0);
        EMPTY.register();
        FREE.add(this);
    }

    /** A word that its guardian sleeps on, too: from 0 on, it counts how often it was called. */
    Word control() {
        return control;
    }
}
