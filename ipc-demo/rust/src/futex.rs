// SPDX-License-Identifier: Apache-2.0

//! Section 1 of PROTOCOL.md: the operations, whose names say their ordering, deadlines, and the shared futex.
//!
//! A word is an aligned 32-bit integer in memory that every party maps with `MAP_SHARED`.

use std::io;
use std::os::raw::{c_int, c_long, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("the words are defined for Linux on 64-bit little-endian machines only");

/// What can go wrong with a word. Each carries the value that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordError {
    /// Unlocking what is not locked; nothing was changed.
    Misuse(u32),
    /// An impossible value; left as it is.
    Illegal(u32),
    /// The count of shared holders is at its maximum; nothing was changed.
    Overflow(u32),
    /// The mapping lost its page, or the word lost the claim of the one who waits in it.
    Damaged(u32),
    /// The kernel refused the futex call with this errno: a bug of the caller.
    Bug(i32),
}

// ---- Operations -----------------------------------------------------------------------------------------------------

/// The operations of section 1 on a word.
pub trait Word {
    fn load_relaxed(&self) -> u32;
    fn load_acquire(&self) -> u32;
    fn store_relaxed(&self, v: u32);
    fn store_release(&self, v: u32);
    fn cas_acquire(&self, expected: u32, v: u32) -> bool;
    fn cas_release(&self, expected: u32, v: u32) -> bool;
    fn swap_acquire(&self, v: u32) -> u32;
    fn swap_release(&self, v: u32) -> u32;
    fn swap_acq_rel(&self, v: u32) -> u32;
    fn add_relaxed(&self, n: u32) -> u32;
}

impl Word for AtomicU32 {
    fn load_relaxed(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    fn load_acquire(&self) -> u32 {
        self.load(Ordering::Acquire)
    }

    fn store_relaxed(&self, v: u32) {
        self.store(v, Ordering::Relaxed);
    }

    fn store_release(&self, v: u32) {
        self.store(v, Ordering::Release);
    }

    fn cas_acquire(&self, expected: u32, v: u32) -> bool {
        self.compare_exchange(expected, v, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn cas_release(&self, expected: u32, v: u32) -> bool {
        self.compare_exchange(expected, v, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    fn swap_acquire(&self, v: u32) -> u32 {
        self.swap(v, Ordering::Acquire)
    }

    fn swap_release(&self, v: u32) -> u32 {
        self.swap(v, Ordering::Release)
    }

    // Named `swap` in PROTOCOL.md; that name belongs to the standard library here.
    fn swap_acq_rel(&self, v: u32) -> u32 {
        self.swap(v, Ordering::AcqRel)
    }

    fn add_relaxed(&self, n: u32) -> u32 {
        self.fetch_add(n, Ordering::Relaxed)
    }
}

/// Tells the processor that this is a spin loop: PAUSE on x86-64, `isb` on AArch64.
pub fn pause() {
    std::hint::spin_loop();
}

// ---- The C library --------------------------------------------------------------------------------------------------

#[repr(C)]
struct Timespec {
    tv_sec: i64,
    tv_nsec: i64,
}

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    fn sysconf(name: c_int) -> c_long;
}

#[cfg(target_arch = "x86_64")]
const SYS_FUTEX: c_long = 202;
#[cfg(target_arch = "aarch64")]
const SYS_FUTEX: c_long = 98;

// Never FUTEX_PRIVATE_FLAG (128): the sleepers are in other processes.
const FUTEX_WAKE: c_int = 1;
const FUTEX_WAIT_BITSET: c_int = 9;
const FUTEX_BITSET_MATCH_ANY: u32 = u32::MAX;

const CLOCK_MONOTONIC: c_int = 1;
const SC_NPROCESSORS_ONLN: c_int = 84;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EFAULT: i32 = 14;
const ETIMEDOUT: i32 = 110;

// ---- Deadlines ------------------------------------------------------------------------------------------------------

/// Absolute `CLOCK_MONOTONIC` time in nanoseconds. One that has passed makes a single attempt.
pub type Deadline = i64;

pub const NO_DEADLINE: Deadline = i64::MAX;

fn monotonic_now() -> i64 {
    let mut now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec, and the kernel only writes into it.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The deadline `timeout` nanoseconds from now. Zero and negative: already passed. Overflow: [`NO_DEADLINE`].
pub fn deadline_after(timeout: i64) -> Deadline {
    if timeout <= 0 {
        return 0;
    }
    monotonic_now().saturating_add(timeout)
}

// ---- The futex ------------------------------------------------------------------------------------------------------

// EFAULT: the page is gone. Everything else that is not a hint is a bug of the caller.
fn futex_outcome(result: c_long) -> Result<(), WordError> {
    if result >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
        EAGAIN | EINTR | ETIMEDOUT => Ok(()),
        EFAULT => Err(WordError::Damaged(0)),
        errno => Err(WordError::Bug(errno)),
    }
}

/// Sleeps while the word holds `expected`, until the deadline at most. `Ok` is only a hint: look at the word.
pub fn futex_wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Result<(), WordError> {
    let at = Timespec {
        tv_sec: deadline / 1_000_000_000,
        tv_nsec: deadline % 1_000_000_000,
    };
    let timeout: *const Timespec = if deadline == NO_DEADLINE { null() } else { &at };
    let no_second_word: *const c_void = null();
    // SAFETY: the kernel checks the address of the word, and `at` outlives the call.
    futex_outcome(unsafe {
        syscall(
            SYS_FUTEX,
            word as *const AtomicU32,
            FUTEX_WAIT_BITSET,
            expected,
            timeout,
            no_second_word,
            FUTEX_BITSET_MATCH_ANY,
        )
    })
}

/// Wakes at most `n` sleepers; `i32::MAX` means all.
pub fn futex_wake(word: &AtomicU32, n: i32) -> Result<(), WordError> {
    // SAFETY: the kernel checks the address of the word.
    futex_outcome(unsafe { syscall(SYS_FUTEX, word as *const AtomicU32, FUTEX_WAKE, n) })
}

/// The longest sleep, in nanoseconds. Nobody wakes those who sleep on a page that was cut off; only a look finds that.
pub const LOOK_AGAIN: i64 = 2_000_000_000;

/// The end of every waiting loop: `false` if the deadline has passed, `true` if it is time to look again.
pub fn wait_before(deadline: Deadline, word: &AtomicU32, expected: u32) -> Result<bool, WordError> {
    let now = monotonic_now();
    if deadline != NO_DEADLINE && now >= deadline {
        return Ok(false);
    }
    futex_wait(word, expected, deadline.min(now + LOOK_AGAIN)).map(|()| true)
}

// ---- Spinning -------------------------------------------------------------------------------------------------------

pub const SPIN_LIMIT: u32 = 100;

/// How often a spinner looks: `SPIN_LIMIT` times, once where only one CPU is online.
pub fn spin_limit() -> u32 {
    // Threads may race to find out; all find the same.
    static CACHED: AtomicU32 = AtomicU32::new(0);
    let mut limit = CACHED.load_relaxed();
    if limit == 0 {
        // SAFETY: sysconf only reads.
        let online = unsafe { sysconf(SC_NPROCESSORS_ONLN) };
        limit = if online == 1 { 1 } else { SPIN_LIMIT };
        CACHED.store_relaxed(limit);
    }
    limit
}

/// Looks at most `spin_limit()` times while `busy`; returns the last look.
pub fn spin_while(word: &AtomicU32, busy: impl Fn(u32) -> bool) -> u32 {
    let mut looks = spin_limit();
    loop {
        let v = word.load_relaxed();
        looks -= 1;
        if !busy(v) || looks == 0 {
            return v;
        }
        pause();
    }
}
