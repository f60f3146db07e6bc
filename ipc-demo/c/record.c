// SPDX-License-Identifier: Apache-2.0
//
// Maps the demo record, sets its mode and claims slots, or refuses (PROTOCOL.md, section 7, step 1).

#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const MODE_NAMES[] = {"unset", "mutex", "spin", "rw"};

void refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("peer: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(EXIT_REFUSED);
}

struct record *record_map(const char *path, uint64_t offset)
{
    if (offset % RECORD_ALIGNMENT != 0)
        refuse("OFFSET is %llu; expected a multiple of %d; the next one below is %llu", (unsigned long long)offset,
               RECORD_ALIGNMENT, (unsigned long long)(offset - offset % RECORD_ALIGNMENT));
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0)
        refuse("cannot open %s: %s; expected a file to read and write; create it or mend its permissions", path,
               strerror(errno));
    uint64_t end = offset + RECORD_SIZE;
    if (!S_ISREG(status.st_mode))
        refuse("%s is not a regular file; expected one of at least %llu bytes; name another one", path,
               (unsigned long long)end);
    if ((uint64_t)status.st_size < end)
        refuse("%s has %llu bytes; expected at least %llu for the record at that offset; lengthen it: "
               "truncate -s %llu FILE",
               path, (unsigned long long)status.st_size, (unsigned long long)end, (unsigned long long)end);

    uint64_t start = offset & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
    char *base = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)start);
    if (base == MAP_FAILED)
        refuse("cannot map %s: %s; expected a file that can be mapped shared; put it on another file system", path,
               strerror(errno));
    close(file);
    return (struct record *)(void *)(base + (offset - start));
}

void record_set_mode(struct record *record, enum mode mode)
{
    uint32_t found = load_relaxed(&record->mode);
    if (found == MODE_UNSET && !cas_acquire(&record->mode, MODE_UNSET, mode))
        found = load_relaxed(&record->mode);
    if (found != MODE_UNSET && found != mode)
        refuse("the record's MODE is %u (%s); expected %d (%s); name its mode, or zero the record while "
               "no peer runs",
               found, found <= MODE_RW ? MODE_NAMES[found] : "no mode of a word", (int)mode, MODE_NAMES[mode]);
}

// All slots are claimed before any thread runs, so that a peer that is refused has never held the lock. The look comes
// first; only a race with another peer can still fail the claim, and that leaves failed slots behind.
void record_claim_slots(struct record *record, uint32_t *slots, uint32_t threads)
{
    uint32_t used = load_relaxed(&record->slots_used);
    uint32_t claimed = 0;
    bool enough = used <= SLOT_COUNT - threads;
    while (enough && claimed < threads) {
        used = add_relaxed(&record->slots_used, 1);
        enough = used < SLOT_COUNT;
        if (enough) {
            struct slot *slot = &record->slots[used];
            store_relaxed(&slot->pid, (uint32_t)getpid());
            store_relaxed(&slot->language, LANGUAGE_C);
            store_relaxed(&slot->state, SLOT_WAITING);
            slots[claimed++] = used;
        }
    }
    if (claimed == threads)
        return;
    for (uint32_t i = 0; i < claimed; i++)
        store_relaxed(&record->slots[slots[i]].state, SLOT_FAILED);
    refuse("%u of %d slots are used; expected at least %u left; use fewer --threads, or zero the record "
           "while no peer runs",
           used < SLOT_COUNT ? used : SLOT_COUNT, SLOT_COUNT, threads);
}
