// SPDX-License-Identifier: Apache-2.0
//
// The demo record of PROTOCOL.md, section 7: what all peers share. Every offset is asserted as a number.

#ifndef FERMATA_RECORD_H
#define FERMATA_RECORD_H

#include "words.h"

#include <stddef.h>

#define RECORD_SIZE 4096
#define RECORD_ALIGNMENT 64
#define SLOT_COUNT 62
#define LANGUAGE_C 2

enum mode { MODE_UNSET, MODE_MUTEX, MODE_SPIN, MODE_RW };

enum slot_state { SLOT_UNUSED, SLOT_WAITING, SLOT_RUNNING, SLOT_DONE, SLOT_FAILED };

// Written by one thread only, with relaxed stores; read by anybody, who may see the numbers of a moment ago.
struct slot {
    shared_word pid;
    shared_word language;
    shared_word state;
    uint32_t reserved0;
    _Atomic uint64_t acquisitions;
    _Atomic uint64_t contended;
    _Atomic uint64_t mismatches;
    uint8_t reserved1[24];
};

struct record {
    shared_word lock_word;
    shared_word slow_path_counter; // mode mutex only
    shared_word owner_word;        // mode mutex only: the holder's pid
    shared_word mode;              // set once, by cas(MODE_UNSET, mode)
    shared_word slots_used;
    shared_word gate; // an AtomicFlag: peers wait while it is set
    uint8_t reserved0[40];
    _Atomic uint64_t counter;    // what the lock protects
    _Atomic uint64_t owner_slot; // 0, or pid << 32 | slot + 1 of the thread inside
    uint8_t reserved1[48];
    struct slot slots[SLOT_COUNT];
};

_Static_assert(offsetof(struct record, lock_word) == 0, "LOCK_WORD");
_Static_assert(offsetof(struct record, slow_path_counter) == 4, "SLOW_PATH_COUNTER");
_Static_assert(offsetof(struct record, owner_word) == 8, "OWNER_WORD");
_Static_assert(offsetof(struct record, mode) == 12, "MODE");
_Static_assert(offsetof(struct record, slots_used) == 16, "SLOTS_USED");
_Static_assert(offsetof(struct record, gate) == 20, "GATE");
_Static_assert(offsetof(struct record, counter) == 64, "COUNTER");
_Static_assert(offsetof(struct record, owner_slot) == 72, "OWNER_SLOT");
_Static_assert(offsetof(struct record, slots) == 128, "SLOT[0]");
_Static_assert(sizeof(struct record) == RECORD_SIZE, "the record");

_Static_assert(offsetof(struct slot, pid) == 0, "slot pid");
_Static_assert(offsetof(struct slot, language) == 4, "slot language");
_Static_assert(offsetof(struct slot, state) == 8, "slot state");
_Static_assert(offsetof(struct slot, acquisitions) == 16, "slot acquisitions");
_Static_assert(offsetof(struct slot, contended) == 24, "slot contended");
_Static_assert(offsetof(struct slot, mismatches) == 32, "slot mismatches");
_Static_assert(sizeof(struct slot) == 64, "a slot");

enum exit_code { EXIT_PASS, EXIT_FAIL, EXIT_REFUSED, EXIT_DAMAGED };

extern const char *const MODE_NAMES[];

// Prints one line and ends the process with EXIT_REFUSED.
__attribute__((noreturn, format(printf, 1, 2))) void refuse(const char *format, ...);

// Each of these refuses, instead of returning, what section 7 says a peer refuses. The last two touch the mapping.
struct record *record_map(const char *path, uint64_t offset);
void record_set_mode(struct record *record, enum mode mode);
void record_claim_slots(struct record *record, uint32_t *slots, uint32_t threads);

#endif
