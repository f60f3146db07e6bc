// SPDX-License-Identifier: Apache-2.0
//
// SpinLock (PROTOCOL.md, section 3): THREADS threads that lock, try, time out and unlock as often as they like.
//
// Checked: mutual exclusion; the word is LOCKED exactly while somebody holds the lock; unlock never finds it free;
// nobody sleeps for ever (every end state has all threads idle).
//
// There are no budgets. Going to sleep decides by free choice whether the sleeper may still leave by itself (time-out,
// signal, spurious wake) or only by a wake; an idle thread may stop for good at any time; a deadline may be found
// passed at any look at the clock. So each run in which a wake is lost ends stuck, whatever else could have happened.
//
// One word, so memory is coherent; what acquire and release do for the data is not in the model. Deaths are out of
// scope (section 1). Of the tries before a sleep one is enough: the others are like tries of an idle thread.
//
// verify: quick pass -DTHREADS=3
// verify: quick pass -DTHREADS=4
// verify: full  pass -DTHREADS=5
//
// Switches; each removes one safeguard:
//
// who was woken looks at the deadline before it tries again: it leaves with the only wake
// verify: quick fail -DDEADLINE_FIRST
// the last try is the one before the sleep: who was woken looks only
// verify: quick fail -DLOOK_LAST
// unlock does not wake
// verify: quick fail -DWAKE_NOBODY
// unlock wakes only if it took the lock after waiting itself
// verify: quick fail -DWAKE_IF_WAITED
// unlock wakes, then frees
// verify: quick fail -DWAKE_FIRST
// try_lock looks, then stores
// verify: quick fail -DTRY_BY_STORE
// a waiter sleeps on what it finds at that moment, not on LOCKED
// verify: quick fail -DSLEEP_ON_FRESH
// the kernel does not compare
// verify: quick fail -DWAIT_BLIND
// unlock frees twice: the second time the lock may be somebody else's
// verify: quick fail -DUNLOCK_TWICE

#ifndef THREADS
#define THREADS 3
#endif

#define FREE 0
#define LOCKED 1

byte word = FREE;

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
#if THREADS > 4
        :: queue[4] != AWAKE -> queue[4] = AWAKE
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
    assert(word <= LOCKED);
    assert(word == holders)
}

// ---- the protocol ---------------------------------------------------------------------------------------------------

inline try_lock() {
    v = word;
    if
    :: v == FREE ->
        atomic {                // cas_acquire(FREE, LOCKED)
            v = 0;
            if
#ifdef TRY_BY_STORE
            :: word = LOCKED; taken(); legal(); goto acquired
#else
            :: word == FREE -> word = LOCKED; taken(); legal(); goto acquired
            :: else
#endif
            fi
        }
    :: else -> v = 0
    fi
}

active [THREADS] proctype Thread() {
    byte v = 0;
#ifdef WAKE_IF_WAITED
    bool waited = false;
#endif

idle:
    if
    :: goto lock
    :: goto end_stopped
    fi;

lock:
    try_lock();
    if
    :: goto contended
    :: goto idle                // it was no more than a try
    fi;

contended:                      // lock_contended
#ifdef WAKE_IF_WAITED
    waited = true;
#endif
    try_lock();
again:
    if                          // the deadline
    :: skip
    :: atomic {
#ifdef WAKE_IF_WAITED
        waited = false;
#endif
        goto idle }
    fi;
#ifdef SLEEP_ON_FRESH
    v = word;
    futex_wait(v);
    v = 0;
#else
    futex_wait(LOCKED);
#endif
#ifdef DEADLINE_FIRST
    if
    :: skip
    :: goto idle
    fi;
#endif
#ifdef LOOK_LAST
    if
    :: word == FREE -> goto contended
    :: word == FREE -> goto idle
    :: else -> goto again
    fi;
#endif
    goto contended;

acquired:
    // inside
    assert(word != FREE);       // unlock: the look
#ifdef WAKE_FIRST
    futex_wake_one();
#endif
    atomic {                    // swap_release(FREE)
        assert(word != FREE);
        word = FREE;
        holders--;
        legal()
    };
#ifdef UNLOCK_TWICE
    atomic { word = FREE; legal() };
#endif
#ifdef WAKE_IF_WAITED
    if
    :: waited -> waited = false; futex_wake_one()
    :: else
    fi;
#else
#ifndef WAKE_NOBODY
#ifndef WAKE_FIRST
    futex_wake_one();
#endif
#endif
#endif
    goto idle;

end_stopped:
    false
}
