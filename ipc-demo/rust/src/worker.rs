// SPDX-License-Identifier: Apache-2.0

//! What a thread of the peer does.

use crate::futex::{Word, WordError, NO_DEADLINE};
use crate::record::{Record, Slot, MODE_NAMES, SLOT_DONE, SLOT_FAILED, SLOT_RUNNING};
use crate::words::{AtomicFlag, SpinLock, WordMutex};
use crate::words_rw::WordReadWriteLock;
use crate::{end, Arguments, EXIT_DAMAGED, EXIT_FAIL};
use std::process::id;
use std::sync::atomic::{AtomicU64, Ordering};

enum Lock {
    Mutex(WordMutex<'static>),
    Spin(SpinLock<'static>),
    ReadWrite(WordReadWriteLock<'static>),
}

impl Lock {
    fn try_lock(&self) -> Result<bool, WordError> {
        match self {
            Lock::Mutex(lock) => lock.try_lock(),
            Lock::Spin(lock) => lock.try_lock(),
            Lock::ReadWrite(lock) => lock.try_lock_exclusive(),
        }
    }

    fn lock(&self) -> Result<bool, WordError> {
        match self {
            Lock::Mutex(lock) => lock.lock(NO_DEADLINE),
            Lock::Spin(lock) => lock.lock(NO_DEADLINE),
            Lock::ReadWrite(lock) => lock.lock_exclusive(NO_DEADLINE),
        }
    }

    fn unlock(&self) -> Result<(), WordError> {
        match self {
            Lock::Mutex(lock) => lock.unlock(),
            Lock::Spin(lock) => lock.unlock(),
            Lock::ReadWrite(lock) => lock.unlock_exclusive(),
        }
    }

    fn legal_values(&self) -> &'static str {
        match self {
            Lock::Mutex(_) => "0, 1 and 2",
            Lock::Spin(_) => "0 and 1",
            Lock::ReadWrite(_) => "values with bit 31 clear",
        }
    }
}

// Only the lock orders these.
fn plain_load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

fn plain_store(value: &AtomicU64, v: u64) {
    value.store(v, Ordering::Relaxed);
}

#[derive(Default)]
pub struct Totals {
    pub acquisitions: u64,
    pub contended: u64,
    pub mismatches: u64,
}

pub struct Worker<'a> {
    arguments: &'a Arguments,
    record: &'static Record,
    lock: Lock,
    slot: &'static Slot,
    id: u64,
    pub totals: Totals,
}

impl Worker<'_> {
    pub fn new<'a>(arguments: &'a Arguments, record: &'static Record, index: u32) -> Worker<'a> {
        let lock = match MODE_NAMES[arguments.mode as usize] {
            "mutex" => Lock::Mutex(WordMutex {
                word: &record.lock_word,
                counter: Some(&record.slow_path_counter),
                owner: Some(&record.owner_word),
                id: id(),
            }),
            "spin" => Lock::Spin(SpinLock {
                word: &record.lock_word,
            }),
            _ => Lock::ReadWrite(WordReadWriteLock {
                word: &record.lock_word,
            }),
        };
        Worker {
            arguments,
            record,
            lock,
            slot: &record.slots[index as usize],
            id: u64::from(id()) << 32 | u64::from(index + 1),
            totals: Totals::default(),
        }
    }

    pub fn work(&mut self) {
        let opened = AtomicFlag {
            word: &self.record.gate,
        }
        .await_cleared(NO_DEADLINE);
        self.succeeded("gate", "0 and 1", opened);
        self.slot.state.store_relaxed(SLOT_RUNNING);
        for i in 0..self.arguments.iterations {
            if i % 4 == 0 {
                self.read_once();
            }
            self.write_once();
            plain_store(&self.slot.acquisitions, self.totals.acquisitions);
            plain_store(&self.slot.contended, self.totals.contended);
            plain_store(&self.slot.mismatches, self.totals.mismatches);
        }
        let passed = self.totals.mismatches == 0;
        self.slot
            .state
            .store_relaxed(if passed { SLOT_DONE } else { SLOT_FAILED });
    }

    fn write_once(&mut self) {
        if !self.check(self.lock.try_lock()) {
            self.totals.contended += 1;
            self.check(self.lock.lock());
        }
        self.expect(plain_load(&self.record.owner_slot) == 0);
        plain_store(&self.record.owner_slot, self.id);
        let count = plain_load(&self.record.counter);
        plain_store(&self.record.counter, count + 1);
        self.expect(plain_load(&self.record.owner_slot) == self.id);
        plain_store(&self.record.owner_slot, 0);
        self.check(self.lock.unlock());
        self.totals.acquisitions += 1;
    }

    // In mode `rw` only.
    fn read_once(&mut self) {
        if let Lock::ReadWrite(lock) = &self.lock {
            self.check(lock.lock_shared(NO_DEADLINE));
            let count = plain_load(&self.record.counter);
            let nobody_inside = plain_load(&self.record.owner_slot) == 0;
            let unchanged = plain_load(&self.record.counter) == count;
            self.check(lock.unlock_shared());
            self.expect(nobody_inside);
            self.expect(unchanged);
        }
    }

    fn expect(&mut self, condition: bool) {
        self.totals.mismatches += u64::from(!condition);
    }

    fn check<T>(&self, outcome: Result<T, WordError>) -> T {
        self.succeeded("lock word", self.lock.legal_values(), outcome)
    }

    // Ends the process for every error. `legal` says what the word may hold.
    fn succeeded<T>(&self, word: &str, legal: &str, outcome: Result<T, WordError>) -> T {
        let error = match outcome {
            Ok(value) => return value,
            Err(error) => error,
        };
        let place = self.arguments.place();
        let (code, line) = match error {
            WordError::Illegal(v) => (
                EXIT_DAMAGED,
                format!(
                    "peer: DAMAGED the {word} of {place} holds 0x{v:08x}; legal are {legal}; it was left as it is: end every \
                     peer, find out who wrote it, and zero the record\n"
                ),
            ),
            WordError::Overflow(v) => (
                EXIT_FAIL,
                format!(
                    "peer: FAIL the {word} of {place} counts {v} shared holders, the maximum; expected fewer: end every \
                     peer and zero the record\n"
                ),
            ),
            WordError::Bug(errno) => (
                EXIT_FAIL,
                format!(
                    "peer: FAIL the kernel refused a futex call on the {word} of {place} with errno {errno} ({}); expected \
                     none: report this as a bug of the peer\n",
                    std::io::Error::from_raw_os_error(errno)
                ),
            ),
            // Misuse too: a peer unlocks only what it has locked.
            WordError::Damaged(v) | WordError::Misuse(v) => (
                EXIT_DAMAGED,
                format!(
                    "peer: DAMAGED the {word} of {place} lost its page, or holds 0x{v:08x} although this thread locked \
                     it; expected a whole file and nobody else to unlock it: end every peer, zero the record and start \
                     again\n"
                ),
            ),
        };
        if code == EXIT_FAIL {
            self.slot.state.store_relaxed(SLOT_FAILED);
        }
        end(code, &line)
    }
}
