// SPDX-License-Identifier: Apache-2.0
//
// Section 5 of PROTOCOL.md: WordReadWriteLock, a bit-packed shared/exclusive word.
//
// Bit 31: impossible. EXCL (bit 30): one holder or claimant, newcomers wait; set by claim, cleared by withdraw,
// unlock_exclusive and downgrade. COUNT (bits 0-29): shared holders. Readers and claimants sleep on the one word, so
// every store that can end a wait is followed by a wake of all: a wake of one could reach the wrong one and be lost.

#include "words.h"

#include <limits.h>

#define FREE 0u
#define IMPOSSIBLE (1u << 31)
#define EXCL (1u << 30)
#define COUNT (EXCL - 1)

static bool is_impossible(uint32_t v) { return (v & IMPOSSIBLE) != 0; }
static bool is_claimed(uint32_t v) { return (v & (IMPOSSIBLE | EXCL)) == EXCL; } // held, or claimed and draining
static bool is_draining(uint32_t v) { return is_claimed(v) && (v & COUNT) != 0; }

struct outcome rw_try_lock_shared(shared_word *word)
{
    for (;;) {
        uint32_t v = load_relaxed(word);
        if (is_impossible(v))
            return illegal(v);
        if (is_claimed(v))
            return no(v);
        if (v == COUNT)
            return overflow(v);
        // Acquire: pairs with the cas_release in rw_unlock_exclusive and rw_downgrade; sees what the writer wrote.
        if (cas_acquire(word, v, v + 1))
            return ok(v);
    }
}

struct outcome rw_lock_shared(shared_word *word, int64_t deadline)
{
    for (;;) {
        struct outcome tried = rw_try_lock_shared(word);
        if (tried.code != WORD_NO)
            return tried;
        uint32_t v = spin_while(word, is_claimed);
        if (!is_claimed(v))
            continue;
        struct outcome waited = wait_before(deadline, word, v);
        if (waited.code != WORD_OK)
            return waited;
    }
}

struct outcome rw_unlock_shared(shared_word *word)
{
    for (;;) {
        uint32_t v = load_relaxed(word);
        if (is_impossible(v))
            return illegal(v);
        if ((v & COUNT) == 0)
            return misuse(v);
        // Release: pairs with the load_acquire in drain (and the cas_acquire in claim); our reads are over.
        if (cas_release(word, v, v - 1))
            return v - 1 == EXCL ? futex_wake(word, INT_MAX) : ok(v);
    }
}

struct outcome rw_try_lock_exclusive(shared_word *word)
{
    uint32_t v = load_relaxed(word);
    if (is_impossible(v))
        return illegal(v);
    // Acquire: pairs with the cas_release in rw_unlock_exclusive and rw_unlock_shared.
    return v == FREE && cas_acquire(word, FREE, EXCL) ? ok(FREE) : no(v);
}

static struct outcome claim(shared_word *word, int64_t deadline);
static struct outcome drain(shared_word *word, int64_t deadline);
static struct outcome withdraw(shared_word *word);
static struct outcome leave_exclusive(shared_word *word, uint32_t next);

struct outcome rw_lock_exclusive(shared_word *word, int64_t deadline)
{
    struct outcome claimed = claim(word, deadline);
    return claimed.code == WORD_OK ? drain(word, deadline) : claimed;
}

static struct outcome claim(shared_word *word, int64_t deadline)
{
    for (;;) {
        uint32_t v = load_relaxed(word);
        if (is_impossible(v))
            return illegal(v);
        if (!is_claimed(v)) {
            // Acquire: pairs with the cas_release in rw_unlock_exclusive. Only one claimant can exist.
            if (cas_acquire(word, v, v | EXCL))
                return ok(v);
            continue;
        }
        v = spin_while(word, is_claimed);
        if (!is_claimed(v))
            continue;
        struct outcome waited = wait_before(deadline, word, v);
        if (waited.code != WORD_OK)
            return waited;
    }
}

static struct outcome drain(shared_word *word, int64_t deadline)
{
    for (;;) {
        // Acquire: pairs with the cas_release in rw_unlock_shared of every holder that left.
        uint32_t v = load_acquire(word);
        if (is_impossible(v))
            return illegal(v);
        if (!is_claimed(v))
            return damaged(v); // our claim is gone
        if (v == EXCL)
            return ok(v);
        v = spin_while(word, is_draining);
        if (!is_draining(v))
            continue;
        struct outcome waited = wait_before(deadline, word, v);
        if (waited.code == WORD_NO)
            return withdraw(word);
        if (waited.code != WORD_OK)
            return waited;
    }
}

// WORD_NO: withdrawn. WORD_OK: the last holder left first, and the lock is ours.
static struct outcome withdraw(shared_word *word)
{
    for (;;) {
        // Acquire: pairs with the cas_release in rw_unlock_shared, should the drain have succeeded after all.
        uint32_t v = load_acquire(word);
        if (is_impossible(v))
            return illegal(v);
        if (!is_claimed(v))
            return damaged(v);
        if (v == EXCL)
            return ok(v);
        // Release: pairs with the cas_acquire of the next to lock.
        if (cas_release(word, v, v & ~EXCL)) {
            struct outcome woken = futex_wake(word, INT_MAX);
            return woken.code == WORD_OK ? no(v) : woken;
        }
    }
}

struct outcome rw_unlock_exclusive(shared_word *word) { return leave_exclusive(word, FREE); }
struct outcome rw_downgrade(shared_word *word) { return leave_exclusive(word, 1); }

// The two ways out of EXCL. Release: pairs with the acquires in rw_try_lock_shared, rw_try_lock_exclusive and claim;
// publishes what the writer wrote.
static struct outcome leave_exclusive(shared_word *word, uint32_t next)
{
    for (;;) {
        uint32_t v = load_relaxed(word);
        if (is_impossible(v))
            return illegal(v);
        if (v != EXCL)
            return misuse(v);
        if (cas_release(word, EXCL, next))
            return futex_wake(word, INT_MAX);
    }
}
