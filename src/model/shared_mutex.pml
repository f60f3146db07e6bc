// SPDX-License-Identifier: Apache-2.0
//
// SharedMutex: asymmetric release, hand-over to an heir, waits that are given up, deaths at any step, recovery.
//
// owner   FREE | ABANDONED | id | RESERVED|id
// events  eventcount and futex word: bit 0 = somebody may be asleep, the rest an epoch
// slept   somebody has slept here; set before the waiter registers in events, NEVER cleared while anybody is attached
// heir    0, or the id of a waiter that is owed the lock; set by that waiter, cleared by the same thread or by recovery
// handed  changes with each hand-over; a futex word on which only the heir sleeps, beside events
//
// lock    CAS owner FREE->me
// wait    1  once, after 1 ms: CAS heir 0->me
//         2  the heir: remember handed. slept := 1; events |= bit 0, remember e (a full fence)
//         3  process-wide barrier
//         4  CAS owner FREE->me, or ABANDONED->me (told), or RESERVED|me->me if this thread is the heir; a dead owner or
//            a reservation that nobody waits for may be repaired here, then again from 1
//         5  futex-wait(events, e), the heir on (handed, n) as well; again from 1.   Got the lock while heir: CAS heir me->0
// leave   without the lock: if heir, CAS heir me->0, then CAS owner RESERVED|me->FREE; then the baton: events |= bit 0,
//         barrier, owner not held -> next epoch, wake one
// unlock  load heir. None (or a hand-over less than 1 ms ago): store owner := FREE; look at events; bit 0 -> CAS to the
//         next epoch, wake one. Some h: exchange owner := RESERVED|h; load heir again, no longer h -> CAS RESERVED|h->FREE,
//         done: look at events as above. Else change handed, wake those who sleep on it
// depose  (-DDEPOSE) a reservation has stood for long, as the heir is stopped: any waiter may CAS heir h->0, then CAS owner
//         RESERVED|h->FREE, and looks again. The heir finds itself deposed when it looks at heir again, and is a waiter.
// recover read which lifelines are dead; barrier; dead heir -> CAS to 0; then dead owner -> CAS to ABANDONED, or a
//         reservation of a dead one, or of one that is not the heir -> CAS to FREE; slept -> next epoch, wake all.
//         Every sweep does this with every entry, repaired by itself or not.
//
// -DSYMMETRIC  a full fence in unlock between its store and its look, no barrier anywhere; recovery waits until the dead
//              process has dropped the lock on its slot's byte
// -DSIBLINGS   threads 0 and 1 are one process
// -DSTRICT     who was told may give the lock back abandoned (the repair failed); a waiter may be refused
// -DSLEPTBIT   bit 1 of events instead of the word slept: set with bit 0 in one step, kept by unlock; recovery: next
//              epoch, wake all, then clear it by a CAS that fails if anything has happened since
// -DNOHELP     waiters repair nothing, recovery does; -DNOHEIR: nobody claims the lock. For smaller searches
// -DDEPOSE     other waiters take reservations back, at any moment
// -DBOUND      no pause between hand-overs: counts the acquisitions by others after the heir's claim
//
// WHY slept IS NOT CLEARED. Recovery that clears it, then moves the epoch, then wakes, may die in between: the sweep for
// its own death finds owner ABANDONED and slept = 0 and wakes nobody (SLEPTCLEARED). The other order loses a waiter that
// has registered in between (BUMPFIRST). WHY IT IS SET FIRST. After the read-modify-write of events it would be a plain
// store in a store buffer, and where there is no barrier (SYMMETRIC) recovery would not see it (SLEPTLATE).
//
// Stores to owner (and slept, where no fence follows) go through a store buffer: x86-TSO. The kernel marks a lifeline;
// threads of that process may run on until a barrier. The 2 s looks of waiters are NOT modeled: they would hide a lost
// wake. Nor is memory weaker than TSO, nor a wrap of the epoch.
//
// Whenever nothing but a death or a time-out could still move, Check demands that nobody sleeps, no heir is left, the
// lock is FREE or ABANDONED, and ABANDONED exactly if somebody died inside and nobody has been told.
//
// verify: quick pass -DT=2
// verify: quick pass -DT=2 -DSYMMETRIC
// verify: quick pass -DT=3 -DDEATHS=0
// verify: full  pass -DT=2 -DROUNDS=2
// verify: full  pass -DT=3 -DCANCELS=0
// verify: full  pass -DT=3
// verify: full  pass -DT=3 -DSIBLINGS
// verify: full  pass -DT=2 -DSURVIVORS=2
// verify: full  pass -DT=2 -DROUNDS=2 -DSTRICT
// verify: full  pass -DT=3 -DSYMMETRIC -DCANCELS=0
// verify: full  pass -DT=2 -DSURVIVORS=2 -DSYMMETRIC
// verify: full  pass -DT=2 -DSURVIVORS=2 -DSLEPTBIT
// verify: full  pass -DT=2 -DROUNDS=3 -DDEATHS=0 -DBOUND
// verify: full  pass -DT=2 -DROUNDS=2 -DDEPOSE
// verify: full  pass -DT=3 -DCANCELS=0 -DDEPOSE
// verify: full  pass -DT=3 -DDEATHS=0 -DSIBLINGS -DDEPOSE
// verify: full  pass -DT=2 -DSURVIVORS=2 -DDEPOSE
//
// Run by hand, 0 errors: -DT=3 -DDEATHS=2 -DCANCELS=0 -DNOHELP, 25.0 million states; -DT=3 -DSURVIVORS=2 -DCANCELS=0 -DNOHELP
// -DNOHEIR, 19.4 million; -DT=4 -DSTRICT -DNOHEIR -DNOHELP, 52.7 million. In the last one -DBATONFREE fails after 17.6
// million; in the smaller runs here it did not.
//
// Each of these takes one safeguard away:
//
//   NOBARRIER     no barrier before the waiter's last look
//   NOFENCE       (SYMMETRIC) no fence in unlock
//   NOBATON       who leaves does not pass its wake on
//   BATONNOBUMP   the baton wakes one without moving the epoch
//   BATONFREE     (STRICT) the baton looks for FREE only
//   NOREVOKE      unlock does not look at heir again after it has reserved
//   PLAINRES      the reservation is a plain store
//   CANCELBLIND   an heir that leaves does not look at owner
//   CANCELORDER   ... or looks at owner first, then clears heir
//   NOCLEAR       an heir that got the lock another way leaves heir set
//   WAKEONE       a hand-over wakes one of those who sleep on events
//   NOSTAMP       ... or wakes the heir, but leaves handed as it is
//   STAMPFIRST    ... or changes handed before the reservation
//   REVOKEQUIET   who has taken a reservation back wakes nobody
//   DEPOSEQUIT    (DEPOSE) who has taken a reservation back leaves, and passes nothing on
//   IGNOREHEIR    (BOUND) unlock never hands over
//   NORECOVER     recovery wakes only
//   RECORDER      recovery looks at owner first, then clears a dead heir
//   RECNORES      recovery leaves reservations alone
//   RESABND       recovery makes them ABANDONED: tells a death that was none
//   RECNOBARRIER  recovery without the barrier
//   LATELOOK      recovery acts on lifelines that it read after the barrier
//   RECNOKICK     recovery does not wake
//   SLEPTCLEARED  recovery clears slept before it moves the epoch, and may die in between
//   BUMPFIRST     recovery clears slept after it has moved the epoch
//   SLEPTLATE     (SYMMETRIC) slept is set after the read-modify-write of events
//
// verify: quick fail -DT=2 -DNOBARRIER
// verify: quick fail -DT=2 -DSYMMETRIC -DNOFENCE
// verify: quick fail -DT=2 -DSURVIVORS=2 -DSLEPTCLEARED
// verify: full  fail -DT=3 -DDEATHS=0 -DNOBATON
// verify: full  fail -DT=3 -DDEATHS=0 -DBATONNOBUMP
// verify: full  fail -DT=2 -DNOREVOKE
// verify: full  fail -DT=2 -DPLAINRES
// verify: full  fail -DT=2 -DCANCELBLIND
// verify: full  fail -DT=2 -DCANCELORDER
// verify: full  fail -DT=2 -DNOCLEAR
// verify: full  fail -DT=3 -DDEATHS=0 -DWAKEONE
// verify: quick fail -DT=2 -DDEATHS=0 -DNOSTAMP
// verify: full  fail -DT=2 -DDEATHS=0 -DSTAMPFIRST
// verify: full  fail -DT=3 -DDEATHS=0 -DREVOKEQUIET
// verify: full  fail -DT=3 -DDEATHS=0 -DDEPOSE -DDEPOSEQUIT
// verify: full  fail -DT=2 -DROUNDS=3 -DDEATHS=0 -DBOUND -DIGNOREHEIR
// verify: full  fail -DT=2 -DNORECOVER
// verify: full  fail -DT=2 -DRECORDER
// verify: full  fail -DT=2 -DRECNORES
// verify: full  fail -DT=2 -DRESABND
// verify: full  fail -DT=2 -DRECNOBARRIER
// verify: full  fail -DT=3 -DDEATHS=2 -DCANCELS=0 -DLATELOOK
// verify: full  fail -DT=2 -DRECNOKICK
// verify: full  fail -DT=3 -DDEATHS=2 -DCANCELS=0 -DBUMPFIRST
// verify: full  fail -DT=2 -DSYMMETRIC -DSLEPTLATE

#ifndef T
#define T 3                     // threads
#endif
#ifndef ROUNDS
#define ROUNDS 1                // acquisitions (or given-up attempts) of each thread
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef CANCELS
#define CANCELS 1               // waits that end by time-out, interrupt or close
#endif
#ifndef SURVIVORS
#define SURVIVORS 1             // 2: the second may die at any step of a sweep
#endif
#ifdef SYMMETRIC
#define REALLY_DEAD (died & stopped)
#define recoveryBarrier() (seen & ~stopped) == 0        /* waits for the byte of every slot it has read as dead */
#else
#define REALLY_DEAD died
#ifdef RECNOBARRIER
#define recoveryBarrier() skip
#else
#define recoveryBarrier() barrier()
#endif
#endif

// ---- words of the entry -------------------------------------------------------------------------------------------

#define FREE       1            // 0 is impossible, as in the file
#define ABANDONED  2
#define FIRST_ID   3
#define RESERVED   16           // RESERVED|id: free, but only the heir may take it

#ifdef SIBLINGS
#define PROCESS(t) ((t) < 2 -> 0 : (t) - 1)
#else
#define PROCESS(t) (t)
#endif
#define ID(t)      (FIRST_ID + PROCESS(t))
#define BIT(t)     (1 << PROCESS(t))

#define ASLEEP     1            // events: somebody may be asleep
#ifdef SLEPTBIT
#define SLEPT      2            // events: somebody has been asleep and may not have been woken yet
#define NEXT(e)    (((e) & SLEPT) | ((((e) | 3) + 1) & 63))
#else
#define NEXT(e)    ((((e) | 1) + 1) & 31)
#endif

byte owner = FREE;
byte events = 0;
bool slept = false;
byte heir = 0;

// ---- machine ------------------------------------------------------------------------------------------------------

byte stored[T];                 // a thread's plain store to owner that is still in its store buffer; 0 = none
bool sleptStored[T];            // the same for its store to slept (only where no full fence follows at once)
bool asleep[T];                 // queued on the futex of events
byte stamp[T];                  // handed, as an heir sees it: 0 no heir, 1 as remembered, 2 changed since
bool finished[T];
byte died = 0;                  // lifelines the kernel has marked, a bit for each process
byte stopped = 0;               // of these, the processes of which no thread will run another instruction
byte deaths = 0, cancels = 0;
bool due[2], sweeping[2];       // a survivor has a sweep to do; is in one
bool quits = false;             // the second survivor has died

// ---- ghosts -------------------------------------------------------------------------------------------------------

bool inside[T];                 // in the critical section
byte insiders = 0;
bool owed = false;              // an owner died inside and nobody has been told yet
#ifdef BOUND
byte claimant = 255, passed = 0;  // the thread that is heir, and the acquisitions by others since its claim
#endif

#define drain(t) \
   if :: stored[t] != 0 -> owner = stored[t]; stored[t] = 0 :: else fi; \
   if :: sleptStored[t] -> slept = true; sleptStored[t] = false :: else fi

// No thread of a process in `died` runs on. What is in its store buffer still reaches memory.
#define stop(t) \
   if :: died & BIT(t) -> \
         asleep[t] = false; stamp[t] = 0; \
         if :: inside[t] -> inside[t] = false; insiders--; owed = true :: else fi; \
         FORGET_CLAIM(t) \
      :: else fi

#ifdef BOUND
#define BECOME_CLAIMANT  claimant = me; passed = 0
#define FORGET_CLAIM(t)  if :: claimant == t -> claimant = 255; passed = 0 :: else fi
#else
#define BECOME_CLAIMANT  skip
#define FORGET_CLAIM(t)  skip
#endif

// The process-wide barrier: an interrupt on every processor. It drains all store buffers and, as a dead process has
// SIGKILL pending, no thread of such a process gets back to user mode after it.
inline barrier() {
   d_step {
      k = 0;
      do
      :: k < T -> drain(k); stop(k); k++
      :: else -> break
      od;
      stopped = died; k = 0
   }
}

#ifdef SYMMETRIC
#define sleeperBarrier()        // the releaser has the fence
#else
#define sleeperBarrier() barrier()
#endif

inline wakeAll() { d_step { k = 0; do :: k < T -> asleep[k] = false; k++ :: else -> break od; k = 0 } }
inline changeHanded() { d_step { k = 0; do :: k < T -> if :: stamp[k] == 1 -> stamp[k] = 2 :: else fi; k++ :: else -> break od; k = 0 } }
inline wakeHeir() { d_step { k = 0; do :: k < T -> if :: stamp[k] != 0 -> asleep[k] = false :: else fi; k++ :: else -> break od; k = 0 } }
inline wakeOne() {
   atomic {
      if
      :: asleep[0] -> asleep[0] = false
      :: asleep[1] -> asleep[1] = false
      :: T > 3 && asleep[T - 2] -> asleep[T - 2] = false
      :: T > 2 && asleep[T - 1] -> asleep[T - 1] = false
      :: else
      fi
   }
}

inline entered(told) {
   assert(insiders == 0); insiders++; inside[me] = true;
   assert(told == owed); owed = false;          // told exactly once, and only if somebody died inside
#ifdef BOUND
   if :: claimant == me -> claimant = 255; passed = 0
      :: claimant != me && claimant != 255 -> passed++; assert(passed <= 1)
      :: claimant == 255
   fi
#endif
}
inline left() { inside[me] = false; insiders-- }

// ---- repair of one entry, for whoever has read `seen` and then had the barrier: idempotent, takes nothing ----------

#define DEAD(id) ((id) >= FIRST_ID && (id) < RESERVED && ((seen >> ((id) - FIRST_ID)) & 1))

inline repairHeir() {
   atomic { h = heir; if :: DEAD(h) -> skip :: else -> h = 0 fi };
   if :: d_step { h != 0 -> if :: heir == h -> heir = 0 :: else fi; h = 0 } :: h == 0 fi
}
#ifdef RESABND
#define RECOVERED ABANDONED
#else
#define RECOVERED FREE          // nobody died inside
#endif
inline repairOwner() {
   atomic { o = owner; if :: DEAD(o) || o >= RESERVED -> skip :: else -> o = 0 fi };
   if
   :: o == 0
   :: d_step { o != 0 && o < RESERVED -> if :: owner == o -> owner = ABANDONED :: else fi; o = 0 }
#ifdef RECNORES
   :: d_step { o >= RESERVED -> o = 0 }
#else
   :: atomic { o >= RESERVED -> if :: DEAD(o - RESERVED) || heir != o - RESERVED -> skip :: else -> o = 0 fi };
      d_step { if :: o != 0 && owner == o -> owner = RECOVERED :: else fi; o = 0 }
#endif
   fi
}
inline repair() {
#ifdef RECORDER
   repairOwner(); repairHeir();
#else
   repairHeir(); repairOwner();
#endif
   seen = 0
}

// ---- a thread -----------------------------------------------------------------------------------------------------

#ifdef SLEPTBIT
#define REGISTER (ASLEEP | SLEPT)
#define SET_SLEPT skip
#else
#define REGISTER ASLEEP
#ifdef SLEPTLATE
#define SET_SLEPT skip
#else
#define SET_SLEPT slept = true  /* a plain store: the read-modify-write of events drains it */
#endif
#endif
#ifdef PLAINRES
#define RESERVE(value) stored[me] = value
#else
#define RESERVE(value) owner = value            /* exchange: a full fence */
#endif
#ifdef BATONFREE
#define BATON_NEEDED (owner == FREE)
#else
#define BATON_NEEDED (owner == FREE || owner == ABANDONED || owner >= RESERVED)
#endif
#define FORLORN ((owner >= RESERVED && heir != owner - RESERVED) || \
   (owner >= FIRST_ID && owner < RESERVED && ((REALLY_DEAD >> (owner - FIRST_ID)) & 1)))

inline resignHeir() {
#ifdef DEPOSE
   if :: heir == ID(me) -> heir = 0 :: else fi;
#else
   if :: heir == ID(me) -> heir = 0 :: else -> assert(died & BIT(me)) fi;
#endif
   isHeir = false
}

proctype Thread(byte me) {
   byte round = 0, e = 0, k = 0, h = 0, o = 0, seen = 0;
   bool isHeir = false;         // which of its threads is the heir is known in the process only
#ifdef STRICT
   bool isBroken = false;       // was told of a death and did not manage the repair
#endif
   {
   skip;
lock:
   atomic {
      drain(me);
      if :: owner == FREE -> owner = ID(me); entered(false); goto unlock :: else fi
   };

waiting:
#ifdef DEPOSE
   atomic { if :: isHeir && heir != ID(me) -> isHeir = false :: else fi };
#endif
   if
#ifndef NOHEIR
   :: d_step { !isHeir && heir == 0 -> heir = ID(me); isHeir = true; BECOME_CLAIMANT };   // has waited for 1 ms
      SET_SLEPT
#endif
   :: SET_SLEPT
   fi;
   d_step { if :: isHeir -> stamp[me] = 1 :: else fi };
   d_step { events = events | REGISTER; e = events };
#ifdef SLEPTLATE
   sleptStored[me] = true;
#endif
#ifndef NOBARRIER
   sleeperBarrier();
#endif
   atomic {
      if
      :: owner == FREE -> entered(false)
      :: owner == ABANDONED -> entered(true)
#ifdef STRICT
         if :: true :: isBroken = true fi
      :: owner == ABANDONED -> e = 0; stamp[me] = 0; if :: isHeir -> goto resign :: else -> goto pass fi      // refused
#endif
      :: owner == (RESERVED | ID(me)) && isHeir -> entered(false)
      :: else ->
         // A dead owner, or a reservation that nobody waits for: whoever meets it may repair it. Or it just sleeps.
         if
         :: goto sleep
#ifndef NOHELP
         :: FORLORN -> seen = REALLY_DEAD; e = 0; stamp[me] = 0; goto help
#endif
#ifdef DEPOSE
         :: owner >= RESERVED -> h = owner - RESERVED; e = 0; stamp[me] = 0; goto depose
#endif
         fi
      fi;
      drain(me); owner = ID(me); e = 0; stamp[me] = 0;
      if :: isHeir -> goto acquired :: else -> goto unlock fi
   };

#ifndef NOHELP
help:
   recoveryBarrier();
   repair();
   goto waiting;
#endif

#ifdef DEPOSE
depose:
   atomic { if :: heir == h -> heir = 0 :: else fi };
   d_step { if :: owner == (RESERVED | h) -> owner = FREE :: else fi; h = 0 };
#ifdef DEPOSEQUIT
   if :: isHeir -> goto resign :: else -> goto next fi;
#endif
   goto waiting;
#endif

sleep:
   atomic {                     // futex-wait(events, e): compares and sleeps in one step; it is a full fence, too
      drain(me);
      if :: events == e && stamp[me] != 2 -> asleep[me] = true; e = 0 :: else -> e = 0; stamp[me] = 0; goto waiting fi
   };
   atomic {
      if
      :: !asleep[me] -> skip :: asleep[me] && cancels < CANCELS -> skip
      fi;
      stamp[me] = 0;
      if
      :: !asleep[me] -> if :: goto waiting :: cancels < CANCELS -> cancels++ fi           // woken, or woken and cancelled
      :: asleep[me] && cancels < CANCELS -> asleep[me] = false; cancels++                 // timed out
      fi;
      if :: isHeir -> goto resign :: else -> goto pass fi
   };

   // Leaves without the lock.
resign:
#ifdef CANCELORDER
   atomic { if :: owner == (RESERVED | ID(me)) -> owner = FREE :: else fi };
#endif
   atomic { resignHeir(); FORGET_CLAIM(me) };
#ifndef CANCELBLIND
#ifndef CANCELORDER
   d_step { if :: owner == (RESERVED | ID(me)) -> owner = FREE :: else fi };
#endif
#endif

pass:                           // the baton
#ifndef NOBATON
   atomic { events = events | ASLEEP };
   sleeperBarrier();
   atomic { if :: BATON_NEEDED -> skip :: else -> goto next fi };
#ifndef BATONNOBUMP
   events = NEXT(events);
#endif
   wakeOne();
#endif
   goto next;

acquired:
#ifdef NOCLEAR
   isHeir = false;
#else
   atomic { resignHeir() };
#endif

unlock:
   atomic {
#ifdef IGNOREHEIR
      h = 0
#else
      h = heir;
#ifdef STRICT
      if :: isBroken -> h = 0 :: else fi;
#endif
#ifndef BOUND
      if :: h != 0 -> h = 0 :: true fi          // an heir, but the last hand-over was less than 1 ms ago
#endif
#endif
   };
   if
#ifdef STRICT
   :: d_step { h == 0 && isBroken -> left(); stored[me] = ABANDONED; owed = true; isBroken = false };
      goto look
   :: d_step { h == 0 && !isBroken -> left(); stored[me] = FREE };
#else
   :: d_step { h == 0 -> left(); stored[me] = FREE };     // a plain release store
#endif
look:
#ifdef SYMMETRIC
#ifndef NOFENCE
      atomic { drain(me) };
#endif
#endif
      atomic { if :: !(events & ASLEEP) -> goto next :: else fi };
      atomic { drain(me); if :: events & ASLEEP -> events = NEXT(events) :: else -> goto next fi };
      wakeOne()
   :: d_step { h != 0 -> left();
#ifdef STAMPFIRST
      skip };
      changeHanded();
      d_step {
#endif
      RESERVE(RESERVED | h) };
#ifndef NOREVOKE
      atomic { if :: heir == h -> goto tell :: else fi };
      atomic { drain(me); if :: owner == (RESERVED | h) -> owner = FREE :: else -> goto next fi };
#ifdef REVOKEQUIET
      goto next;
#else
      goto look;
#endif
#endif
tell:
#ifdef WAKEONE
      atomic { drain(me); events = NEXT(events) };
      wakeOne()
#else
      atomic { drain(me) };
#ifndef NOSTAMP
#ifndef STAMPFIRST
      changeHanded();
#endif
#endif
      wakeHeir()
#endif
   fi;

next:
   atomic {
      round++; h = 0; e = 0;
      if :: round < ROUNDS -> goto lock :: else -> drain(me); finished[me] = true; round = 0 fi
   }
   } unless { stopped & BIT(me) };
   atomic { round = 0; e = 0; k = 0; h = 0; o = 0; seen = 0; isHeir = false; stamp[me] = 0 }
}

// ---- survivors ----------------------------------------------------------------------------------------------------

proctype Survivor(byte who) {
   byte k = 0, h = 0, o = 0, e = 0, seen = 0;
   {
end:
   do
   :: d_step { due[who] -> due[who] = false; sweeping[who] = true; seen = died };
      recoveryBarrier();
#ifdef LATELOOK
      seen = died;
#endif
#ifndef NORECOVER
      repair();
#endif
#ifndef RECNOKICK
#ifdef SLEPTBIT
      if
      :: events & SLEPT ->
         d_step { events = NEXT(events); e = events };
         wakeAll();
         d_step { if :: events == e -> events = e & ~SLEPT :: else fi; e = 0 }
      :: else
      fi;
#else
      if
      :: slept ->
#ifdef SLEPTCLEARED
         slept = false;
#endif
         events = NEXT(events);
         wakeAll();
#ifdef BUMPFIRST
         slept = false
#endif
      :: else
      fi;
#endif
#endif
      d_step { sweeping[who] = false; seen = 0 }
   od
   } unless { who == 1 && quits };
   d_step { sweeping[1] = false; due[1] = false; due[0] = true; k = 0; h = 0; o = 0; e = 0; seen = 0 }
}

// ---- kernel and fate ----------------------------------------------------------------------------------------------

active proctype Hardware() {
end:
   do
   :: d_step { stored[0] != 0 || sleptStored[0] -> drain(0) }
   :: d_step { stored[1] != 0 || sleptStored[1] -> drain(1) }
   :: d_step { T > 3 && (stored[T - 2] != 0 || sleptStored[T - 2]) -> drain(T - 2) }
   :: d_step { T > 2 && (stored[T - 1] != 0 || sleptStored[T - 1]) -> drain(T - 1) }
   od
}

#define CAN_DIE(t) (deaths < DEATHS && !(died & BIT(t)) && !finished[t])
inline die(t) { died = died | BIT(t); deaths++; due[0] = true; due[1] = SURVIVORS > 1 && !quits }

active proctype Fate() {
   byte k = 0;
end:
   do
   :: d_step { CAN_DIE(0) -> die(0) }
   :: d_step { CAN_DIE(1) -> die(1) }
   :: d_step { T > 3 && CAN_DIE(T - 2) -> die(T - 2) }
   :: d_step { T > 2 && CAN_DIE(T - 1) -> die(T - 1) }
   :: d_step { SURVIVORS > 1 && !quits && (sweeping[1] || due[1]) -> quits = true }
#ifdef SYMMETRIC
   :: d_step { died != stopped -> k = 0; do :: k < T -> if :: died & BIT(k) -> drain(k) :: else fi; stop(k); k++ :: else -> break od;
               stopped = died; k = 0 }
#endif
   od
}

// Whenever nothing but a death or a time-out can move, the state must be sound: no unspent budget hides a lost wake.
#define RESTS(t) ((finished[t] || (stopped & BIT(t)) || asleep[t]) && stored[t] == 0 && !sleptStored[t])
#define QUIET (RESTS(0) && RESTS(1) && RESTS(T - 2) && RESTS(T - 1) && \
   !due[0] && !due[1] && !sweeping[0] && !sweeping[1] && died == stopped)

active proctype Check() {
end:
   do
   :: d_step { QUIET ->
         assert(!asleep[0] && !asleep[1] && !asleep[T - 2] && !asleep[T - 1]);
         assert(insiders == 0);
         assert(heir == 0);
         assert(owner == FREE || owner == ABANDONED);
         assert(owed == (owner == ABANDONED)) }
   od
}

init {
   byte i = 0;
   atomic {
      do :: i < T -> run Thread(i); i++ :: else -> break od;
      run Survivor(0);
      if :: SURVIVORS > 1 -> run Survivor(1) :: else fi;
      i = 0
   }
}
