// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks are compared with: the protocols of the words in C, the mutexes of libc, and for lock files the
// least that a look-up and a creation can cost.
// Every function does n operations and returns 0, or -1 for a lock that misbehaved.
//
// This is PROTOCOL.md to the letter: look first, acquire and release orderings, the shared futex. The fast paths are
// inlined into the loops and the slow paths are not. That is how C2 compiles the Java loops, and the hardest case to
// compare with: a library's function costs a call more (mutex_called).

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline))

typedef _Atomic uint32_t word;

enum { SPIN_LIMIT = 100 };

static inline uint32_t load_relaxed(word *w) { return atomic_load_explicit(w, memory_order_relaxed); }
static inline uint32_t load_acquire(word *w) { return atomic_load_explicit(w, memory_order_acquire); }
static inline uint32_t swap_acquire(word *w, uint32_t v)
{
    return atomic_exchange_explicit(w, v, memory_order_acquire);
}

static inline uint32_t swap_release(word *w, uint32_t v)
{
    return atomic_exchange_explicit(w, v, memory_order_release);
}

static inline uint32_t swap(word *w, uint32_t v) { return atomic_exchange_explicit(w, v, memory_order_acq_rel); }

static inline bool cas_acquire(word *w, uint32_t expected, uint32_t v)
{
    return atomic_compare_exchange_strong_explicit(w, &expected, v, memory_order_acquire, memory_order_relaxed);
}

static inline bool cas_release(word *w, uint32_t expected, uint32_t v)
{
    return atomic_compare_exchange_strong_explicit(w, &expected, v, memory_order_release, memory_order_relaxed);
}

static inline void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

static NOINLINE void futex_wait(word *w, uint32_t expected)
{
    syscall(SYS_futex, w, FUTEX_WAIT_BITSET, expected, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
}

static NOINLINE void futex_wake(word *w, int n)
{
    syscall(SYS_futex, w, FUTEX_WAKE, n);
}

// The outcome of a step: impossible values and misuse are told, and nothing is changed.
enum { DONE = 0, REFUSED = -1 };

// Section 2.

enum { CLEAR = 0, SET = 1 };

static inline int flag_change(word *w, uint32_t from, uint32_t to)
{
    uint32_t v = load_acquire(w);
    if (v > SET)
        return REFUSED;
    if (v == from && swap(w, to) == from)
        futex_wake(w, INT_MAX);
    return DONE;
}

static inline int flag_await(word *w, uint32_t wanted)
{
    for (;;) {
        for (int i = 0; i < SPIN_LIMIT; i++) {
            uint32_t v = load_acquire(w);
            if (v == wanted)
                return DONE;
            if (v > SET)
                return REFUSED;
            pause_once();
        }
        futex_wait(w, SET - wanted);
    }
}

EXPORT int flag_loop(word *w, long n)
{
    for (long i = 0; i < n; i++)
        if (flag_change(w, CLEAR, SET) || flag_change(w, SET, CLEAR))
            return REFUSED;
    return DONE;
}

// n times to the other side and back.
EXPORT int flag_ping(word *ping, word *pong, long n)
{
    for (long i = 0; i < n; i++)
        if (flag_change(ping, CLEAR, SET) || flag_await(pong, SET) || flag_change(pong, SET, CLEAR))
            return REFUSED;
    return DONE;
}

// The other side, until stop is set.
EXPORT int flag_pong(word *ping, word *pong, word *stop)
{
    while (load_acquire(stop) == CLEAR)
        if (flag_await(ping, SET) || flag_change(ping, SET, CLEAR) || flag_change(pong, CLEAR, SET))
            return REFUSED;
    return DONE;
}

// Sections 3 and 4.

enum { FREE = 0, LOCKED = 1, CONTENDED = 2 };

static inline bool try_lock(word *w)
{
    return load_relaxed(w) == FREE && cas_acquire(w, FREE, LOCKED);
}

static NOINLINE int spin_lock_contended(word *w)
{
    for (;;) {
        for (int i = 0; i < SPIN_LIMIT; i++) {
            if (try_lock(w))
                return DONE;
            pause_once();
        }
        if (load_relaxed(w) > LOCKED)
            return REFUSED;
        futex_wait(w, LOCKED);
    }
}

static inline int spin_lock(word *w)
{
    return try_lock(w) ? DONE : spin_lock_contended(w);
}

static inline int spin_unlock(word *w)
{
    if (load_relaxed(w) != LOCKED || swap_release(w, FREE) != LOCKED)
        return REFUSED;
    futex_wake(w, 1);
    return DONE;
}

EXPORT int spin_loop(word *w, long n)
{
    for (long i = 0; i < n; i++)
        if (spin_lock(w) || spin_unlock(w))
            return REFUSED;
    return DONE;
}

static uint32_t mutex_spin(word *w)
{
    uint32_t v = load_relaxed(w);
    for (int i = 0; v == LOCKED && i < SPIN_LIMIT; i++) {
        pause_once();
        v = load_relaxed(w);
    }
    return v;
}

static NOINLINE int mutex_lock_contended(word *w)
{
    uint32_t v = mutex_spin(w);
    if (v == FREE && cas_acquire(w, FREE, LOCKED))
        return DONE;
    for (;;) {
        if (v > CONTENDED)
            return REFUSED;
        if (v != CONTENDED && swap_acquire(w, CONTENDED) == FREE)
            return DONE;
        futex_wait(w, CONTENDED);
        v = mutex_spin(w);
    }
}

static inline int mutex_lock(word *w)
{
    return try_lock(w) ? DONE : mutex_lock_contended(w);
}

static inline int mutex_unlock(word *w)
{
    uint32_t v = load_relaxed(w);
    if (v == FREE || v > CONTENDED)
        return REFUSED;
    v = swap_release(w, FREE);
    if (v == CONTENDED)
        futex_wake(w, 1);
    return v == FREE ? REFUSED : DONE;
}

EXPORT int mutex_loop(word *w, long n)
{
    for (long i = 0; i < n; i++)
        if (mutex_lock(w) || mutex_unlock(w))
            return REFUSED;
    return DONE;
}

static NOINLINE int mutex_lock_called(word *w)
{
    return mutex_lock(w);
}

static NOINLINE int mutex_unlock_called(word *w)
{
    return mutex_unlock(w);
}

EXPORT int mutex_called_loop(word *w, long n)
{
    for (long i = 0; i < n; i++)
        if (mutex_lock_called(w) || mutex_unlock_called(w))
            return REFUSED;
    return DONE;
}

// Section 5.

#define EXCL (UINT32_C(1) << 30)
#define COUNT (EXCL - 1)

static NOINLINE int await_unclaimed(word *w)
{
    uint32_t v = load_relaxed(w);
    for (int i = 0; v & EXCL && i < SPIN_LIMIT; i++) {
        pause_once();
        v = load_relaxed(w);
    }
    if (v & ~(EXCL | COUNT))
        return REFUSED;
    if (v & EXCL)
        futex_wait(w, v);
    return DONE;
}

static inline int rw_lock_shared(word *w)
{
    for (;;) {
        uint32_t v = load_relaxed(w);
        if (v & ~COUNT) {
            if (await_unclaimed(w))
                return REFUSED;
        } else if (v == COUNT) {
            return REFUSED;
        } else if (cas_acquire(w, v, v + 1)) {
            return DONE;
        }
    }
}

static inline int rw_unlock_shared(word *w)
{
    uint32_t v;
    do {
        v = load_relaxed(w);
        if ((v & COUNT) == 0 || v & ~(EXCL | COUNT))
            return REFUSED;
    } while (!cas_release(w, v, v - 1));
    if (v - 1 == EXCL)
        futex_wake(w, INT_MAX);
    return DONE;
}

static NOINLINE int rw_drain(word *w)
{
    for (;;) {
        uint32_t v = load_acquire(w);
        for (int i = 0; v & COUNT && i < SPIN_LIMIT; i++) {
            pause_once();
            v = load_acquire(w);
        }
        if (v == EXCL)
            return DONE;
        if (!(v & EXCL))
            return REFUSED;
        futex_wait(w, v);
    }
}

static inline int rw_lock_exclusive(word *w)
{
    for (;;) {
        uint32_t v = load_relaxed(w);
        if (v & ~COUNT) {
            if (await_unclaimed(w))
                return REFUSED;
        } else if (cas_acquire(w, v, v | EXCL)) {
            return load_acquire(w) == EXCL ? DONE : rw_drain(w);
        }
    }
}

static inline int rw_unlock_exclusive(word *w)
{
    if (load_relaxed(w) != EXCL || !cas_release(w, EXCL, FREE))
        return REFUSED;
    futex_wake(w, INT_MAX);
    return DONE;
}

EXPORT int rw_shared_loop(word *w, long n)
{
    for (long i = 0; i < n; i++)
        if (rw_lock_shared(w) || rw_unlock_shared(w))
            return REFUSED;
    return DONE;
}

EXPORT int rw_exclusive_loop(word *w, long n)
{
    for (long i = 0; i < n; i++)
        if (rw_lock_exclusive(w) || rw_unlock_exclusive(w))
            return REFUSED;
    return DONE;
}

EXPORT int pause_loop(long n)
{
    for (long i = 0; i < n; i++)
        pause_once();
    return DONE;
}

// libc.

EXPORT int pthread_init(pthread_mutex_t *mutex, int robust)
{
    pthread_mutexattr_t attributes;
    return pthread_mutexattr_init(&attributes)
            || pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)
            || (robust && pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST))
            || pthread_mutex_init(mutex, &attributes) ? REFUSED : DONE;
}

EXPORT int pthread_loop(pthread_mutex_t *mutex, long n)
{
    for (long i = 0; i < n; i++)
        if (pthread_mutex_lock(mutex) || pthread_mutex_unlock(mutex))
            return REFUSED;
    return DONE;
}

// Lock files.

enum { ENTRY_WORDS = 16, COLD_LINE = 8, CHUNK = 1 << 20 };

// n look-ups of two cache misses: a random word of an index, and the second line of the entry that it names. Each has
// to wait for the one before.
EXPORT int misses_loop(const uint64_t *index, long length, long entry_count, long n)
{
    static uint64_t seed = 1; // goes on where the last call ended: no place is used again soon
    const uint64_t *entries = index + length;
    uint64_t found = 0;
    for (long i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t entry = index[((seed >> 32) ^ (found >> 63)) & (uint64_t)(length - 1)];
        if (entry >= (uint64_t)entry_count)
            return REFUSED;
        found = entries[entry * ENTRY_WORDS + COLD_LINE];
    }
    return found >> 63 ? REFUSED : DONE;
}

// A new file, its space reserved, and then written from end to end.
EXPORT int reserve_and_write(const char *path, long size)
{
    static const char zeros[CHUNK];
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return REFUSED;
    int result = posix_fallocate(fd, 0, size) ? REFUSED : DONE;
    for (long at = 0; at < size && result == DONE; ) {
        ssize_t written = pwrite(fd, zeros, (size_t)(size - at < CHUNK ? size - at : CHUNK), at);
        if (written <= 0)
            result = REFUSED;
        else
            at += written;
    }
    return close(fd) ? REFUSED : result;
}
