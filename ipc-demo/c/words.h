// SPDX-License-Identifier: Apache-2.0
//
// The words of PROTOCOL.md for C11 on Linux: the operations, the futex, deadlines, and the four protocols.
//
// A word is an aligned 32-bit integer in memory that every party maps with MAP_SHARED. The name of an operation says
// its ordering. Functions that can fail return an `outcome`, which carries the value that was seen; they print nothing
// and end nothing. A word with an impossible value is refused and left as it is.
//
// Nothing here detects the death of a process: a word held by a dead process stays held.

#ifndef FERMATA_WORDS_H
#define FERMATA_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint32_t shared_word;

_Static_assert(sizeof(shared_word) == 4, "a word has 32 bits");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a word must be lock-free to be shared between processes");
_Static_assert(sizeof(void *) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "64-bit little-endian only");

// ---- 1 Conventions: operations -------------------------------------------------------------------------------------

static inline uint32_t load_relaxed(shared_word *w) { return atomic_load_explicit(w, memory_order_relaxed); }
static inline uint32_t load_acquire(shared_word *w) { return atomic_load_explicit(w, memory_order_acquire); }
static inline void store_relaxed(shared_word *w, uint32_t v) { atomic_store_explicit(w, v, memory_order_relaxed); }
static inline void store_release(shared_word *w, uint32_t v) { atomic_store_explicit(w, v, memory_order_release); }

static inline bool cas_acquire(shared_word *w, uint32_t expected, uint32_t v)
{
    return atomic_compare_exchange_strong_explicit(w, &expected, v, memory_order_acquire, memory_order_relaxed);
}

static inline bool cas_release(shared_word *w, uint32_t expected, uint32_t v)
{
    return atomic_compare_exchange_strong_explicit(w, &expected, v, memory_order_release, memory_order_relaxed);
}

static inline uint32_t swap_acquire(shared_word *w, uint32_t v)
{
    return atomic_exchange_explicit(w, v, memory_order_acquire);
}

static inline uint32_t swap_release(shared_word *w, uint32_t v)
{
    return atomic_exchange_explicit(w, v, memory_order_release);
}

static inline uint32_t swap(shared_word *w, uint32_t v) { return atomic_exchange_explicit(w, v, memory_order_acq_rel); }

static inline uint32_t add_relaxed(shared_word *w, uint32_t n)
{
    return atomic_fetch_add_explicit(w, n, memory_order_relaxed);
}

// Tells the processor that this is a spin loop. (`pause` alone is a function of <unistd.h>.)
static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
#error "no pause instruction known for this architecture; add it here"
#endif
}

// ---- What a step answers -------------------------------------------------------------------------------------------

enum outcome_code {
    WORD_OK,       // done; for test_and_set and clear, `seen` is the previous state
    WORD_NO,       // a try found it held, or the deadline passed; nothing is held by the caller
    WORD_MISUSE,   // unlocking what is not locked; nothing was changed
    WORD_ILLEGAL,  // an impossible value; left as it is
    WORD_OVERFLOW, // the count of shared holders is at its maximum; nothing was changed
    WORD_DAMAGED,  // the mapping lost its page, or the word lost the claim of the one who waits in it
    WORD_BUG,      // the kernel refused the futex call; `seen` is the errno
};

struct outcome {
    enum outcome_code code;
    uint32_t seen;
};

static inline struct outcome ok(uint32_t v) { return (struct outcome){WORD_OK, v}; }
static inline struct outcome no(uint32_t v) { return (struct outcome){WORD_NO, v}; }
static inline struct outcome misuse(uint32_t v) { return (struct outcome){WORD_MISUSE, v}; }
static inline struct outcome illegal(uint32_t v) { return (struct outcome){WORD_ILLEGAL, v}; }
static inline struct outcome overflow(uint32_t v) { return (struct outcome){WORD_OVERFLOW, v}; }
static inline struct outcome damaged(uint32_t v) { return (struct outcome){WORD_DAMAGED, v}; }

// ---- 1 Conventions: deadlines and the futex ------------------------------------------------------------------------

// Deadlines are absolute CLOCK_MONOTONIC times in nanoseconds. One that has passed makes a single attempt.
#define NO_DEADLINE INT64_MAX

// The deadline `timeout` nanoseconds from now. Zero and negative: already passed. Overflow: NO_DEADLINE.
int64_t deadline_after(int64_t timeout);

// Sleeps while the word holds `expected`, until the deadline at most. WORD_OK is only a hint: look at the word.
struct outcome futex_wait(shared_word *word, uint32_t expected, int64_t deadline);

// Wakes at most `n` sleepers; INT_MAX means all.
struct outcome futex_wake(shared_word *word, int n);

// The end of every waiting loop: WORD_NO if the deadline has passed, WORD_OK if it is time to look again. It sleeps
// LOOK_AGAIN nanoseconds at most: nobody wakes those who sleep on a page that was cut off, only a look finds that.
#define LOOK_AGAIN INT64_C(2000000000)
struct outcome wait_before(int64_t deadline, shared_word *word, uint32_t expected);

// How often a spinner looks: SPIN_LIMIT times, once where only one CPU is online.
#define SPIN_LIMIT 100
uint32_t spin_limit(void);

// Looks at most spin_limit() times while `busy`; returns the last look.
uint32_t spin_while(shared_word *word, bool (*busy)(uint32_t));

// ---- 2 AtomicFlag --------------------------------------------------------------------------------------------------

bool flag_is_set(shared_word *word);
struct outcome flag_test_and_set(shared_word *word);
struct outcome flag_clear(shared_word *word);
struct outcome flag_await_set(shared_word *word, int64_t deadline);
struct outcome flag_await_cleared(shared_word *word, int64_t deadline);

// ---- 3 SpinLock ----------------------------------------------------------------------------------------------------

struct outcome spin_try_lock(shared_word *word);
struct outcome spin_lock(shared_word *word, int64_t deadline);
struct outcome spin_unlock(shared_word *word);

// ---- 4 WordMutex ---------------------------------------------------------------------------------------------------

struct word_mutex {
    shared_word *word;
    shared_word *counter; // slow-path acquisitions, or NULL
    shared_word *owner;   // the holder's id for people to read, or NULL; nothing is decided from it
    uint32_t id;          // what to write into `owner`; not 0
};

struct outcome mutex_try_lock(const struct word_mutex *mutex);
struct outcome mutex_lock(const struct word_mutex *mutex, int64_t deadline);
struct outcome mutex_unlock(const struct word_mutex *mutex);

// ---- 5 WordReadWriteLock -------------------------------------------------------------------------------------------

struct outcome rw_try_lock_shared(shared_word *word);
struct outcome rw_lock_shared(shared_word *word, int64_t deadline);
struct outcome rw_unlock_shared(shared_word *word);
struct outcome rw_try_lock_exclusive(shared_word *word);
struct outcome rw_lock_exclusive(shared_word *word, int64_t deadline);
struct outcome rw_unlock_exclusive(shared_word *word);
struct outcome rw_downgrade(shared_word *word);

#endif
