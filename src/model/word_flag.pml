// SPDX-License-Identifier: Apache-2.0
//
// AtomicFlag (PROTOCOL.md, section 2): CHANGERS threads that set and clear the flag, WAITERS threads that wait for
// either state, as often as they like.
//
// Checked: of competing test_and_set calls exactly one between two clears returns false, and the same for clear; the
// word is legal; who returns from a wait has seen the state it waited for; and at the end of every run nobody sleeps
// while the flag has the state it waits for.
//
// There are no budgets. Going to sleep decides by free choice whether the sleeper may still leave by itself (time-out,
// signal, spurious wake) or only by a wake; an idle thread may stop for good at any time; a deadline may be found
// passed at any look at the clock. To wait for a state that never comes is legal, so a checking process judges the end
// states (-E).
//
// One word, so memory is coherent; what acquire and release do for the data is not in the model. Deaths are out of
// scope (section 1).
//
// verify: quick pass -DCHANGERS=2 -DWAITERS=2 pan:"-E"
// verify: quick pass -DCHANGERS=3 -DWAITERS=2 pan:"-E"
// verify: full  pass -DCHANGERS=2 -DWAITERS=3 pan:"-E"
//
// Switches; each removes one safeguard:
//
// setting, or clearing, does not wake
// verify: quick fail -DNO_WAKE_ON_SET pan:"-E"
// verify: quick fail -DNO_WAKE_ON_CLEAR pan:"-E"
// a change wakes one sleeper, not all
// verify: quick fail -DWAKE_ONE pan:"-E"
// the wake comes before the change
// verify: quick fail -DWAKE_FIRST pan:"-E"
// only the first change wakes
// verify: quick fail -DWAKE_ONCE pan:"-E"
// test_and_set, or clear, looks and then stores
// verify: quick fail -DSET_BY_STORE pan:"-E"
// verify: quick fail -DCLEAR_BY_STORE pan:"-E"
// test_and_set that finds the flag clear returns false whatever the swap returned
// verify: quick fail -DSET_BY_LOOK pan:"-E"
// a waiter sleeps on the state it waits for
// verify: quick fail -DSLEEP_ON_WANTED pan:"-E"
// a waiter sleeps on what it finds at that moment
// verify: quick fail -DSLEEP_ON_FRESH pan:"-E"
// a waiter that was woken does not look again
// verify: quick fail -DNO_LOOK pan:"-E"
// the kernel does not compare
// verify: quick fail -DWAIT_BLIND pan:"-E"
//
// A look less is harmless: a swap that changes nothing wakes nobody.
// verify: quick pass -DNO_LOOK_FIRST pan:"-E"

#ifndef CHANGERS
#define CHANGERS 2
#endif
#ifndef WAITERS
#define WAITERS 2
#endif

#define CLEAR 0
#define SET 1

byte word = CLEAR;

// ---- the kernel -----------------------------------------------------------------------------------------------------

#define AWAKE 0
#define ASLEEP 1                // until woken
#define LEAVING 2               // until woken, or until it leaves by itself: time-out, signal, spurious wake

byte queue[WAITERS];            // the waiters are processes 0 to WAITERS - 1

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

inline futex_wake_all() {
    atomic {
#ifdef WAKE_ONE
        if
        :: queue[0] != AWAKE -> queue[0] = AWAKE
        :: queue[1] != AWAKE -> queue[1] = AWAKE
        :: else
        fi
#else
        queue[0] = AWAKE;
        queue[1] = AWAKE;
#if WAITERS > 2
        queue[2] = AWAKE
#endif
#endif
    }
}

// ---- what must hold -------------------------------------------------------------------------------------------------

byte changes = CLEAR;           // test_and_set calls that returned false, less clear calls that returned true
byte wanted[WAITERS];           // what each waiter waits for
byte stopped = 0;
#ifdef WAKE_ONCE
bool woken = false;
#endif

inline wake() {
#ifdef WAKE_ONCE
    if
    :: !woken -> woken = true; futex_wake_all()
    :: else
    fi
#else
    futex_wake_all()
#endif
}

// ---- the protocol ---------------------------------------------------------------------------------------------------

active [WAITERS] proctype Waiter() {
    byte v = 0;

idle:
    atomic {
        if
        :: wanted[me] = CLEAR
        :: wanted[me] = SET
        :: stopped++; goto end_stopped
        fi
    };

await:
    atomic {
        v = word;               // load_acquire
        assert(v <= SET);
        if
        :: v == wanted[me] -> v = 0; wanted[me] = CLEAR; goto idle
        :: else
        fi
    };
    if                          // the deadline
    :: skip
    :: atomic { v = 0; wanted[me] = CLEAR; goto idle }
    fi;
#ifdef SLEEP_ON_FRESH
    v = word;
    futex_wait(v);
#else
#ifdef SLEEP_ON_WANTED
    futex_wait(wanted[me]);
#else
    futex_wait(SET + CLEAR - wanted[me]);
#endif
#endif
#ifdef NO_LOOK
    atomic { assert(word == wanted[me]); v = 0; wanted[me] = CLEAR; goto idle };
#endif
    goto await;

end_stopped:
    false
}

active [CHANGERS] proctype Changer() {
    byte v = 0;

idle:
    if
    :: goto test_and_set
    :: goto clear
    :: atomic { stopped++; goto end_stopped }
    fi;

test_and_set:
#ifndef NO_LOOK_FIRST
    if
    :: word == SET -> goto idle // it was set
    :: else
    fi;
#endif
#ifdef WAKE_FIRST
    wake();
#endif
    atomic {                    // swap(SET)
#ifdef SET_BY_STORE
        v = CLEAR;
#else
        v = word;
#endif
        word = SET;
#ifdef SET_BY_LOOK
        changes++;
#else
        changes = changes + (v == CLEAR);
#endif
        assert(changes == word)
    };
#if !defined(WAKE_FIRST) && !defined(NO_WAKE_ON_SET)
    if
    :: v == CLEAR -> wake()
    :: else
    fi;
#endif
    v = 0;
    goto idle;

clear:
#ifndef NO_LOOK_FIRST
    if
    :: word == CLEAR -> goto idle
    :: else
    fi;
#endif
#ifdef WAKE_FIRST
    wake();
#endif
    atomic {                    // swap(CLEAR)
#ifdef CLEAR_BY_STORE
        v = SET;
#else
        v = word;
#endif
        word = CLEAR;
        changes = changes - (v == SET);
        assert(changes == word)
    };
#if !defined(WAKE_FIRST) && !defined(NO_WAKE_ON_CLEAR)
    if
    :: v == SET -> wake()
    :: else
    fi;
#endif
    v = 0;
    goto idle;

end_stopped:
    false
}

// Nothing can happen any more: everybody has stopped, or sleeps and waits for the other state.
active proctype Check() {
    byte i = 0;
    byte sleepers = 0;

    timeout;
    atomic {
        do
        :: i == WAITERS -> break
        :: i < WAITERS ->
            assert(queue[i] != LEAVING);
            if
            :: queue[i] == ASLEEP -> sleepers++; assert(word != wanted[i])
            :: else
            fi;
            i++
        od;
        assert(stopped + sleepers == WAITERS + CHANGERS)
    }
}
