// SPDX-License-Identifier: Apache-2.0
//
// The C peer of the demo (PROTOCOL.md, section 7): adds to a counter that a shared lock protects and checks that nobody
// else was inside.
//
//   peer FILE OFFSET ITERATIONS [--mode mutex|spin|rw] [--threads N]
//
// Exit codes: 0 PASS, 1 FAIL, 2 refused before anything ran, 3 DAMAGED mapping.

#define _GNU_SOURCE
#include "record.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USAGE "usage: peer FILE OFFSET ITERATIONS [--mode mutex|spin|rw] [--threads N]"

static const char *const LEGAL_VALUES[] = {"", "0, 1 and 2", "0 and 1", "values with bit 31 clear"};

static const char *path;
static uint64_t offset;
static uint64_t iterations;
static enum mode mode = MODE_MUTEX;
static uint32_t threads = 1;
static struct record *record;
static struct word_mutex mutex;

struct worker {
    pthread_t thread;
    uint32_t index;
    uint64_t acquisitions;
    uint64_t contended;
    uint64_t mismatches;
};

// ---- How it ends early ---------------------------------------------------------------------------------------------

static char bus_error[PATH_MAX + 512]; // written before the handler is installed

// Ends the process with one line, whichever thread is the first to come; touches no mapped memory. Signal-safe.
__attribute__((noreturn)) static void end(enum exit_code code, const char *line)
{
    static shared_word ending;
    while (swap(&ending, 1) != 0)
        pause();
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written; // there is nobody left to tell
    _exit(code);
}

static void on_bus_error(int signal)
{
    (void)signal;
    end(EXIT_DAMAGED, bus_error);
}

static void install_bus_error_handler(void)
{
    snprintf(bus_error, sizeof bus_error,
             "peer: DAMAGED the record at offset %llu of %s lost its page (SIGBUS): the file must keep at least %llu "
             "bytes while it is mapped; end every peer, make the file anew and start again\n",
             (unsigned long long)offset, path, (unsigned long long)offset + RECORD_SIZE);
    struct sigaction action = {.sa_handler = on_bus_error};
    sigaction(SIGBUS, &action, NULL);
}

// Ends the process for every outcome but WORD_OK and WORD_NO. `legal` says what the word may hold.
static bool succeeded(struct outcome outcome, const char *word, const char *legal, struct slot *slot)
{
    if (outcome.code == WORD_OK || outcome.code == WORD_NO)
        return outcome.code == WORD_OK;

    char line[PATH_MAX + 512];
    unsigned long long at = offset;
    enum exit_code code = EXIT_FAIL;
    switch (outcome.code) {
    case WORD_ILLEGAL:
        code = EXIT_DAMAGED;
        snprintf(line, sizeof line,
                 "peer: DAMAGED the %s of the record at offset %llu of %s holds 0x%08x; legal are %s; it was left as it is: "
                 "end every peer, find out who wrote it, and zero the record\n",
                 word, at, path, outcome.seen, legal);
        break;
    case WORD_OVERFLOW:
        snprintf(line, sizeof line,
                 "peer: FAIL the %s of the record at offset %llu of %s counts %u shared holders, the maximum; expected "
                 "fewer: end every peer and zero the record\n",
                 word, at, path, outcome.seen);
        break;
    case WORD_BUG:
        snprintf(line, sizeof line,
                 "peer: FAIL the kernel refused a futex call on the %s at offset %llu of %s with errno %u (%s); expected "
                 "none: report this as a bug of the peer\n",
                 word, at, path, outcome.seen, strerror((int)outcome.seen));
        break;
    default: // WORD_DAMAGED, and WORD_MISUSE too: a peer unlocks only what it has locked
        code = EXIT_DAMAGED;
        snprintf(line, sizeof line,
                 "peer: DAMAGED the %s of the record at offset %llu of %s lost its page, or holds 0x%08x although this "
                 "thread locked it; expected a whole file and nobody else to unlock it: end every peer, zero the "
                 "record and start again\n",
                 word, at, path, outcome.seen);
    }
    if (code == EXIT_FAIL)
        store_relaxed(&slot->state, SLOT_FAILED);
    end(code, line);
}

// ---- The lock of the chosen mode -----------------------------------------------------------------------------------

static struct outcome try_lock(void)
{
    return mode == MODE_MUTEX  ? mutex_try_lock(&mutex)
           : mode == MODE_SPIN ? spin_try_lock(&record->lock_word)
                               : rw_try_lock_exclusive(&record->lock_word);
}

static struct outcome lock(void)
{
    return mode == MODE_MUTEX  ? mutex_lock(&mutex, NO_DEADLINE)
           : mode == MODE_SPIN ? spin_lock(&record->lock_word, NO_DEADLINE)
                               : rw_lock_exclusive(&record->lock_word, NO_DEADLINE);
}

static struct outcome unlock(void)
{
    return mode == MODE_MUTEX  ? mutex_unlock(&mutex)
           : mode == MODE_SPIN ? spin_unlock(&record->lock_word)
                               : rw_unlock_exclusive(&record->lock_word);
}

static bool check(struct outcome outcome, struct slot *slot)
{
    return succeeded(outcome, "lock word", LEGAL_VALUES[mode], slot);
}

// ---- What a thread does --------------------------------------------------------------------------------------------

// Only the lock orders these.
static uint64_t plain_load(_Atomic uint64_t *p) { return atomic_load_explicit(p, memory_order_relaxed); }
static void plain_store(_Atomic uint64_t *p, uint64_t v) { atomic_store_explicit(p, v, memory_order_relaxed); }

static void write_once(struct worker *worker, uint64_t id)
{
    struct slot *slot = &record->slots[worker->index];
    if (!check(try_lock(), slot)) {
        worker->contended++;
        check(lock(), slot);
    }
    if (plain_load(&record->owner_slot) != 0)
        worker->mismatches++;
    plain_store(&record->owner_slot, id);
    uint64_t count = plain_load(&record->counter);
    plain_store(&record->counter, count + 1);
    if (plain_load(&record->owner_slot) != id)
        worker->mismatches++;
    plain_store(&record->owner_slot, 0);
    check(unlock(), slot);
    worker->acquisitions++;
}

static void read_once(struct worker *worker)
{
    struct slot *slot = &record->slots[worker->index];
    check(rw_lock_shared(&record->lock_word, NO_DEADLINE), slot);
    uint64_t count = plain_load(&record->counter);
    if (plain_load(&record->owner_slot) != 0)
        worker->mismatches++;
    if (plain_load(&record->counter) != count)
        worker->mismatches++;
    check(rw_unlock_shared(&record->lock_word), slot);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct slot *slot = &record->slots[worker->index];
    uint64_t id = (uint64_t)getpid() << 32 | (worker->index + 1);
    succeeded(flag_await_cleared(&record->gate, NO_DEADLINE), "gate", "0 and 1", slot);
    store_relaxed(&slot->state, SLOT_RUNNING);
    for (uint64_t i = 0; i < iterations; i++) {
        if (mode == MODE_RW && i % 4 == 0)
            read_once(worker);
        write_once(worker, id);
        plain_store(&slot->acquisitions, worker->acquisitions);
        plain_store(&slot->contended, worker->contended);
        plain_store(&slot->mismatches, worker->mismatches);
    }
    store_relaxed(&slot->state, worker->mismatches == 0 ? SLOT_DONE : SLOT_FAILED);
    return NULL;
}

// ---- Arguments and threads -----------------------------------------------------------------------------------------

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most)
{
    errno = 0;
    char *rest = NULL;
    uint64_t value = isdigit((unsigned char)text[0]) ? strtoull(text, &rest, 10) : 0;
    if (rest == NULL || *rest != '\0' || errno != 0 || value < least || value > most)
        refuse("%s is '%s'; expected a decimal number from %llu to %llu; " USAGE, name, text, (unsigned long long)least,
               (unsigned long long)most);
    return value;
}

static void parse_arguments(int argc, char **argv)
{
    static const struct option options[] = {
        {"mode", required_argument, NULL, 'm'}, {"threads", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (option == 't') {
            threads = (uint32_t)number("--threads", optarg, 1, SLOT_COUNT);
        } else if (option == 'm') {
            for (mode = MODE_MUTEX; mode <= MODE_RW && strcmp(optarg, MODE_NAMES[mode]) != 0;)
                mode++;
            if (mode > MODE_RW)
                refuse("--mode is '%s'; expected mutex, spin or rw; " USAGE, optarg);
        } else {
            refuse("%s: %s; expected --mode or --threads, each with a value; " USAGE,
                   option == '?' && optopt != 0 ? (char[]){'-', (char)optopt, '\0'} : argv[optind - 1],
                   option == ':' ? "option without its value" : "unknown option");
        }
    }
    if (argc - optind != 3)
        refuse("%d arguments beside the options; expected 3; " USAGE, argc - optind);
    path = argv[optind];
    offset = number("OFFSET", argv[optind + 1], 0, INT64_MAX - RECORD_SIZE);
    iterations = number("ITERATIONS", argv[optind + 2], 1, INT64_MAX);
}

static enum exit_code run(struct worker *workers)
{
    uint32_t started = 0;
    int error = 0;
    while (started < threads && error == 0) {
        error = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        started += error == 0;
    }
    struct worker total = {.mismatches = 0};
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        total.acquisitions += workers[i].acquisitions;
        total.contended += workers[i].contended;
        total.mismatches += workers[i].mismatches;
    }
    for (uint32_t i = started; i < threads; i++)
        store_relaxed(&record->slots[workers[i].index].state, SLOT_FAILED);
    if (error != 0)
        fprintf(stderr, "peer: %u threads started (%s); expected %u; use fewer --threads or raise the limit\n", started,
                strerror(error), threads);

    bool passed = error == 0 && total.mismatches == 0;
    printf("peer: %s language=c threads=%u acquisitions=%llu contended=%llu mismatches=%llu\n",
           passed ? "PASS" : "FAIL", threads, (unsigned long long)total.acquisitions,
           (unsigned long long)total.contended, (unsigned long long)total.mismatches);
    return passed ? EXIT_PASS : EXIT_FAIL;
}

int main(int argc, char **argv)
{
    parse_arguments(argc, argv);
    record = record_map(path, offset);
    install_bus_error_handler();
    record_set_mode(record, mode);
    mutex = (struct word_mutex){.word = &record->lock_word,
                                .counter = &record->slow_path_counter,
                                .owner = &record->owner_word,
                                .id = (uint32_t)getpid()};

    uint32_t slots[SLOT_COUNT];
    struct worker workers[SLOT_COUNT] = {{0}};
    record_claim_slots(record, slots, threads);
    for (uint32_t i = 0; i < threads; i++)
        workers[i].index = slots[i];
    return run(workers);
}
