// SPDX-License-Identifier: Apache-2.0

//! The demo record of PROTOCOL.md, section 7: what all peers share. Every offset is asserted as a number.
//!
//! `Record` maps it, sets its mode and claims slots, or refuses with a line for people to read (step 1).

use crate::futex::Word;
use std::fs::OpenOptions;
use std::io;
use std::mem::{size_of, MaybeUninit};
use std::os::raw::{c_int, c_long, c_void};
use std::os::unix::io::AsRawFd;
use std::path::Path;
use std::ptr::{addr_of, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

pub const RECORD_SIZE: u64 = 4096;
pub const RECORD_ALIGNMENT: u64 = 64;
pub const SLOT_COUNT: u32 = 62;
pub const LANGUAGE_RUST: u32 = 3;

pub const MODE_UNSET: u32 = 0;
pub const MODE_NAMES: [&str; 4] = ["unset", "mutex", "spin", "rw"];

pub const SLOT_WAITING: u32 = 1;
pub const SLOT_RUNNING: u32 = 2;
pub const SLOT_DONE: u32 = 3;
pub const SLOT_FAILED: u32 = 4;

/// Written by one thread only, with relaxed stores; read by anybody, who may see the numbers of a moment ago.
#[repr(C)]
pub struct Slot {
    pub pid: AtomicU32,
    pub language: AtomicU32,
    pub state: AtomicU32,
    reserved0: u32,
    pub acquisitions: AtomicU64,
    pub contended: AtomicU64,
    pub mismatches: AtomicU64,
    reserved1: [u8; 24],
}

#[repr(C)]
pub struct Record {
    pub lock_word: AtomicU32,
    /// Mode `mutex` only.
    pub slow_path_counter: AtomicU32,
    /// Mode `mutex` only: the holder's pid.
    pub owner_word: AtomicU32,
    /// Set once, by `cas(MODE_UNSET, mode)`.
    pub mode: AtomicU32,
    pub slots_used: AtomicU32,
    /// An `AtomicFlag`: peers wait while it is set.
    pub gate: AtomicU32,
    reserved0: [u8; 40],
    /// What the lock protects.
    pub counter: AtomicU64,
    /// 0, or `pid << 32 | slot + 1` of the thread inside.
    pub owner_slot: AtomicU64,
    reserved1: [u8; 48],
    pub slots: [Slot; SLOT_COUNT as usize],
}

/// The offset of a field, at run time: `offset_of!` is younger than the compilers that distributions ship.
macro_rules! offset {
    ($type:ty, $field:ident) => {{
        let place = MaybeUninit::<$type>::uninit();
        let base = place.as_ptr();
        // SAFETY: the address of a field of the place; nothing is read.
        unsafe { addr_of!((*base).$field) as usize - base as usize }
    }};
}

/// Asserts the layout; called once, before the record is used.
fn assert_layout() {
    let offsets = [
        (offset!(Record, lock_word), 0),
        (offset!(Record, slow_path_counter), 4),
        (offset!(Record, owner_word), 8),
        (offset!(Record, mode), 12),
        (offset!(Record, slots_used), 16),
        (offset!(Record, gate), 20),
        (offset!(Record, counter), 64),
        (offset!(Record, owner_slot), 72),
        (offset!(Record, slots), 128),
        (size_of::<Record>(), RECORD_SIZE as usize),
        (offset!(Slot, pid), 0),
        (offset!(Slot, language), 4),
        (offset!(Slot, state), 8),
        (offset!(Slot, acquisitions), 16),
        (offset!(Slot, contended), 24),
        (offset!(Slot, mismatches), 32),
        (size_of::<Slot>(), 64),
    ];
    for (found, expected) in offsets {
        assert_eq!(found, expected, "the layout of PROTOCOL.md, section 7");
    }
}

extern "C" {
    fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn sysconf(name: c_int) -> c_long;
}

const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const MAP_SHARED: c_int = 1;
const SC_PAGESIZE: c_int = 30;

impl Record {
    /// Maps the record for the rest of the process's life.
    pub fn map(path: &Path, offset: u64) -> Result<&'static Record, String> {
        assert_layout();
        if offset % RECORD_ALIGNMENT != 0 {
            return Err(format!(
                "OFFSET is {offset}; expected a multiple of {RECORD_ALIGNMENT}; the next one below is {}",
                offset - offset % RECORD_ALIGNMENT
            ));
        }
        let name = path.display();
        let no_file = |error: io::Error| {
            format!("cannot open {name}: {error}; expected a file to read and write; create it or mend its permissions")
        };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(no_file)?;
        let status = file.metadata().map_err(no_file)?;
        let end = offset + RECORD_SIZE;
        if !status.is_file() {
            return Err(format!(
                "{name} is not a regular file; expected one of at least {end} bytes; name another one"
            ));
        }
        if status.len() < end {
            return Err(format!(
                "{name} has {} bytes; expected at least {end} for the record at that offset; \
                 lengthen it: truncate -s {end} FILE",
                status.len()
            ));
        }

        // SAFETY: sysconf only reads; mmap of a fresh range touches no memory of ours.
        let (start, base) = unsafe {
            let start = offset & !(sysconf(SC_PAGESIZE) as u64 - 1);
            let length = (end - start) as usize;
            let protection = PROT_READ | PROT_WRITE;
            let base = mmap(
                null_mut(),
                length,
                protection,
                MAP_SHARED,
                file.as_raw_fd(),
                start as i64,
            );
            (start, base)
        };
        if base as isize == -1 {
            return Err(format!(
                "cannot map {name}: {}; expected a file that can be mapped shared; put it on another file system",
                io::Error::last_os_error()
            ));
        }
        // SAFETY: the record lies inside the mapping, is aligned to 64 bytes and stays mapped; every field that another
        // process may change is an atomic. Zero is valid for all of them.
        Ok(unsafe { &*base.cast::<u8>().add((offset - start) as usize).cast::<Record>() })
    }

    pub fn set_mode(&self, mode: u32) -> Result<(), String> {
        let mut found = self.mode.load_relaxed();
        if found == MODE_UNSET {
            if self.mode.cas_acquire(MODE_UNSET, mode) {
                return Ok(());
            }
            found = self.mode.load_relaxed();
        }
        if found == mode {
            return Ok(());
        }
        Err(format!(
            "the record's MODE is {found} ({}); expected {mode} ({}); name its mode, or zero the record \
             while no peer runs",
            MODE_NAMES.get(found as usize).unwrap_or(&"no mode of a word"),
            MODE_NAMES[mode as usize]
        ))
    }

    /// All slots are claimed before any thread runs, so that a peer that is refused has never held the lock. The look
    /// comes first; only a race with another peer can still fail the claim, and that leaves failed slots behind.
    pub fn claim_slots(&self, threads: u32) -> Result<Vec<u32>, String> {
        let mut claimed = Vec::new();
        let mut used = self.slots_used.load_relaxed();
        let mut enough = used <= SLOT_COUNT - threads;
        while enough && claimed.len() < threads as usize {
            used = self.slots_used.add_relaxed(1);
            enough = used < SLOT_COUNT;
            if enough {
                let slot = &self.slots[used as usize];
                slot.pid.store_relaxed(std::process::id());
                slot.language.store_relaxed(LANGUAGE_RUST);
                slot.state.store_relaxed(SLOT_WAITING);
                claimed.push(used);
            }
        }
        if claimed.len() == threads as usize {
            return Ok(claimed);
        }
        for slot in claimed {
            self.slots[slot as usize].state.store_relaxed(SLOT_FAILED);
        }
        Err(format!(
            "{} of {SLOT_COUNT} slots are used; expected at least {threads} left; \
             use fewer --threads, or zero the record while no peer runs",
            used.min(SLOT_COUNT)
        ))
    }
}
