// SPDX-License-Identifier: Apache-2.0

//! The Rust peer of the demo (PROTOCOL.md, section 7): adds to a counter that a shared lock protects and checks that
//! nobody else was inside.
//!
//! `peer FILE OFFSET ITERATIONS [--mode mutex|spin|rw] [--threads N]`
//!
//! Exit codes: 0 PASS, 1 FAIL, 2 refused before anything ran, 3 DAMAGED mapping.

// The modules hold the whole of the protocols; the peer needs a part of them.
#[allow(dead_code)]
mod futex;
mod record;
#[allow(dead_code)]
mod words;
#[allow(dead_code)]
mod words_rw;
mod worker;

use futex::Word;
use record::{Record, MODE_NAMES, RECORD_SIZE, SLOT_COUNT, SLOT_FAILED};
use std::ffi::OsString;
use std::os::raw::{c_int, c_void};
use std::path::PathBuf;
use std::process::exit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::thread;
use worker::{Totals, Worker};

const USAGE: &str = "usage: peer FILE OFFSET ITERATIONS [--mode mutex|spin|rw] [--threads N]";

const EXIT_PASS: i32 = 0;
const EXIT_FAIL: i32 = 1;
const EXIT_REFUSED: i32 = 2;
const EXIT_DAMAGED: i32 = 3;

// ---- How it ends early ----------------------------------------------------------------------------------------------

extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
    fn pause() -> c_int;
    fn _exit(code: c_int) -> !;
}

const SIGBUS: c_int = 7;
const STDERR: c_int = 2;

/// What the handler says; set, and never freed, before it is installed.
static BUS_ERROR: AtomicPtr<String> = AtomicPtr::new(null_mut());

/// Ends the process with one line, whichever thread is the first to come; touches no mapped memory. Signal-safe.
fn end(code: i32, line: &str) -> ! {
    static ENDING: AtomicU32 = AtomicU32::new(0);
    // SAFETY: three calls that POSIX allows in a signal handler, with valid arguments.
    unsafe {
        while ENDING.swap_acq_rel(1) != 0 {
            pause();
        }
        write(STDERR, line.as_ptr().cast(), line.len());
        _exit(code)
    }
}

fn refuse(reason: &str) -> ! {
    eprintln!("peer: {reason}");
    exit(EXIT_REFUSED)
}

extern "C" fn on_bus_error(_signal: c_int) {
    // SAFETY: null, or a string that lives for ever.
    let line = unsafe { BUS_ERROR.load(Ordering::Acquire).as_ref() };
    end(EXIT_DAMAGED, line.map_or("peer: DAMAGED\n", String::as_str));
}

// ---- Arguments and threads ------------------------------------------------------------------------------------------

pub struct Arguments {
    path: PathBuf,
    offset: u64,
    iterations: u64,
    mode: u32,
    threads: u32,
}

fn number(name: &str, text: &OsString, least: u64, most: u64) -> Result<u64, String> {
    text.to_str()
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| {
            let found = text.to_string_lossy();
            format!("{name} is '{found}'; expected a decimal number from {least} to {most}; {USAGE}")
        })
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
        let mut plain = Vec::new();
        let (mut mode, mut threads, mut options) = (1, 1, true);
        while let Some(word) = words.next() {
            let text = word.to_string_lossy().into_owned();
            if !options || !text.starts_with('-') || text == "-" {
                plain.push(word);
                continue;
            }
            if text == "--" {
                options = false;
                continue;
            }
            let (name, inline) = match text.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (text.as_str(), None),
            };
            if name != "--mode" && name != "--threads" {
                return Err(format!(
                    "{text}: unknown option; expected --mode or --threads, each with a value; {USAGE}"
                ));
            }
            let value = inline.or_else(|| words.next()).ok_or_else(|| {
                format!("{text}: option without its value; expected --mode or --threads, each with a value; {USAGE}")
            })?;
            if name == "--threads" {
                threads = number(name, &value, 1, u64::from(SLOT_COUNT))? as u32;
            } else {
                let known = (1..MODE_NAMES.len()).find(|&m| value == MODE_NAMES[m]);
                let found = value.to_string_lossy();
                mode = known.ok_or_else(|| format!("--mode is '{found}'; expected mutex, spin or rw; {USAGE}"))? as u32;
            }
        }
        let (path, offset, iterations) = match plain.as_slice() {
            [path, offset, iterations] => (path, offset, iterations),
            others => {
                let found = others.len();
                return Err(format!("{found} arguments beside the options; expected 3; {USAGE}"));
            }
        };
        Ok(Arguments {
            path: path.into(),
            offset: number("OFFSET", offset, 0, i64::MAX as u64 - RECORD_SIZE)?,
            iterations: number("ITERATIONS", iterations, 1, i64::MAX as u64)?,
            mode,
            threads,
        })
    }

    fn place(&self) -> String {
        format!("the record at offset {} of {}", self.offset, self.path.display())
    }
}

fn run(arguments: &Arguments, record: &'static Record, slots: &[u32]) -> i32 {
    let threads = arguments.threads;
    let mut total = Totals::default();
    let mut started = 0;
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for &index in slots {
            let mut worker = Worker::new(arguments, record, index);
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                worker.work();
                worker.totals
            });
            match spawned {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    eprintln!(
                        "peer: {} threads started ({error}); expected {threads}; \
                         use fewer --threads or raise the limit",
                        workers.len()
                    );
                    break;
                }
            }
        }
        started = workers.len();
        for totals in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            total.acquisitions += totals.acquisitions;
            total.contended += totals.contended;
            total.mismatches += totals.mismatches;
        }
    });
    for &index in &slots[started..] {
        record.slots[index as usize].state.store_relaxed(SLOT_FAILED);
    }
    let passed = started == slots.len() && total.mismatches == 0;
    println!(
        "peer: {} language=rust threads={threads} acquisitions={} contended={} mismatches={}",
        if passed { "PASS" } else { "FAIL" },
        total.acquisitions,
        total.contended,
        total.mismatches
    );
    if passed {
        EXIT_PASS
    } else {
        EXIT_FAIL
    }
}

fn prepare() -> Result<i32, String> {
    let arguments = Arguments::parse(std::env::args_os().skip(1))?;
    let record = Record::map(&arguments.path, arguments.offset)?;
    let line = format!(
        "peer: DAMAGED {} lost its page (SIGBUS): the file must keep at least {} bytes while it is mapped; end \
         every peer, make the file anew and start again\n",
        arguments.place(),
        arguments.offset + RECORD_SIZE
    );
    BUS_ERROR.store(Box::leak(Box::new(line)), Ordering::Release);
    // SAFETY: the handler does nothing but what a signal handler may do.
    unsafe { signal(SIGBUS, on_bus_error) };
    record.set_mode(arguments.mode)?;
    let slots = record.claim_slots(arguments.threads)?;
    Ok(run(&arguments, record, &slots))
}

fn main() {
    match prepare() {
        Ok(code) => exit(code),
        Err(reason) => refuse(&reason),
    }
}
