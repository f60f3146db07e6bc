// SPDX-License-Identifier: Apache-2.0
//
// WordReadWriteLock (PROTOCOL.md, section 5): THREADS threads that share, claim, drain, withdraw, downgrade, try and
// time out as often as they like. WRITERS of them (default: all) may use the exclusive side, all may share.
//
// Checked: an exclusive holder is alone; the word's count is the number of shared holders and never negative; EXCL is
// set exactly while there is one claimant or exclusive holder, of whom there is never a second; unlocking never
// finds an unlocked word; nobody sleeps for ever (every end state has all threads idle).
//
// There are no budgets. Going to sleep decides by free choice whether the sleeper may still leave by itself (time-out,
// signal, spurious wake) or only by a wake; an idle thread may stop for good at any time; a deadline may be found
// passed at any look at the clock. So each run in which a wake is lost ends stuck, whatever else could have happened.
//
// One word, so memory is coherent; what acquire and release do for the data is not in the model. Deaths are out of
// scope (section 1). Spinning is a later look. try_lock_shared is lock_shared with a deadline that has passed.
//
// verify: quick pass -DTHREADS=3
// verify: full  pass -DTHREADS=4 -DWRITERS=2
// verify: full  pass -DTHREADS=4 -DWRITERS=3
// liveness: under weak fairness endless readers do not starve a claimant
// verify: quick pass -DWRITERS=1 -DLIVENESS pan:"-a -f"
// verify: full  pass -DWRITERS=3 -DLIVENESS pan:"-a -f"
// the count is full with one holder: newcomers get an error, nothing is changed
// verify: quick pass -DTHREADS=3 -DMOST=1
//
// Switches; each removes one safeguard:
//
// the claim is an unconditional OR: two claimants go on
// verify: quick fail -DCLAIM_BY_OR
// the claim, or the try, looks and then stores
// verify: quick fail -DCLAIM_BY_STORE
// verify: quick fail -DTRY_BY_STORE
// the claim ignores a claim
// verify: quick fail -DCLAIM_OVER_CLAIM
// a failed try leaves its claim
// verify: quick fail -DTRY_CLAIMS
// sharing looks, then adds
// verify: quick fail -DSHARE_BY_ADD
// sharing looks, then stores
// verify: quick fail -DSHARE_BY_STORE
// newcomers ignore a claimant that drains: endless readers starve it
// verify: quick fail -DWRITERS=1 -DLIVENESS -DSHARE_WHILE_DRAINING pan:"-a -f"
// the count runs over into EXCL
// verify: quick fail -DMOST=1 -DNO_OVERFLOW_CHECK
// unlock_shared looks, then stores
// verify: quick fail -DUNSHARE_BY_STORE
// unlock_shared wakes nobody, wakes one, wakes first, wakes only when the word becomes FREE
// verify: quick fail -DUNSHARE_WAKES_NOBODY
// verify: quick fail -DUNSHARE_WAKES_ONE
// verify: quick fail -DUNSHARE_WAKES_FIRST
// verify: quick fail -DUNSHARE_WAKES_AT_FREE
// unlock_shared wakes if its first look, not the value it has written, says that it is the last one
// verify: quick fail -DUNSHARE_WAKES_BY_LOOK
// unlock_exclusive wakes nobody, wakes one, wakes first
// verify: quick fail -DUNLOCK_WAKES_NOBODY
// verify: quick fail -DUNLOCK_WAKES_ONE
// verify: quick fail -DUNLOCK_WAKES_FIRST
// downgrade wakes nobody, wakes one, goes through FREE
// verify: quick fail -DDOWNGRADE_WAKES_NOBODY
// verify: quick fail -DDOWNGRADE_WAKES_ONE
// verify: quick fail -DDOWNGRADE_BY_FREE
// the drain looks once: it takes its return from the sleep for the lock
// verify: quick fail -DDRAIN_ONCE
// the drain does not look at all
// verify: quick fail -DDRAIN_NEVER
// time-out without withdrawing
// verify: quick fail -DNO_WITHDRAW
// withdrawing wakes nobody, wakes one, wakes first
// verify: quick fail -DWITHDRAW_WAKES_NOBODY
// verify: quick fail -DTHREADS=4 -DWITHDRAW_WAKES_ONE
// verify: quick fail -DWITHDRAW_WAKES_FIRST
// withdrawing tries once; stores what the look said; takes a successful drain for a claim that is gone
// verify: quick fail -DWITHDRAW_ONCE
// verify: quick fail -DWITHDRAW_BY_STORE
// verify: quick fail -DWITHDRAW_FORGETS
// waiters sleep on what they find at that moment
// verify: quick fail -DSLEEP_ON_FRESH
// the kernel does not compare
// verify: quick fail -DWAIT_BLIND
//
// Not needed for safety: a withdrawal that gives back what it has just won. It is a time-out that need not have been.
// verify: quick pass -DWITHDRAW_ALWAYS

#ifndef THREADS
#define THREADS 3
#endif
#ifndef WRITERS
#define WRITERS THREADS
#endif
#ifndef MOST
#define MOST 7                  // 2³⁰ − 1 in small: the greatest count
#endif

#define FREE 0
#define EXCL (MOST + 1)
#define CLAIMED(v) ((v) & EXCL)
#define SHARED(v) ((v) & MOST)

byte word = FREE;

// ---- the kernel -----------------------------------------------------------------------------------------------------

#define AWAKE 0
#define ASLEEP 1                // until woken
#define LEAVING 2               // until woken, or until it leaves by itself: time-out, signal, spurious wake

byte queue[THREADS];

#define me _pid

inline futex_wait() {           // on the value seen
#ifdef SLEEP_ON_FRESH
    v = word;
#endif
    atomic {
        if
#ifdef WAIT_BLIND
        :: queue[me] = ASLEEP
#else
        :: word != v
        :: word == v -> queue[me] = ASLEEP
        :: word == v -> queue[me] = LEAVING
#endif
        fi;
        v = 0
    };
    if
    :: queue[me] == AWAKE
    :: atomic { queue[me] == LEAVING -> queue[me] = AWAKE }
    fi
}

inline futex_wake_all() {
    atomic {
        v = 0;
        queue[0] = AWAKE;
        queue[1] = AWAKE;
#if THREADS > 2
        queue[2] = AWAKE;
#endif
#if THREADS > 3
        queue[3] = AWAKE
#endif
    }
}

// One sleeper, whichever: what would not do.
inline futex_wake_one() {
    atomic {
        v = 0;
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

byte sharers = 0;
byte claimants = 0;
byte exclusive = 0;

inline legal() {
    assert(word <= EXCL + MOST);
    assert(SHARED(word) == sharers);
    assert(claimants + exclusive <= 1);
    assert((CLAIMED(word) != 0) == (claimants + exclusive == 1));
    assert(exclusive == 0 || sharers == 0)
}

#ifdef LIVENESS
ltl claims_end { [] <> (claimants == 0) }
#endif

// ---- the protocol ---------------------------------------------------------------------------------------------------

active [THREADS] proctype Thread() {
    byte v = 0;
#ifdef UNSHARE_WAKES_BY_LOOK
    byte first = 0;
#endif

idle:
    if
    :: goto lock_shared
    :: me < WRITERS -> goto try_exclusive
    :: me < WRITERS -> goto claim
    :: goto end_stopped
    fi;

// ---- shared

lock_shared:
    v = word;
    if
#ifdef SHARE_WHILE_DRAINING
    :: v != EXCL ->
#else
    :: !CLAIMED(v) ->
#endif
        if
#ifndef NO_OVERFLOW_CHECK
        :: SHARED(v) == MOST -> atomic { v = 0; goto idle }     // the error
#endif
        :: else ->
#ifdef SHARE_BY_ADD
            atomic { word++; sharers++; legal(); v = 0; goto shared }
#else
#ifdef SHARE_BY_STORE
            atomic { word = v + 1; sharers++; legal(); v = 0; goto shared }
#else
            atomic {            // cas_acquire(v, v + 1)
                if
                :: word == v -> word = v + 1; sharers++; legal(); v = 0; goto shared
                :: else -> v = 0; goto lock_shared
                fi
            }
#endif
#endif
        fi
    :: else
    fi;
    if                          // the deadline
    :: skip
    :: atomic { v = 0; goto idle }
    fi;
    futex_wait();
    goto lock_shared;

shared:
    // inside
    skip;

unlock_shared:
    atomic { v = word; assert(SHARED(v) != 0) };
#ifdef UNSHARE_WAKES_BY_LOOK
    if
    :: first == 0 -> first = v
    :: else
    fi;
#endif
#ifdef UNSHARE_WAKES_FIRST
    if
    :: v - 1 == EXCL ->
        atomic { queue[0] = AWAKE; queue[1] = AWAKE; queue[2] = AWAKE }
    :: else
    fi;
#endif
    atomic {                    // cas_release(v, v - 1)
        if
#ifdef UNSHARE_BY_STORE
        :: word = v - 1; sharers--; legal()
#else
        :: word == v -> word = v - 1; sharers--; legal()
        :: else -> v = 0; goto unlock_shared
#endif
        fi
    };
#ifdef UNSHARE_WAKES_BY_LOOK
    v = first;
    first = 0;
#endif
    if
#if defined(UNSHARE_WAKES_AT_FREE)
    :: v - 1 == FREE -> futex_wake_all()
#elif defined(UNSHARE_WAKES_ONE)
    :: v - 1 == EXCL -> futex_wake_one()
#elif !defined(UNSHARE_WAKES_NOBODY) && !defined(UNSHARE_WAKES_FIRST)
    :: v - 1 == EXCL -> futex_wake_all()
#endif
    :: else -> v = 0
    fi;
    goto idle;

// ---- exclusive

try_exclusive:
    if
    :: word == FREE ->
        atomic {                // cas_acquire(FREE, EXCL)
            if
#ifdef TRY_BY_STORE
            :: word = EXCL; exclusive++; legal(); goto locked
#else
            :: word == FREE -> word = EXCL; exclusive++; legal(); goto locked
            :: else -> goto idle
#endif
            fi
        }
    :: else ->
#ifdef TRY_CLAIMS
        atomic { word = word | EXCL };
#endif
        goto idle
    fi;

claim:
    v = word;
    if
#ifdef CLAIM_OVER_CLAIM
    :: v != EXCL ->
#else
    :: !CLAIMED(v) ->
#endif
        atomic {                // cas_acquire(v, v | EXCL)
            if
#ifdef CLAIM_BY_OR
            :: word = word | EXCL; claimants++; legal(); v = 0; goto drain
#else
#ifdef CLAIM_BY_STORE
            :: word = v | EXCL; claimants++; legal(); v = 0; goto drain
#else
            :: word == v -> word = v | EXCL; claimants++; legal(); v = 0; goto drain
            :: else -> v = 0; goto claim
#endif
#endif
            fi
        }
    :: else
    fi;
    if                          // the deadline
    :: skip
    :: atomic { v = 0; goto idle }
    fi;
    futex_wait();
    goto claim;

drain:
#ifdef DRAIN_NEVER
    atomic { claimants--; exclusive++; legal(); goto locked };
#endif
    atomic {
        v = word;               // load_acquire
        assert(CLAIMED(v));
        if
        :: v == EXCL -> claimants--; exclusive++; legal(); v = 0; goto locked
        :: else
        fi
    };
    if                          // the deadline
    :: skip
    :: v = 0; goto withdraw
    fi;
    futex_wait();
#ifdef DRAIN_ONCE
    atomic { claimants--; exclusive++; legal(); goto locked };
#endif
    goto drain;

withdraw:
#ifdef NO_WITHDRAW
    atomic { claimants--; legal(); goto idle };
#endif
    atomic {
        v = word;
        assert(CLAIMED(v));
        if
#ifdef WITHDRAW_FORGETS
        :: v == EXCL -> claimants--; v = 0; goto idle
#else
#ifndef WITHDRAW_ALWAYS
        :: v == EXCL -> claimants--; exclusive++; legal(); v = 0; goto locked
#endif
#endif
        :: else
        fi
    };
#ifdef WITHDRAW_WAKES_FIRST
    atomic { queue[0] = AWAKE; queue[1] = AWAKE; queue[2] = AWAKE };
#endif
    atomic {                    // cas_release(v, v & ~EXCL)
        if
#ifdef WITHDRAW_BY_STORE
        :: word = SHARED(v); claimants--; legal()
#else
        :: word == v -> word = SHARED(v); claimants--; legal()
#ifdef WITHDRAW_ONCE
        :: else -> claimants--; v = 0; goto idle
#else
        :: else -> v = 0; goto withdraw
#endif
#endif
        fi
    };
#if defined(WITHDRAW_WAKES_ONE)
    futex_wake_one();
#elif !defined(WITHDRAW_WAKES_NOBODY) && !defined(WITHDRAW_WAKES_FIRST)
    futex_wake_all();
#endif
    v = 0;
    goto idle;

locked:
    // inside
    if
    :: goto unlock_exclusive
    :: goto downgrade
    fi;

unlock_exclusive:
    assert(word == EXCL);       // the look
#ifdef UNLOCK_WAKES_FIRST
    futex_wake_all();
#endif
    atomic {                    // cas_release(EXCL, FREE)
        assert(word == EXCL);
        word = FREE;
        exclusive--;
        legal()
    };
#if defined(UNLOCK_WAKES_ONE)
    futex_wake_one();
#elif !defined(UNLOCK_WAKES_NOBODY) && !defined(UNLOCK_WAKES_FIRST)
    futex_wake_all();
#endif
    goto idle;

downgrade:
    assert(word == EXCL);       // the look
#ifdef DOWNGRADE_BY_FREE
    atomic { word = FREE; exclusive--; legal() };
    atomic { word++; sharers++; legal() };
#else
    atomic {                    // cas_release(EXCL, 1)
        assert(word == EXCL);
        word = 1;
        exclusive--;
        sharers++;
        legal()
    };
#endif
#if defined(DOWNGRADE_WAKES_ONE)
    futex_wake_one();
#elif !defined(DOWNGRADE_WAKES_NOBODY)
    futex_wake_all();
#endif
    goto shared;

end_stopped:
    false
}
