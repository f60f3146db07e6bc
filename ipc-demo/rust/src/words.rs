// SPDX-License-Identifier: Apache-2.0

//! Sections 2 to 4 of PROTOCOL.md, in its order and with its names; section 5 is in `words_rw.rs`.
//!
//! Look first: a relaxed look precedes every read-modify-write; it refuses impossible values before anything is
//! changed. Whatever the futex answers, the state of the word decides, and the clock is read only after the word.
//!
//! A try answers `Ok(false)` if it found the word held, a wait if its deadline passed; nothing is held then. Nothing
//! here detects the death of a process: a word held by a dead process stays held.

use crate::futex::{futex_wake, pause, spin_limit, spin_while, wait_before, Deadline, Word, WordError};
use std::sync::atomic::AtomicU32;

// ---- 2 AtomicFlag ---------------------------------------------------------------------------------------------------

const CLEAR: u32 = 0;
const SET: u32 = 1;

/// The test-and-set flag. A wake is issued if and only if the state changed: the word holds no trace of its waiters.
pub struct AtomicFlag<'a> {
    pub word: &'a AtomicU32,
}

impl AtomicFlag<'_> {
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the swap in test_and_set; what the setter wrote before is visible.
        self.word.load_acquire() == SET
    }

    /// Returns the previous state.
    pub fn test_and_set(&self) -> Result<bool, WordError> {
        // Acquire: pairs with the swap below in whoever set it.
        let v = self.word.load_acquire();
        if v > SET {
            return Err(WordError::Illegal(v));
        }
        if v == SET {
            return Ok(true);
        }
        // Acquire and release: pairs with the swap in clear, and publishes to everyone who sees SET.
        let v = self.word.swap_acq_rel(SET);
        if v > SET {
            return Err(WordError::Illegal(v));
        }
        if v == CLEAR {
            futex_wake(self.word, i32::MAX)?;
        }
        Ok(v == SET)
    }

    /// Returns whether it was set.
    pub fn clear(&self) -> Result<bool, WordError> {
        let v = self.word.load_relaxed();
        if v > SET {
            return Err(WordError::Illegal(v));
        }
        if v == CLEAR {
            return Ok(false);
        }
        // Acquire and release: pairs with the swap in test_and_set, and publishes to everyone who sees CLEAR.
        let v = self.word.swap_acq_rel(CLEAR);
        if v > SET {
            return Err(WordError::Illegal(v));
        }
        if v == SET {
            futex_wake(self.word, i32::MAX)?;
        }
        Ok(v == SET)
    }

    fn await_state(&self, wanted: u32, deadline: Deadline) -> Result<bool, WordError> {
        loop {
            // Acquire: pairs with the swap that stored `wanted`.
            let v = self.word.load_acquire();
            if v > SET {
                return Err(WordError::Illegal(v));
            }
            if v == wanted {
                return Ok(true);
            }
            if spin_while(self.word, |look| look == v) != v {
                continue;
            }
            if !wait_before(deadline, self.word, v)? {
                return Ok(false);
            }
        }
    }

    pub fn await_set(&self, deadline: Deadline) -> Result<bool, WordError> {
        self.await_state(SET, deadline)
    }

    pub fn await_cleared(&self, deadline: Deadline) -> Result<bool, WordError> {
        self.await_state(CLEAR, deadline)
    }
}

// ---- 3 SpinLock -----------------------------------------------------------------------------------------------------

const FREE: u32 = 0;
const LOCKED: u32 = 1;

/// Spin, then sleep. `LOCKED` does not say whether anybody sleeps, so every unlock wakes one.
pub struct SpinLock<'a> {
    pub word: &'a AtomicU32,
}

impl SpinLock<'_> {
    pub fn try_lock(&self) -> Result<bool, WordError> {
        let v = self.word.load_relaxed();
        if v > LOCKED {
            return Err(WordError::Illegal(v));
        }
        // Acquire: pairs with the swap_release in unlock; sees the last critical section.
        Ok(v == FREE && self.word.cas_acquire(FREE, LOCKED))
    }

    pub fn lock(&self, deadline: Deadline) -> Result<bool, WordError> {
        if self.try_lock()? {
            return Ok(true);
        }
        self.lock_contended(deadline)
    }

    // A waiter that was woken tries before it looks at its deadline: if that fails, the new holder wakes the next one.
    fn lock_contended(&self, deadline: Deadline) -> Result<bool, WordError> {
        loop {
            for _ in 0..spin_limit() {
                if self.try_lock()? {
                    return Ok(true);
                }
                pause();
            }
            if !wait_before(deadline, self.word, LOCKED)? {
                return Ok(false);
            }
        }
    }

    pub fn unlock(&self) -> Result<(), WordError> {
        let v = self.word.load_relaxed();
        if v > LOCKED {
            return Err(WordError::Illegal(v));
        }
        if v == FREE {
            return Err(WordError::Misuse(v));
        }
        // Release: pairs with the cas_acquire in try_lock; publishes the critical section.
        let v = self.word.swap_release(FREE);
        if v > LOCKED {
            return Err(WordError::Illegal(v));
        }
        if v == FREE {
            return Err(WordError::Misuse(v));
        }
        futex_wake(self.word, 1)
    }
}

// ---- 4 WordMutex ----------------------------------------------------------------------------------------------------

// Held, somebody may sleep; set by lock_contended. Without a sleeper it is harmless: one needless wake. LOCKED (held,
// nobody sleeps; set by lock and try_lock) with a sleeper would be fatal: it is never woken.
const CONTENDED: u32 = 2;

/// The three-state mutex with its two optional words.
pub struct WordMutex<'a> {
    pub word: &'a AtomicU32,
    /// Slow-path acquisitions.
    pub counter: Option<&'a AtomicU32>,
    /// The holder's id for people to read; nothing is decided from it.
    pub owner: Option<&'a AtomicU32>,
    /// What to write into `owner`; not 0.
    pub id: u32,
}

impl WordMutex<'_> {
    fn acquired(&self, slow_path: bool) -> Result<bool, WordError> {
        if let (true, Some(counter)) = (slow_path, self.counter) {
            counter.add_relaxed(1);
        }
        if let Some(owner) = self.owner {
            owner.store_relaxed(self.id);
        }
        Ok(true)
    }

    pub fn try_lock(&self) -> Result<bool, WordError> {
        let v = self.word.load_relaxed();
        if v > CONTENDED {
            return Err(WordError::Illegal(v));
        }
        // Acquire: pairs with the swap_release in unlock; sees the last critical section.
        if v == FREE && self.word.cas_acquire(FREE, LOCKED) {
            return self.acquired(false);
        }
        Ok(false)
    }

    pub fn lock(&self, deadline: Deadline) -> Result<bool, WordError> {
        if self.try_lock()? {
            return Ok(true);
        }
        self.lock_contended(deadline)
    }

    fn lock_contended(&self, deadline: Deadline) -> Result<bool, WordError> {
        let mut v = self.spin();
        // Acquire: pairs with the swap_release in unlock.
        if v == FREE && self.word.cas_acquire(FREE, LOCKED) {
            return self.acquired(true);
        }
        loop {
            if v > CONTENDED {
                return Err(WordError::Illegal(v));
            }
            if v != CONTENDED {
                // Acquire: pairs with the swap_release in unlock. It comes before the deadline: a waiter that consumed
                // a wake and leaves must leave CONTENDED behind.
                v = self.word.swap_acquire(CONTENDED);
                if v == FREE {
                    return self.acquired(true);
                }
                if v > CONTENDED {
                    return Err(WordError::Illegal(v));
                }
            }
            if !wait_before(deadline, self.word, CONTENDED)? {
                return Ok(false);
            }
            v = self.spin();
        }
    }

    fn spin(&self) -> u32 {
        spin_while(self.word, |look| look == LOCKED)
    }

    pub fn unlock(&self) -> Result<(), WordError> {
        let v = self.word.load_relaxed();
        if v > CONTENDED {
            return Err(WordError::Illegal(v));
        }
        if v == FREE {
            return Err(WordError::Misuse(v));
        }
        if let Some(owner) = self.owner {
            owner.store_relaxed(0);
        }
        // Release: pairs with the acquires in try_lock and lock_contended; publishes the critical section.
        match self.word.swap_release(FREE) {
            FREE => Err(WordError::Misuse(FREE)),
            LOCKED => Ok(()),
            CONTENDED => self.wake(),
            v => Err(WordError::Illegal(v)),
        }
    }

    fn wake(&self) -> Result<(), WordError> {
        futex_wake(self.word, 1)
    }
}
