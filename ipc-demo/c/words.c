// SPDX-License-Identifier: Apache-2.0
//
// Sections 1 to 4 of PROTOCOL.md, in its order and with its names; section 5 is in words_rw.c.
//
// Look first: a relaxed look precedes every read-modify-write; it refuses impossible values before anything is changed.
// Whatever the futex answers, the state of the word decides, and the clock is read only after the word.

#define _GNU_SOURCE
#include "words.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// ---- 1 Conventions -------------------------------------------------------------------------------------------------

static int64_t monotonic_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t deadline_after(int64_t timeout)
{
    if (timeout <= 0)
        return 0;
    int64_t now = monotonic_now();
    return timeout >= NO_DEADLINE - now ? NO_DEADLINE : now + timeout;
}

// EFAULT: the page is gone. Everything else that is not a hint is a bug of the caller.
static struct outcome futex_outcome(long result)
{
    if (result >= 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT)
        return ok(0);
    return errno == EFAULT ? damaged(0) : (struct outcome){WORD_BUG, (uint32_t)errno};
}

struct outcome futex_wait(shared_word *word, uint32_t expected, int64_t deadline)
{
    struct timespec at = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    return futex_outcome(syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline == NO_DEADLINE ? NULL : &at,
                                 NULL, FUTEX_BITSET_MATCH_ANY));
}

struct outcome futex_wake(shared_word *word, int n)
{
    return futex_outcome(syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0));
}

struct outcome wait_before(int64_t deadline, shared_word *word, uint32_t expected)
{
    int64_t now = monotonic_now();
    if (deadline != NO_DEADLINE && now >= deadline)
        return no(expected);
    int64_t look_again = now + LOOK_AGAIN;
    return futex_wait(word, expected, deadline < look_again ? deadline : look_again);
}

uint32_t spin_limit(void)
{
    // Threads may race to find out; all find the same.
    static shared_word cached;
    uint32_t limit = load_relaxed(&cached);
    if (limit == 0) {
        limit = sysconf(_SC_NPROCESSORS_ONLN) == 1 ? 1 : SPIN_LIMIT;
        store_relaxed(&cached, limit);
    }
    return limit;
}

uint32_t spin_while(shared_word *word, bool (*busy)(uint32_t))
{
    for (uint32_t looks = spin_limit();;) {
        uint32_t v = load_relaxed(word);
        if (!busy(v) || --looks == 0)
            return v;
        spin_pause();
    }
}

// ---- 2 AtomicFlag --------------------------------------------------------------------------------------------------
//
// A wake is issued if and only if the state changed: the word holds no trace of its waiters.

#define CLEAR 0u
#define SET 1u

static bool is_clear(uint32_t v) { return v == CLEAR; }
static bool is_set(uint32_t v) { return v == SET; }

// Acquire: pairs with the swap in flag_test_and_set; what the setter wrote before is visible.
bool flag_is_set(shared_word *word) { return load_acquire(word) == SET; }

struct outcome flag_test_and_set(shared_word *word)
{
    // Acquire: pairs with the swap below in whoever set it.
    uint32_t v = load_acquire(word);
    if (v > SET)
        return illegal(v);
    if (v == SET)
        return ok(SET);
    // Acquire and release: pairs with the swap in flag_clear, and publishes to everyone who sees SET.
    v = swap(word, SET);
    if (v > SET)
        return illegal(v);
    if (v == SET)
        return ok(SET);
    struct outcome woken = futex_wake(word, INT_MAX);
    return woken.code == WORD_OK ? ok(CLEAR) : woken;
}

struct outcome flag_clear(shared_word *word)
{
    uint32_t v = load_relaxed(word);
    if (v > SET)
        return illegal(v);
    if (v == CLEAR)
        return ok(CLEAR);
    // Acquire and release: pairs with the swap in flag_test_and_set, and publishes to everyone who sees CLEAR.
    v = swap(word, CLEAR);
    if (v > SET)
        return illegal(v);
    if (v == CLEAR)
        return ok(CLEAR);
    struct outcome woken = futex_wake(word, INT_MAX);
    return woken.code == WORD_OK ? ok(SET) : woken;
}

static struct outcome await(shared_word *word, uint32_t wanted, int64_t deadline)
{
    for (;;) {
        // Acquire: pairs with the swap that stored `wanted`.
        uint32_t v = load_acquire(word);
        if (v > SET)
            return illegal(v);
        if (v == wanted)
            return ok(v);
        if (spin_while(word, wanted == SET ? is_clear : is_set) != v)
            continue;
        struct outcome waited = wait_before(deadline, word, v);
        if (waited.code != WORD_OK)
            return waited;
    }
}

struct outcome flag_await_set(shared_word *word, int64_t deadline) { return await(word, SET, deadline); }
struct outcome flag_await_cleared(shared_word *word, int64_t deadline) { return await(word, CLEAR, deadline); }

// ---- 3 SpinLock ----------------------------------------------------------------------------------------------------
//
// LOCKED does not say whether anybody sleeps, so every unlock wakes one.

#define FREE 0u
#define LOCKED 1u

struct outcome spin_try_lock(shared_word *word)
{
    uint32_t v = load_relaxed(word);
    if (v > LOCKED)
        return illegal(v);
    // Acquire: pairs with the swap_release in spin_unlock; sees the last critical section.
    return v == FREE && cas_acquire(word, FREE, LOCKED) ? ok(FREE) : no(v);
}

// A waiter that was woken tries before it looks at its deadline: if that fails, the new holder wakes the next one.
static struct outcome spin_lock_contended(shared_word *word, int64_t deadline)
{
    for (;;) {
        for (uint32_t tries = spin_limit(); tries > 0; tries--) {
            struct outcome tried = spin_try_lock(word);
            if (tried.code != WORD_NO)
                return tried;
            spin_pause();
        }
        struct outcome waited = wait_before(deadline, word, LOCKED);
        if (waited.code != WORD_OK)
            return waited;
    }
}

struct outcome spin_lock(shared_word *word, int64_t deadline)
{
    struct outcome tried = spin_try_lock(word);
    return tried.code == WORD_NO ? spin_lock_contended(word, deadline) : tried;
}

struct outcome spin_unlock(shared_word *word)
{
    uint32_t v = load_relaxed(word);
    if (v > LOCKED)
        return illegal(v);
    if (v == FREE)
        return misuse(v);
    // Release: pairs with the cas_acquire in spin_try_lock; publishes the critical section.
    v = swap_release(word, FREE);
    if (v > LOCKED)
        return illegal(v);
    if (v == FREE)
        return misuse(v);
    return futex_wake(word, 1);
}

// ---- 4 WordMutex ---------------------------------------------------------------------------------------------------
//
// FREE (0): set by unlock. LOCKED (1): held, nobody sleeps; set by lock and try_lock. CONTENDED (2): held, somebody may
// sleep; set by lock_contended. CONTENDED without a sleeper is harmless, one needless wake. LOCKED with a sleeper would
// be fatal: it is never woken.

#define CONTENDED 2u

static bool is_locked(uint32_t v) { return v == LOCKED; }

static struct outcome acquired(const struct word_mutex *mutex, bool slow_path)
{
    if (slow_path && mutex->counter != NULL)
        add_relaxed(mutex->counter, 1);
    if (mutex->owner != NULL)
        store_relaxed(mutex->owner, mutex->id);
    return ok(FREE);
}

struct outcome mutex_try_lock(const struct word_mutex *mutex)
{
    uint32_t v = load_relaxed(mutex->word);
    if (v > CONTENDED)
        return illegal(v);
    // Acquire: pairs with the swap_release in mutex_unlock; sees the last critical section.
    return v == FREE && cas_acquire(mutex->word, FREE, LOCKED) ? acquired(mutex, false) : no(v);
}

static uint32_t spin(const struct word_mutex *mutex) { return spin_while(mutex->word, is_locked); }

static struct outcome mutex_lock_contended(const struct word_mutex *mutex, int64_t deadline)
{
    uint32_t v = spin(mutex);
    // Acquire: pairs with the swap_release in mutex_unlock.
    if (v == FREE && cas_acquire(mutex->word, FREE, LOCKED))
        return acquired(mutex, true);
    for (;;) {
        if (v > CONTENDED)
            return illegal(v);
        if (v != CONTENDED) {
            // Acquire: pairs with the swap_release in mutex_unlock. It comes before the deadline: a waiter that
            // consumed a wake and leaves must leave CONTENDED behind.
            v = swap_acquire(mutex->word, CONTENDED);
            if (v == FREE)
                return acquired(mutex, true);
            if (v > CONTENDED)
                return illegal(v);
        }
        struct outcome waited = wait_before(deadline, mutex->word, CONTENDED);
        if (waited.code != WORD_OK)
            return waited;
        v = spin(mutex);
    }
}

struct outcome mutex_lock(const struct word_mutex *mutex, int64_t deadline)
{
    struct outcome tried = mutex_try_lock(mutex);
    return tried.code == WORD_NO ? mutex_lock_contended(mutex, deadline) : tried;
}

static struct outcome wake(const struct word_mutex *mutex) { return futex_wake(mutex->word, 1); }

struct outcome mutex_unlock(const struct word_mutex *mutex)
{
    uint32_t v = load_relaxed(mutex->word);
    if (v > CONTENDED)
        return illegal(v);
    if (v == FREE)
        return misuse(v);
    if (mutex->owner != NULL)
        store_relaxed(mutex->owner, 0);
    // Release: pairs with the acquires in mutex_try_lock and mutex_lock_contended; publishes the critical section.
    v = swap_release(mutex->word, FREE);
    if (v > CONTENDED)
        return illegal(v);
    if (v == FREE)
        return misuse(v);
    return v == CONTENDED ? wake(mutex) : ok(v);
}
