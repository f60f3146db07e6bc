// SPDX-License-Identifier: Apache-2.0
//
// Creating, opening and leaving a lock file: who creates it, and how an opener knows that nobody is there.
//
// create  under an advisory lock beside the target: look again; O_TMPFILE; reserve and write all; fsync; linkat (fails
//         if the name exists). Then open like everybody else. A death leaves nothing: the kernel drops lock and file.
// open    byte A exclusively (waits); byte U exclusively, without waiting:
//           granted  nobody is attached, whatever the slots say. Check the file; fsync the DIRECTORY; an owner that is a
//                    participant -> ABANDONED; free every slot; convert U to shared
//           refused  U shared; reset nothing
//         sweep the slots that are marked dead; claim a slot; release A
// leave   all use has ended; A; free the slot; release U; release A
//
// A and U are locks of an open file description: they go when the last thread of the process is gone, never before.
// Converting such a lock replaces it in one step (the kernel does it under one spin lock); flock(2) would release first.
//
// A death comes in two steps: the kernel marks the slot of the dying process (its guardian takes no step any more, other
// threads may still run until a barrier), later it drops the locks. A power loss takes every process at once, marks
// nothing, loses what was not synced, and may or may not lose the last store to owner.
//
// Process 0 comes when all others have finished or are gone, and opens the file: it must find nobody attached, and the
// notice of a death inside exactly if nobody has been told.
//
// Found sound: no two reset at once, nobody is attached or attaches during a reset, a death in the middle of one is made
// good by the next opener, no half-written file is ever opened, at most one creator reserves space, what has been used
// has a durable name.
//
// That an opener's sweep repairs what it must is checked in participants.pml; here, that sweeps and resets agree.
//
// Not modeled: time-outs on A, a file replaced or deleted by somebody else.
//
// verify: quick pass -DN=2
// verify: full  pass -DN=2 -DDEATHS=2 -DPOWER=0
// verify: full  pass -DN=3 -DDEATHS=2 -DPOWER=0
//
// Run by hand: -DN=3 (a death and a power loss), 44.7 million states, 0 errors.
//
// As A is held over the whole opening, a conversion in two steps would do; that no two creators reserve the space is a
// matter of economy, that only one publishes is not:
//
// verify: full  pass -DSPLIT_CONVERSION
// verify: full  pass -DNO_LOCK_BESIDE -DMANY_RESERVE
//
// Each of these takes one safeguard away:
//
//   IN_PLACE              the name exists before the file is written
//   NO_FSYNC              the file is not synced before it is published
//   DIRECTORY_BY_CREATOR  only the creator syncs the directory, after linkat: another may have used the file by then
//   NO_LOCK_BESIDE        creators do not exclude each other: each reserves the space
//   RENAME                rename instead of linkat: replaces another creator's file
//   NO_SECOND_LOOK        the winner of the lock beside does not look for the name again
//   NO_A                  no byte A: an opener that was refused U by a reset waits for it; if the one who resets dies,
//                         it goes on in a file that is half reset
//   BELIEVE_SLOTS         resets if no slot looks alive, instead of asking for U
//   RESET_ALWAYS          resets without having U exclusively
//   RESET_LATE            converts U and releases A first, then resets
//   FORGET                the reset frees owners instead of abandoning them
//   CRY_WOLF              the reset abandons free locks, too
//   LEAVE_EARLY           U is released while a thread is still inside
//   CLOSE_DROPS           U is a lock that any close in the process drops, as POSIX locks are
//
// verify: quick fail -DIN_PLACE
// verify: full  fail -DNO_FSYNC
// verify: full  fail -DDIRECTORY_BY_CREATOR
// verify: full  fail -DNO_LOCK_BESIDE
// verify: full  fail -DRENAME -DNO_LOCK_BESIDE -DMANY_RESERVE
// verify: full  fail -DRENAME -DNO_SECOND_LOOK
// verify: quick fail -DNO_A
// verify: full  fail -DBELIEVE_SLOTS
// verify: full  fail -DRESET_ALWAYS
// verify: full  fail -DRESET_LATE
// verify: quick fail -DFORGET
// verify: full  fail -DCRY_WOLF
// verify: full  fail -DLEAVE_EARLY
// verify: full  fail -DCLOSE_DROPS

#ifndef N
#define N 2                     // processes, beside process 0
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef POWER
#define POWER 1                 // power losses
#endif

// ---- the file -----------------------------------------------------------------------------------------------------

#define FREE       1
#define ABANDONED  2
#define ID(p)      (3 + (p))    // every process attaches once: the generation is in it
#define DIED       128
#define SLOTS      (N + 1)

byte path = 0;                  // the file that the name stands for: 1 + its creator; 0 = none
byte durablePath = 0;           // the same on disk
bool written[N + 2], durable[N + 2];
byte owner = FREE;
byte slot[SLOTS];               // 0 free, an id, or DIED | id

// ---- the kernel ---------------------------------------------------------------------------------------------------

byte beside = 0;                // who has the advisory lock beside the target: 1 + process
byte lockA = 0;                 // 1 + process
byte exclusiveU = 0;            // 1 + process
byte sharedU = 0;               // a bit for each process

#define RUNS     0
#define MARKED   1              // the guardian is dead and the slot marked; other threads may still run
#define STOPPED  2              // nothing runs any more
#define VANISHED 3              // and its locks are dropped
byte life[N + 1];
bool begun[N + 1], finished[N + 1];
byte deaths = 0, losses = 0, drops = 0;

// ---- ghosts -------------------------------------------------------------------------------------------------------

bool attached[N + 1];           // from having U until it gives U back
bool resets[N + 1];
bool inside[N + 1];
bool owed = false;              // somebody died inside and nobody has been told
bool used = false;              // somebody has been attached to this file
byte reserving = 0;             // processes that have reserved the space of a file without a name
bool reserves[N + 1];

inline halt(p) {
   if :: inside[p] -> inside[p] = false; owed = true :: else fi;
   attached[p] = false; resets[p] = false
}
inline barrier() {
   d_step {
      k = 0;
      do :: k <= N -> if :: life[k] == MARKED -> life[k] = STOPPED; halt(k) :: else fi; k++ :: else -> break od;
      k = 0
   }
}
inline vanish(p) {
   halt(p);
   if :: reserves[p] -> reserves[p] = false; reserving-- :: else fi;
   if :: beside == p + 1 -> beside = 0 :: else fi;
   if :: lockA == p + 1 -> lockA = 0 :: else fi;
   if :: exclusiveU == p + 1 -> exclusiveU = 0 :: else fi;
   sharedU = sharedU & ~(1 << p);
   life[p] = VANISHED
}
inline nobodyElse() {
   d_step {
      k = 0;
      do
      :: k <= N -> assert(k == me || (!attached[k] && !resets[k] && !inside[k])); k++
      :: else -> break
      od;
      k = 0
   }
}

#ifdef NO_A
#define TAKE_A    skip
#define RELEASE_A skip
#else
#define TAKE_A    lockA == 0 -> lockA = me + 1
#define RELEASE_A lockA = 0
#endif
#define RELEASE_U attached[me] = false; sharedU = sharedU & ~(1 << me)

#define GONE(p)   (life[p] == VANISHED)
#define OVER(p)   (finished[p] || GONE(p))

proctype Process(byte me) {
   byte k = 0, o = 0, s = 0;

   // ---- create and open, by the guardian
   {
   atomic { begun[me] = true };
look:
   atomic { if :: path != 0 -> goto open :: else fi };
#ifndef NO_LOCK_BESIDE
   atomic { beside == 0 -> beside = me + 1 };
#ifndef NO_SECOND_LOOK
   atomic { if :: path != 0 -> beside = 0; goto open :: else fi };
#endif
#endif
   d_step { reserving++; reserves[me] = true;
#ifndef MANY_RESERVE
      assert(reserving == 1);
#endif
#ifdef IN_PLACE
      if :: path == 0 -> path = me + 1 :: else fi
#endif
   };
   written[me + 1] = true;
#ifndef NO_FSYNC
   durable[me + 1] = true;
#endif
   atomic {                     // linkat
#ifdef RENAME
      assert(path == 0); path = me + 1;
#else
      if :: path == 0 -> path = me + 1 :: else fi;
#endif
      reserves[me] = false; reserving--
   };
#ifdef DIRECTORY_BY_CREATOR
   durablePath = path;
#endif
   atomic { if :: beside == me + 1 -> beside = 0 :: else fi };

open:
   atomic { TAKE_A };
   atomic {
      assert(path != 0);
#ifdef RESET_ALWAYS
      if :: sharedU != 0 -> sharedU = sharedU | (1 << me); attached[me] = true; goto reset :: else fi;
#endif
#ifdef BELIEVE_SLOTS
      k = 0;
      do :: k < SLOTS -> if :: slot[k] != 0 && !(slot[k] & DIED) -> break :: else -> k++ fi :: else -> break od;
      if :: k == SLOTS -> k = 0; exclusiveU = me + 1; goto reset :: else -> k = 0 fi
#else
      if :: exclusiveU == 0 && sharedU == 0 -> exclusiveU = me + 1; goto reset :: else fi
#endif
   };
   atomic { exclusiveU == 0 -> sharedU = sharedU | (1 << me); attached[me] = true; used = true };
   assert(me != 0);             // nobody else is there
   goto sweep;

reset:
   atomic { resets[me] = true; assert(written[path]) };
#ifdef RESET_LATE
   d_step { exclusiveU = 0; sharedU = sharedU | (1 << me); attached[me] = true; used = true };
   atomic { RELEASE_A };
#endif
#ifndef DIRECTORY_BY_CREATOR
   durablePath = path;
#endif
   nobodyElse();
   o = owner;
   atomic {
#ifdef FORGET
      if :: o >= ID(0) -> owner = FREE :: else fi;
#else
#ifdef CRY_WOLF
      owner = ABANDONED;
#else
      if :: o >= ID(0) -> owner = ABANDONED :: else fi;
#endif
#endif
      o = 0; s = 0
   };
   do
   :: atomic { s < SLOTS -> slot[s] = 0; s++ }
   :: atomic { s == SLOTS -> s = 0; break }
   od;
   nobodyElse();
#ifndef RESET_LATE
#ifdef SPLIT_CONVERSION
   exclusiveU = 0;
   atomic { exclusiveU == 0 -> sharedU = sharedU | (1 << me); attached[me] = true; used = true; resets[me] = false };
#else
   d_step { exclusiveU = 0; sharedU = sharedU | (1 << me); attached[me] = true; used = true; resets[me] = false };
#endif
#endif
   atomic { resets[me] = false };

sweep:
   do
   :: atomic { s < SLOTS && !(slot[s] & DIED) -> s++ }
   :: atomic { s < SLOTS && (slot[s] & DIED) -> o = slot[s] };
      barrier();
      d_step { if :: owner == (o & ~DIED) -> owner = ABANDONED :: else fi };
      d_step { if :: slot[s] == o -> slot[s] = 0 :: else fi; s++; o = 0 }
   :: atomic { s == SLOTS -> s = 0; break }
   od;
claim:
   atomic { if :: s < SLOTS && slot[s] == 0 -> slot[s] = ID(me) :: else -> assert(s < SLOTS); s++; goto claim fi };
   atomic { RELEASE_A }
   } unless { life[me] >= MARKED };
   if :: life[me] >= MARKED -> goto end :: else fi;

   // ---- use, by any thread
   {
   assert(slot[s] == ID(me) || slot[s] == (DIED | ID(me)));
   atomic {
      if
      :: owner == FREE -> assert(!owed)
      :: owner == ABANDONED -> assert(owed); owed = false
      :: else -> assert(me != 0); goto leave
      fi;
      d_step { k = 0; do :: k <= N -> assert(!inside[k]); k++ :: else -> break od; k = 0 };
      inside[me] = true; owner = ID(me)
   };
#ifdef LEAVE_EARLY
   d_step { slot[s] = 0; RELEASE_U };
#endif
   atomic { assert(owner == ID(me)); owner = FREE; inside[me] = false }
   } unless { life[me] >= STOPPED };

leave:
   if :: life[me] >= MARKED -> goto end :: else fi;
   // ---- leave, by the guardian
   {
   atomic { TAKE_A };
#ifndef LEAVE_EARLY
   assert(slot[s] == ID(me));
   slot[s] = 0;
   d_step { RELEASE_U };
#endif
   d_step { RELEASE_A; finished[me] = true }
   } unless { life[me] >= MARKED };
end:
   atomic { k = 0; o = 0; s = 0 }
}

#define CAN_DIE(p) (deaths < DEATHS && begun[p] && !finished[p] && life[p] == RUNS)
inline die(p) {
   deaths++; life[p] = MARKED; k = 0;
   do :: k < SLOTS -> if :: slot[k] == ID(p) -> slot[k] = DIED | ID(p) :: else fi; k++ :: else -> break od;
   k = 0
}

active proctype Fate() {
   byte k = 0;
end:
   do
   :: d_step { CAN_DIE(1) -> die(1) }
   :: d_step { CAN_DIE(2) -> die(2) }
   :: d_step { N > 2 && CAN_DIE(N) -> die(N) }
   :: d_step { life[1] == MARKED || life[1] == STOPPED -> vanish(1) }
   :: d_step { life[2] == MARKED || life[2] == STOPPED -> vanish(2) }
   :: d_step { N > 2 && (life[N] == MARKED || life[N] == STOPPED) -> vanish(N) }
#ifdef CLOSE_DROPS
   :: d_step { drops == 0 && (sharedU & 2) -> drops = 1; sharedU = sharedU & ~2 }
#endif
   :: atomic { losses < POWER && !begun[0] && (begun[1] || begun[2] || begun[N]) ->
         losses++; k = 1;
         do
         :: k <= N -> if :: begun[k] && !OVER(k) -> vanish(k) :: else fi; k++
         :: else -> break
         od;
         if
         :: path != 0 && durablePath != path ->          // the name may be lost, and with it the file
            if
            :: true
            :: assert(!used); path = 0; owner = FREE; owed = false; k = 0;
               do :: k < SLOTS -> slot[k] = 0; k++ :: else -> break od
            fi
         :: else
         fi;
         if :: path != 0 && !durable[path] -> if :: true :: written[path] = false fi :: else fi;
         if
         :: owner >= ID(0) -> if :: true :: owner = FREE; owed = false fi       // the last store may be lost
         :: else
         fi;
         k = 0
      }
   od
}

init {
   byte i = 1;
   atomic { do :: i <= N -> run Process(i); i++ :: else -> break od; i = 0 };
   atomic { OVER(1) && OVER(2) && OVER(N) -> assert(exclusiveU == 0 && sharedU == 0 && lockA == 0 && beside == 0); run Process(0) }
}
