// SPDX-License-Identifier: Apache-2.0
//
// The C shim: PAUSE and the system calls that Java cannot make by itself.
//
// It never dereferences an address in a mapped file. Such a page may be lost (the file was truncated), and a fault in
// native code would kill the JVM; words are only passed on to the kernel, which answers EFAULT. Tables handed in by
// fermata_futex_waitv and fermata_guard are private memory of the caller.
//
// Every function returns 0 or a count, or -errno. Deadlines are absolute CLOCK_MONOTONIC nanoseconds; FERMATA_NEVER
// means no deadline.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { FERMATA_ABI = 2 };

#define FERMATA_NEVER INT64_MAX

// A `critical` call holds up safepoints. PAUSE takes up to 140 cycles on the processors known, 70 ns at 2 GHz:
// 64 of them stay below 5 microseconds, half of what the contract allows.
enum { FERMATA_PAUSE_MAX = 64 };

// Since Linux 5.16; spelled out here for older headers.
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
enum { WAITV_FLAG_32_BITS_SHARED = 2, WAITV_MAX = 128 };

struct waitv {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};
_Static_assert(sizeof(struct waitv) == 24, "the kernel's struct futex_waitv");

_Static_assert(sizeof(struct robust_list_head) == 24, "the kernel's struct robust_list_head");

static inline void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#else
#error "Fermata knows x86-64 and AArch64"
#endif
}

static int result(long r)
{
    return r < 0 ? -errno : (int) r;
}

static struct timespec *deadline_at(int64_t nanos, struct timespec *ts)
{
    if (nanos == FERMATA_NEVER)
        return NULL;
    if (nanos < 0)
        nanos = 0;
    ts->tv_sec = nanos / 1000000000;
    ts->tv_nsec = nanos % 1000000000;
    return ts;
}

// Raised whenever a function changes its meaning; a shim with another number is refused.
EXPORT int fermata_abi(void)
{
    return FERMATA_ABI;
}

EXPORT void fermata_pause(void)
{
    pause_once();
}

// Pauses n times, at most FERMATA_PAUSE_MAX. Returns how often.
EXPORT int fermata_pause_n(int n)
{
    if (n > FERMATA_PAUSE_MAX)
        n = FERMATA_PAUSE_MAX;
    for (int i = 0; i < n; i++)
        pause_once();
    return n < 0 ? 0 : n;
}

// Sleeps while the word holds `expected`. FUTEX_WAIT_BITSET, because its deadline is absolute.
EXPORT int fermata_futex_wait(const void *word, uint32_t expected, int64_t deadline)
{
    struct timespec ts;
    return result(syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline_at(deadline, &ts), NULL,
                          FUTEX_BITSET_MATCH_ANY));
}

// Wakes at most `count` sleepers; returns how many.
EXPORT int fermata_futex_wake(const void *word, int count)
{
    return result(syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0));
}

// Sleeps while every word holds its expected value. Returns the index of one that was woken, or -errno.
EXPORT int fermata_futex_waitv(const uint64_t *words, const uint32_t *expected, int n, int64_t deadline)
{
    struct waitv waiters[WAITV_MAX];
    struct timespec ts;
    if (n < 1 || n > WAITV_MAX)
        return -EINVAL;
    for (int i = 0; i < n; i++) {
        waiters[i] = (struct waitv) { .value = expected[i], .address = words[i], .flags = WAITV_FLAG_32_BITS_SHARED };
    }
    return result(syscall(SYS_futex_waitv, waiters, n, 0, deadline_at(deadline, &ts), CLOCK_MONOTONIC));
}

// A wait beside lifelines, which are all words but the first: like fermata_futex_waitv, but one that was woken wakes all
// others on them before it returns. Its JVM may be in a pause and take long to come back; the kernel wakes only one for
// a death.
EXPORT int fermata_guard(const uint64_t *words, const uint32_t *expected, int n, int64_t deadline)
{
    int woken = fermata_futex_waitv(words, expected, n, deadline);
    if (woken < 0)
        return woken;
    if (woken > 0)
        fermata_futex_wake((const void *) (uintptr_t) words[woken], INT_MAX);
    // Two words may have been woken, and only one index is told. Whoever was woken by a death finds another value there;
    // one call asks for all of them, while the woken may be many and the processor wanted.
    uint64_t other_words[WAITV_MAX];
    uint32_t other_expected[WAITV_MAX];
    int others = 0;
    for (int i = 1; i < n; i++) {
        if (i != woken) {
            other_words[others] = words[i];
            other_expected[others++] = expected[i];
        }
    }
    if (others > 0 && fermata_futex_waitv(other_words, other_expected, others, 0) != -ETIMEDOUT) {
        for (int i = 0; i < others; i++)
            fermata_futex_wake((const void *) (uintptr_t) other_words[i], INT_MAX);
    }
    return woken;
}

// Makes this process a target of the process-wide barrier; idempotent.
EXPORT int fermata_membarrier_register(void)
{
    return result(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
}

// A full memory barrier on every running thread of every registered process.
EXPORT int fermata_membarrier(void)
{
    return result(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0));
}

// Registers the calling thread's robust list, in place of the one that libc registered.
EXPORT int fermata_robust_list(const void *head)
{
    return result(syscall(SYS_set_robust_list, head, sizeof(struct robust_list_head)));
}

enum ofd { OFD_UNLOCK = 0, OFD_SHARED = 1, OFD_EXCLUSIVE = 2 };

static int ofd(int command, int fd, int64_t start, int64_t length, int kind, struct flock *lock)
{
    static const short types[] = { [OFD_UNLOCK] = F_UNLCK, [OFD_SHARED] = F_RDLCK, [OFD_EXCLUSIVE] = F_WRLCK };
    if (kind < OFD_UNLOCK || kind > OFD_EXCLUSIVE)
        return -EINVAL;
    *lock = (struct flock) { .l_type = types[kind], .l_whence = SEEK_SET, .l_start = start, .l_len = length };
    return result(fcntl(fd, command, lock));
}

// Locks or unlocks bytes for the open file description; does not wait: -EAGAIN where another one holds them.
EXPORT int fermata_ofd_lock(int fd, int64_t start, int64_t length, int kind)
{
    struct flock lock;
    return ofd(F_OFD_SETLK, fd, start, length, kind, &lock);
}

// 0 where fermata_ofd_lock would be granted, 1 where another open file description is in the way.
EXPORT int fermata_ofd_test(int fd, int64_t start, int64_t length, int kind)
{
    struct flock lock;
    int r = ofd(F_OFD_GETLK, fd, start, length, kind, &lock);
    return r < 0 ? r : lock.l_type != F_UNLCK;
}
