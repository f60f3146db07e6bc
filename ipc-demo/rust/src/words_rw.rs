// SPDX-License-Identifier: Apache-2.0

//! Section 5 of PROTOCOL.md: `WordReadWriteLock`, a bit-packed shared/exclusive word.

use crate::futex::{futex_wake, spin_while, wait_before, Deadline, Word, WordError};
use std::sync::atomic::AtomicU32;

const FREE: u32 = 0;
// Never set; refused and left as it is.
const IMPOSSIBLE: u32 = 1 << 31;
// One holder or claimant, newcomers wait; set by claim, cleared by withdraw, unlock_exclusive and downgrade.
const EXCL: u32 = 1 << 30;
// Shared holders.
const COUNT: u32 = EXCL - 1;

fn is_impossible(v: u32) -> bool {
    v & IMPOSSIBLE != 0
}

// Held, or claimed and draining.
fn is_claimed(v: u32) -> bool {
    v & (IMPOSSIBLE | EXCL) == EXCL
}

fn is_draining(v: u32) -> bool {
    is_claimed(v) && v & COUNT != 0
}

/// Readers and claimants sleep on the one word, so every store that can end a wait is followed by a wake of all: a wake
/// of one could reach the wrong one and be lost.
pub struct WordReadWriteLock<'a> {
    pub word: &'a AtomicU32,
}

impl WordReadWriteLock<'_> {
    // The look before every read-modify-write.
    fn look(&self) -> Result<u32, WordError> {
        match self.word.load_relaxed() {
            v if is_impossible(v) => Err(WordError::Illegal(v)),
            v => Ok(v),
        }
    }

    pub fn try_lock_shared(&self) -> Result<bool, WordError> {
        loop {
            let v = self.look()?;
            if is_claimed(v) {
                return Ok(false);
            }
            if v == COUNT {
                return Err(WordError::Overflow(v));
            }
            // Acquire: pairs with the cas_release in unlock_exclusive and downgrade; sees what the writer wrote.
            if self.word.cas_acquire(v, v + 1) {
                return Ok(true);
            }
        }
    }

    pub fn lock_shared(&self, deadline: Deadline) -> Result<bool, WordError> {
        loop {
            if self.try_lock_shared()? {
                return Ok(true);
            }
            let v = spin_while(self.word, is_claimed);
            if is_claimed(v) && !wait_before(deadline, self.word, v)? {
                return Ok(false);
            }
        }
    }

    pub fn unlock_shared(&self) -> Result<(), WordError> {
        loop {
            let v = self.look()?;
            if v & COUNT == 0 {
                return Err(WordError::Misuse(v));
            }
            // Release: pairs with the load_acquire in drain (and the cas_acquire in claim); our reads are over.
            if self.word.cas_release(v, v - 1) {
                return if v - 1 == EXCL { self.wake() } else { Ok(()) };
            }
        }
    }

    pub fn try_lock_exclusive(&self) -> Result<bool, WordError> {
        // Acquire: pairs with the cas_release in unlock_exclusive and unlock_shared.
        Ok(self.look()? == FREE && self.word.cas_acquire(FREE, EXCL))
    }

    pub fn lock_exclusive(&self, deadline: Deadline) -> Result<bool, WordError> {
        Ok(self.claim(deadline)? && self.drain(deadline)?)
    }

    fn claim(&self, deadline: Deadline) -> Result<bool, WordError> {
        loop {
            let mut v = self.look()?;
            if !is_claimed(v) {
                // Acquire: pairs with the cas_release in unlock_exclusive. Only one claimant can exist.
                if self.word.cas_acquire(v, v | EXCL) {
                    return Ok(true);
                }
                continue;
            }
            v = spin_while(self.word, is_claimed);
            if is_claimed(v) && !wait_before(deadline, self.word, v)? {
                return Ok(false);
            }
        }
    }

    // What the claimant sees. Acquire: pairs with the cas_release in unlock_shared of every holder that left.
    fn look_claimed(&self) -> Result<u32, WordError> {
        match self.word.load_acquire() {
            v if is_impossible(v) => Err(WordError::Illegal(v)),
            v if !is_claimed(v) => Err(WordError::Damaged(v)), // our claim is gone
            v => Ok(v),
        }
    }

    fn drain(&self, deadline: Deadline) -> Result<bool, WordError> {
        loop {
            if self.look_claimed()? == EXCL {
                return Ok(true);
            }
            let v = spin_while(self.word, is_draining);
            if is_draining(v) && !wait_before(deadline, self.word, v)? {
                return self.withdraw();
            }
        }
    }

    // `false`: withdrawn. `true`: the last holder left first, and the lock is ours.
    fn withdraw(&self) -> Result<bool, WordError> {
        loop {
            let v = self.look_claimed()?;
            if v == EXCL {
                return Ok(true);
            }
            // Release: pairs with the cas_acquire of the next to lock.
            if self.word.cas_release(v, v & !EXCL) {
                return self.wake().map(|()| false);
            }
        }
    }

    pub fn unlock_exclusive(&self) -> Result<(), WordError> {
        self.leave_exclusive(FREE)
    }

    pub fn downgrade(&self) -> Result<(), WordError> {
        self.leave_exclusive(1)
    }

    // Release: pairs with the acquires in try_lock_shared, try_lock_exclusive and claim; publishes what the
    // writer wrote.
    fn leave_exclusive(&self, next: u32) -> Result<(), WordError> {
        loop {
            let v = self.look()?;
            if v != EXCL {
                return Err(WordError::Misuse(v));
            }
            if self.word.cas_release(EXCL, next) {
                return self.wake();
            }
        }
    }

    fn wake(&self) -> Result<(), WordError> {
        futex_wake(self.word, i32::MAX)
    }
}
