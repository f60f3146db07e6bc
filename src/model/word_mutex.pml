// SPDX-License-Identifier: Apache-2.0
//
// WordMutex (PROTOCOL.md, section 4): THREADS threads that lock, try, time out and unlock as often as they like.
//
// Checked: mutual exclusion; the word is legal, and FREE exactly while nobody holds the mutex; unlock never finds it
// free; the owner word names the holder; nobody sleeps for ever (every end state has all threads idle).
//
// There are no budgets. Going to sleep decides by free choice whether the sleeper may still leave by itself (time-out,
// signal, spurious wake) or only by a wake; an idle thread may stop for good at any time; a deadline may be found
// passed at any look at the clock. So each run in which a wake is lost ends stuck, whatever else could have happened.
//
// One word, so memory is coherent; what acquire and release do for the data is not in the model. Deaths are out of
// scope (section 1). A failed try_lock, interrupts and the clock are one thing here: leaving where the table allows it.
//
// verify: quick pass -DTHREADS=3
// verify: quick pass -DTHREADS=3 -DOWNER
// verify: quick pass -DTHREADS=4
// verify: full  pass -DTHREADS=4 -DOWNER
//
// Switches; each removes one safeguard:
//
// the deadline is looked at before the swap: who was woken leaves LOCKED, and sleepers, behind
// verify: quick fail -DDEADLINE_FIRST
// the same, but only after a sleep: who was woken leaves at once
// verify: quick fail -DDEADLINE_AFTER_SLEEP
// unlock does not wake
// verify: quick fail -DWAKE_NOBODY
// unlock wakes, then frees
// verify: quick fail -DWAKE_FIRST
// unlock looks, frees, and wakes by what the look said
// verify: quick fail -DWAKE_BY_LOOK
// a waiter sleeps on LOCKED and never writes CONTENDED
// verify: quick fail -DSLEEP_ON_LOCKED
// who has slept takes a free mutex as LOCKED (compare-and-set)
// verify: quick fail -DTAKE_LOCKED
// the same by a plain store
// verify: quick fail -DSTORE_LOCKED
// a mutex won by the swap is marked LOCKED afterwards
// verify: quick fail -DNOT_STAY_CONTENDED
// a swap that returns FREE does not count as an acquisition
// verify: quick fail -DSWAP_BLIND
// CONTENDED is written by a plain store after a look
// verify: quick fail -DSTORE_CONTENDED
// try_lock looks, then stores
// verify: quick fail -DTRY_BY_STORE
// the first try of lock_contended looks, then stores
// verify: quick fail -DCONTEND_BY_STORE
// the kernel does not compare
// verify: quick fail -DWAIT_BLIND
// the owner word is cleared after the mutex is free
// verify: quick fail -DOWNER -DOWNER_LATE

#ifndef THREADS
#define THREADS 3
#endif

#define FREE 0
#define LOCKED 1
#define CONTENDED 2

byte word = FREE;
#ifdef OWNER
byte owner = 0;                 // the optional owner word: 0 or thread + 1
#endif

// ---- the kernel -----------------------------------------------------------------------------------------------------

#define AWAKE 0
#define ASLEEP 1                // until woken
#define LEAVING 2               // until woken, or until it leaves by itself: time-out, signal, spurious wake

byte queue[THREADS];

#define me _pid

inline futex_wait(expected) {
    atomic {
        if
#ifdef WAIT_BLIND
        :: queue[me] = ASLEEP
#else
        :: word != expected
        :: word == expected -> queue[me] = ASLEEP
        :: word == expected -> queue[me] = LEAVING
#endif
        fi
    };
    if
    :: queue[me] == AWAKE
    :: atomic { queue[me] == LEAVING -> queue[me] = AWAKE }
    fi
}

// One sleeper, whichever; who is LEAVING takes a wake with it too.
inline futex_wake_one() {
    atomic {
        if
        :: queue[0] != AWAKE -> queue[0] = AWAKE
        :: queue[1] != AWAKE -> queue[1] = AWAKE
#if THREADS > 2
        :: queue[2] != AWAKE -> queue[2] = AWAKE
#endif
#if THREADS > 3
        :: queue[3] != AWAKE -> queue[3] = AWAKE
#endif
        :: else
        fi
    }
}

// ---- what must hold -------------------------------------------------------------------------------------------------

byte holders = 0;

inline taken() {
    holders++;
    assert(holders == 1)
}

inline legal() {
    assert(word <= CONTENDED);
    assert((word != FREE) == (holders == 1))
}

// ---- the protocol ---------------------------------------------------------------------------------------------------

inline cas_acquire_free_locked() {
    atomic {
        if
        :: word == FREE -> word = LOCKED; taken(); legal(); v = 0; goto acquired
        :: else
        fi
    }
}

active [THREADS] proctype Thread() {
    byte v = 0;

idle:
    if
    :: goto lock
    :: goto end_stopped
    fi;

lock:                           // try_lock
    v = word;
    if
    :: v == FREE ->
#ifdef TRY_BY_STORE
        atomic { word = LOCKED; taken(); legal(); v = 0; goto acquired }
#else
        cas_acquire_free_locked()
#endif
    :: else
    fi;
    if
    :: goto contended
    :: v = 0; goto idle         // it was no more than a try
    fi;

contended:                      // lock_contended
    v = word;                   // spin
    if
    :: v == FREE ->
#ifdef CONTEND_BY_STORE
        atomic { word = LOCKED; taken(); legal(); v = 0; goto acquired }
#else
        cas_acquire_free_locked()
#endif
    :: else
    fi;

again:
#ifdef DEADLINE_FIRST
    if
    :: skip
    :: v = 0; goto idle
    fi;
#endif
#ifdef SLEEP_ON_LOCKED
    if
    :: v != CONTENDED -> cas_acquire_free_locked()
    :: else
    fi;
#else
    if
    :: v != CONTENDED ->
#ifdef STORE_CONTENDED
        v = word;
        if
        :: v == FREE -> cas_acquire_free_locked()
        :: else -> atomic { word = CONTENDED; legal() }
        fi
#else
        atomic {                // swap_acquire(CONTENDED)
            v = word;
            word = CONTENDED;
            if
#ifndef SWAP_BLIND
            :: v == FREE -> taken(); legal(); v = 0;
#ifdef NOT_STAY_CONTENDED
                goto mark
#else
                goto acquired
#endif
#endif
            :: else
            fi
        }
#endif
    :: else
    fi;
#endif
#ifndef DEADLINE_FIRST
    if                          // the deadline
    :: skip
    :: v = 0; goto idle
    fi;
#endif
#ifdef SLEEP_ON_LOCKED
    futex_wait(LOCKED);
#else
    futex_wait(CONTENDED);
#endif
#ifdef DEADLINE_AFTER_SLEEP
    if
    :: skip
    :: v = 0; goto idle
    fi;
#endif
    v = word;                   // spin
#ifdef TAKE_LOCKED
    if
    :: v == FREE -> cas_acquire_free_locked()
    :: else
    fi;
#endif
#ifdef STORE_LOCKED
    if
    :: v == FREE -> atomic { word = LOCKED; taken(); legal(); v = 0; goto acquired }
    :: else
    fi;
#endif
    goto again;

#ifdef NOT_STAY_CONTENDED
mark:
    word = LOCKED;
#endif

acquired:
#ifdef OWNER
    owner = me + 1;
#endif
    // inside
    atomic {                    // unlock: the look
#ifdef OWNER
        assert(owner == me + 1);
#endif
        assert(word != FREE);
#if defined(WAKE_FIRST) || defined(WAKE_BY_LOOK)
        v = word
#endif
    };
#if defined(OWNER) && !defined(OWNER_LATE)
    owner = 0;
#endif
#ifdef WAKE_FIRST
    if
    :: v == CONTENDED -> futex_wake_one()
    :: else
    fi;
#endif
    atomic {                    // swap_release(FREE)
        assert(word != FREE);
#ifndef WAKE_BY_LOOK
        v = word;
#endif
        word = FREE;
        holders--;
        legal()
    };
#ifdef OWNER_LATE
    owner = 0;
#endif
#ifndef WAKE_FIRST
    if
#ifndef WAKE_NOBODY
    :: v == CONTENDED -> futex_wake_one()
#endif
    :: else
    fi;
#endif
    v = 0;
    goto idle;

end_stopped:
    false
}
