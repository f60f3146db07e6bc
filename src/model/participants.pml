// SPDX-License-Identifier: Apache-2.0
//
// Participants: slots that are claimed, left, marked dead, recovered and used again; and who hears of a death.
//
// PART 1, slots
//
// cell     of a slot: ONE 64-bit word {generation, lifeline}; every change by a program is a CAS of the whole word. The
//          lifeline is 0, or a tid, or the tid with DIED, which only the kernel sets. All tids are equal here, the worst case.
// byte     the slot's lock in the file; taken without waiting, dropped by the kernel when the process is gone
// list     what the robust list of the process's guardian points at: there the kernel marks a tid of its own
// id       generation and slot: what owner words and count cells hold
//
// attach   byte; list -> slot; CAS (g,0) -> (g,tid)
// detach   CAS (g,tid) -> (g+1,0); list empty; byte
// recover  reads which cells show DIED, with their generation; process-wide barrier; owner words CAS id->ABANDONED;
//          count cells CAS {id,n} -> {id,0}; last of all CAS (g,DIED) -> (g+1,0). By anybody, any number at a time: whoever
//          attaches, and two bystanders; the second of these may die at any step.
// proof    -DUNMARKED: a mark that never came. A live cell whose byte is free, read in that order, is a dead
//          participant: CAS (g,tid) -> (g,DIED), then as above.
//
// `killed`: the guardian is dead. Other threads may run until a barrier (`gone`), or until the kernel drops the byte.
//
// PART 2, -DGUARDIANS: does every death reach a survivor?
//
// A guardian scans all cells, sweeps what is marked, then sleeps in futex_waitv on all lifelines, with the values it
// scanned, and on its own control word. The kernel marks and wakes ONE waiter of that lifeline, who may itself be dying, or
// be told to close at the same time (the call returns one index). Who is woken wakes the others before anything else; who
// is told to close scans once more before it leaves. -DSTOPS=1: one is stopped for ever (SIGSTOP, a frozen cgroup)
// with the only wake in its hands, so nobody sleeps for longer than the time-out.
//
// Budgets of deaths, stops and closings may be given up at any time, so that no unspent one hides a stuck state.
//
// Not modeled: memory weaker than sequentially consistent; wrap of a generation.
//
// verify: quick pass -DN=2 -DKILLS=1
// verify: full  pass -DN=2
// verify: full  pass -DN=3 -DBYSTANDERS=1
// verify: full  pass -DN=3 -DKILLS=1
// verify: full  pass -DN=2 -DUNMARKED
// verify: quick pass -DGUARDIANS -DN=2 -DKILLS=1
// verify: full  pass -DGUARDIANS -DKILLS=1 -DNO_TIMEOUT
// verify: full  pass -DGUARDIANS -DCLOSES=0
// verify: full  pass -DGUARDIANS -DKILLS=1 -DSTOPS=1 -DCLOSES=0 pan:"-E"
//
// Each of these takes one safeguard away:
//
//   NO_BYTE         no byte lock: a dying process marks a slot that another has just claimed
//   SPLIT_CLAIM     generation and lifeline are two words; the claimer advances the generation after the claim
//   SPLIT_FREE      two words; who frees advances the generation, then clears the lifeline
//   FREE_FIRST      recovery frees the slot, then sweeps
//   FREE_MIDWAY     recovery frees the slot between owner words and count cells
//   ZERO            recovery stores 0 in the count cell
//   NO_BARRIER      recovery without the barrier
//   NOT_LISTED      recovery repairs all that is not alive in its reading, and so newcomers
//   LIST_LATE       attach claims, then points the list at the slot
//   LIST_EARLY      detach empties the list, then frees the slot
//   BYTE_LATE       (UNMARKED) attach takes the byte after the claim
//   BYTE_EARLY      (UNMARKED) detach drops the byte, then frees the slot
//   NO_TIMEOUT      (GUARDIANS) sleeps without a time-out: fails if one is stopped, and only then
//   NO_EXPECT       (GUARDIANS) sleeps without comparing what it scanned
//   CONTROL_BLIND   (GUARDIANS) a guardian that is told to close leaves without another scan
//   CONTROL_RACE    (GUARDIANS) the control word is not compared when the sleep begins
//
// verify: quick fail -DNO_BYTE
// verify: full  fail -DSPLIT_CLAIM
// verify: full  fail -DSPLIT_FREE
// verify: full  fail -DFREE_FIRST
// verify: full  fail -DFREE_MIDWAY
// verify: full  fail -DZERO
// verify: full  fail -DNO_BARRIER
// verify: full  fail -DNOT_LISTED
// verify: quick fail -DLIST_LATE
// verify: full  fail -DLIST_EARLY
// verify: full  fail -DUNMARKED -DBYTE_LATE
// verify: full  fail -DUNMARKED -DBYTE_EARLY
// verify: quick fail -DGUARDIANS -DNO_TIMEOUT -DKILLS=1 -DSTOPS=1 -DCLOSES=0 pan:"-E"
// verify: full  fail -DGUARDIANS -DNO_TIMEOUT -DKILLS=1 -DCLOSES=0 -DNO_EXPECT
// verify: full  fail -DGUARDIANS -DNO_TIMEOUT -DKILLS=1 -DCONTROL_BLIND
// verify: full  fail -DGUARDIANS -DNO_TIMEOUT -DKILLS=1 -DCONTROL_RACE

#ifndef N
#define N 3
#endif
#ifndef KILLS
#define KILLS 2
#endif

#define TID  1
#define DIED 2

bool killed[N + 1];
byte kills = 0;

#ifndef GUARDIANS
// ===================================================== PART 1: slots ================================================

#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef BYSTANDERS
#define BYSTANDERS 2
#endif

#define FREE       1
#define ABANDONED  2
#define ID(s, g)   (((g) << 2) | ((s) << 1) | 1)        // > ABANDONED as g >= 1
#define SLOT(id)   (((id) >> 1) & 1)

byte generation[SLOTS], lifeline[SLOTS];       // together the cell
byte owner = FREE;
byte countGeneration[SLOTS], count[SLOTS];     // together the slot's count cell {id, count}
byte byteLock[SLOTS];                          // 0 or the process that has it
byte list[N + 1];                              // 0 = empty, or 1 + slot
bool gone[N + 1], finished[N + 1], byteDropped[N + 1];
bool secondDied = false;
#ifdef UNMARKED
bool lost = false;                             // one mark has not come
#endif

byte holder[SLOTS];                            // ghosts: whose slot it is; who is inside; an untold death inside
bool inside[N + 1], owed = false;
byte insiders = 0;

inline halt(p) {
   gone[p] = true;
   if :: inside[p] -> inside[p] = false; insiders--; owed = true :: else fi
}
inline barrier() {
   d_step {
      k = 1;
      do :: k <= N -> if :: killed[k] && !gone[k] -> halt(k) :: else fi; k++ :: else -> break od;
      k = 0
   }
}

inline freeSlot() {
#ifdef SPLIT_CLAIM
   d_step { if :: lifeline[x] == DIED -> lifeline[x] = 0; holder[x] = 0 :: else fi }
#else
#ifdef SPLIT_FREE
   d_step { if :: generation[x] == g -> generation[x] = g + 1 :: else -> g = 0 fi };
   d_step { if :: g != 0 && lifeline[x] == DIED -> lifeline[x] = 0; holder[x] = 0 :: else fi }
#else
   d_step { if :: lifeline[x] == DIED && generation[x] == g -> lifeline[x] = 0; generation[x] = g + 1; holder[x] = 0 :: else fi }
#endif
#endif
}

// Recovery of the participant {x, g} that was read as dead.
inline recover() {
#ifndef NO_BARRIER
   barrier();
#endif
#ifdef FREE_FIRST
   freeSlot();
#endif
#ifdef NOT_LISTED
   o = owner;
   d_step { if :: o > ABANDONED && o != ID(x, g) && SLOT(o) == x && owner == o -> owner = ABANDONED :: else fi; o = 0 };
#endif
   d_step { if :: owner == ID(x, g) -> owner = ABANDONED :: else fi };
#ifdef FREE_MIDWAY
   freeSlot();
#endif
#ifdef ZERO
   count[x] = 0;
#else
   d_step { if :: countGeneration[x] == g -> count[x] = 0 :: else fi };
#endif
#ifndef FREE_FIRST
#ifndef FREE_MIDWAY
   freeSlot();
#endif
#endif
   g = 0
}

#ifdef NO_BYTE
#define BYTE_FREE(s) true
#define TAKE_BYTE    skip
#define DROP_BYTE    skip
#else
#define BYTE_FREE(s) (byteLock[s] == 0)
#define TAKE_BYTE    byteLock[s] = me
#define DROP_BYTE    if :: byteLock[s] == me -> byteLock[s] = 0 :: else fi
#endif

proctype Process(byte me) {
   byte s = 0, x = 0, g = 0, k = 0, o = 0, mine = 0;
   bool got = false;

   // ---- attach, by the guardian
   {
   skip;
find:
   if
   :: atomic { lifeline[0] == 0 && BYTE_FREE(0) -> s = 0;
#ifndef BYTE_LATE
         TAKE_BYTE
#endif
      }
   :: atomic { SLOTS > 1 && lifeline[SLOTS - 1] == 0 && BYTE_FREE(SLOTS - 1) -> s = SLOTS - 1;
#ifndef BYTE_LATE
         TAKE_BYTE
#endif
      }
   :: d_step { lifeline[0] == DIED -> x = 0; g = generation[0] }; recover(); goto find
   :: d_step { SLOTS > 1 && lifeline[SLOTS - 1] == DIED -> x = SLOTS - 1; g = generation[SLOTS - 1] }; recover(); goto find
   fi;
#ifndef LIST_LATE
   list[me] = s + 1;
#endif
   mine = generation[s];
#ifdef SPLIT_CLAIM
   d_step { if :: lifeline[s] == 0 -> lifeline[s] = TID; holder[s] = me; got = true :: else fi };
#else
#ifdef SPLIT_FREE
   d_step { if :: lifeline[s] == 0 -> lifeline[s] = TID; holder[s] = me; got = true :: else fi };
#else
   d_step { if :: lifeline[s] == 0 && generation[s] == mine -> lifeline[s] = TID; holder[s] = me; got = true :: else fi };
#endif
#endif
   if :: got :: !got -> list[me] = 0; d_step { DROP_BYTE; s = 0; mine = 0 }; goto find fi;
#ifdef BYTE_LATE
   atomic { BYTE_FREE(s) -> TAKE_BYTE };
#endif
#ifdef LIST_LATE
   list[me] = s + 1;
#endif
#ifdef SPLIT_CLAIM
   d_step { generation[s] = generation[s] + 1; mine = generation[s] };
#endif
#ifdef SPLIT_FREE
   mine = generation[s];
#endif
   atomic { got = false; assert(owner != ID(s, mine)); assert(!(countGeneration[s] == mine && count[s] > 0)) }
   } unless { killed[me] };
   if :: killed[me] -> goto over :: else fi;

   // ---- use, by any thread
   {
   atomic { countGeneration[s] = mine; count[s] = 1 };           // CAS {any id, 0} -> {mine, 1}
   atomic {
      if
      :: owner == FREE -> assert(!owed)
      :: owner == ABANDONED -> assert(owed); owed = false
      fi;
      owner = ID(s, mine); assert(insiders == 0); insiders++; inside[me] = true
   };
   atomic { assert(owner == ID(s, mine)); owner = FREE; insiders--; inside[me] = false };
   atomic { assert(countGeneration[s] == mine && count[s] == 1); count[s] = 0 }
   } unless { gone[me] };
   if :: killed[me] -> goto over :: else fi;

   // ---- detach, by the guardian
   {
#ifdef LIST_EARLY
   list[me] = 0;
#endif
#ifdef BYTE_EARLY
   d_step { DROP_BYTE };
#endif
#ifdef SPLIT_FREE
   generation[s] = generation[s] + 1;
#endif
   d_step {
      assert(lifeline[s] == TID && holder[s] == me); lifeline[s] = 0; holder[s] = 0;
#ifndef SPLIT_CLAIM
#ifndef SPLIT_FREE
      generation[s] = mine + 1
#endif
#endif
   };
   list[me] = 0;
   d_step { DROP_BYTE; finished[me] = true }
   } unless { killed[me] };
over:
   atomic { s = 0; x = 0; g = 0; k = 0; o = 0; mine = 0; got = false }
}

// A participant in a slot of its own that stays, or not: the second may die anywhere.
proctype Bystander(byte who) {
   byte x = 0, g = 0, k = 0, o = 0;
   {
end:
   do
   :: d_step { lifeline[0] == DIED -> x = 0; g = generation[0] }; recover()
   :: d_step { SLOTS > 1 && lifeline[SLOTS - 1] == DIED -> x = SLOTS - 1; g = generation[SLOTS - 1] }; recover()
#ifdef UNMARKED
   :: d_step { who == 1 && lost && lifeline[0] == TID -> x = 0; g = generation[0] };
      atomic {
         if
         :: byteLock[x] == 0 -> skip
         :: else -> g = 0; goto end
         fi
      };
      d_step { if :: generation[x] == g && lifeline[x] == TID -> assert(killed[holder[x]]); lifeline[x] = DIED :: else fi; g = 0 }
#endif
   od
   } unless { who == 2 && secondDied };
   atomic { x = 0; g = 0; k = 0; o = 0 }
}

// The kernel: kills the guardian, walks its list, and later drops the byte, when no thread is left.
inline kill(p) {
   kills++; killed[p] = true;
   if
   :: list[p] != 0 && lifeline[list[p] - 1] == TID -> assert(holder[list[p] - 1] == p); lifeline[list[p] - 1] = DIED
   :: else
   fi
}
#ifdef UNMARKED
inline killUnmarked(p) { kills++; killed[p] = true; lost = true }
#define CAN_LOSE(p) (CAN_KILL(p) && !lost)
#endif
inline dropByte(p) {
   byteDropped[p] = true;
   if :: !gone[p] -> halt(p) :: else fi;
   if :: byteLock[0] == p -> byteLock[0] = 0 :: else fi;
   if :: byteLock[SLOTS - 1] == p -> byteLock[SLOTS - 1] = 0 :: else fi
}
#define CAN_KILL(p) (kills < KILLS && !killed[p] && !finished[p])
#define CAN_DROP(p) (killed[p] && !byteDropped[p])

active proctype Fate() {
end:
   do
   :: d_step { CAN_KILL(1) -> kill(1) }
   :: d_step { CAN_KILL(2) -> kill(2) }
   :: d_step { N > 2 && CAN_KILL(N) -> kill(N) }
#ifdef UNMARKED
   :: d_step { CAN_LOSE(1) -> killUnmarked(1) }
   :: d_step { CAN_LOSE(2) -> killUnmarked(2) }
   :: d_step { N > 2 && CAN_LOSE(N) -> killUnmarked(N) }
#endif
   :: d_step { CAN_DROP(1) -> dropByte(1) }
   :: d_step { CAN_DROP(2) -> dropByte(2) }
   :: d_step { N > 2 && CAN_DROP(N) -> dropByte(N) }
   :: d_step { kills < KILLS -> kills = KILLS }
   :: d_step { BYSTANDERS > 1 && !secondDied -> secondDied = true }
   od
}

active proctype Check() {
   byte k = 0;
   timeout -> d_step {
      k = 1;
      do :: k <= N -> assert(finished[k] || killed[k]); k++ :: else -> break od;
      k = 0;
      do :: k < SLOTS -> assert(lifeline[k] == 0 && count[k] == 0 && byteLock[k] == 0); k++ :: else -> break od;
      assert(insiders == 0);
      assert(owner == FREE || owner == ABANDONED);
      assert(owed == (owner == ABANDONED))
   }
}

init {
   byte i = 0;
   atomic {
      do :: i < SLOTS -> generation[i] = 1; i++ :: else -> break od;
      i = 1;
      do :: i <= N -> run Process(i); i++ :: else -> break od;
      i = 1;
      do :: i <= BYSTANDERS -> run Bystander(i); i++ :: else -> break od;
      i = 0
   }
}

#else
// ==================================================== PART 2: guardians =============================================

#ifndef STOPS
#define STOPS 0
#endif
#ifndef CLOSES
#define CLOSES 1
#endif

typedef Queue { bool on[N + 1] };
Queue waits[N + 1];                            // waits[i].on[j]: guardian i sleeps on lifeline j; on[0]: on its control word
byte lifeline[N + 1];
bool woken[N + 1], control[N + 1], closed[N + 1], stopped[N + 1];
byte by[N + 1];                                // the index its futex_waitv returned: 0 control word (or time-out), else a lifeline
byte stops = 0, closes = 0;

#define SWEPT 0

inline unqueue(sleeper) { m = 0; do :: m <= N -> waits[sleeper].on[m] = false; m++ :: else -> break od; m = 0 }
// A sleeper that has been woken by one word can consume the wake of another before it runs; it is told of one only.
inline wake(sleeper, word) {
   waits[sleeper].on[word] = false;
   if :: !woken[sleeper] -> woken[sleeper] = true; by[sleeper] = word :: else fi
}
inline wakeOthers(j) {
   d_step {
      n = 1;
      do
      :: n <= N -> if :: waits[n].on[j] -> wake(n, j) :: else fi; n++
      :: else -> break
      od;
      n = 0
   }
}

proctype Guardian(byte me) provided (!stopped[me]) {
   byte j = 0, m = 0, n = 0;
   byte seen[N + 1];
   {
   skip;
scan:
   atomic { j = 1; woken[me] = false; by[me] = 0 };
   do
   :: atomic { j > N -> j = 0; break }
   :: atomic { j <= N && j == me -> j++ }
   :: atomic { j <= N && j != me -> seen[j] = lifeline[j]; if :: seen[j] == DIED -> skip :: else -> j++ fi };
      if
      :: j > N || seen[j] != DIED
      :: j <= N && seen[j] == DIED ->          // the sweep, and at its end:
         d_step { if :: lifeline[j] == DIED -> lifeline[j] = SWEPT :: else fi; seen[j] = SWEPT; j++ }
      fi
   od;
   atomic { if :: seen[0] == 1 -> goto leave :: else fi };
#ifdef CONTROL_RACE
   atomic { waits[me].on[0] = true; j = 1 };
#else
   // The control word is compared first, then word by word.
   atomic { if :: control[me] -> seen[0] = 1; goto scan :: else -> waits[me].on[0] = true; j = 1 fi };
#endif
   do
   :: atomic { j > N -> j = 0; break }
   :: atomic { j <= N && j == me -> j++ }
   :: atomic { j <= N && j != me ->
#ifdef NO_EXPECT
         waits[me].on[j] = true; j++
#else
         if :: woken[me] -> j = 0; goto awake :: lifeline[j] == seen[j] && !woken[me] -> waits[me].on[j] = true; j++
            :: else -> d_step { unqueue(me); j = 0 }; goto scan fi
#endif
      }
   od;
endSleep:
   if
   :: woken[me]
#ifndef NO_TIMEOUT
   :: d_step { !woken[me] && (lifeline[1] == DIED || lifeline[2] == DIED || lifeline[N] == DIED) -> unqueue(me); by[me] = 0 }
#endif
   fi;
awake:
   atomic { unqueue(me); j = by[me] };
   // Woken by a lifeline: the others hear of it before anything else is done.
   atomic { if :: j != 0 -> wakeOthers(j); j = 0 :: else fi };
   atomic {
      if
      :: control[me] ->
#ifdef CONTROL_BLIND
         goto leave
#else
         seen[0] = 1; goto scan
#endif
      :: else -> goto scan
      fi
   };
leave:
   atomic { closed[me] = true; lifeline[me] = SWEPT }
   } unless { killed[me] };
   skip
}

// SIGKILL is pending, then the wait is left and the lifeline marked, then one waiter is woken.
proctype Exit(byte i) {
   byte m = 0;
end:
   atomic { killed[i] && !closed[i] -> d_step { unqueue(i); lifeline[i] = DIED } };
   atomic {
      if
      :: waits[1].on[i] -> wake(1, i)
      :: waits[2].on[i] -> wake(2, i)
      :: N > 2 && waits[N].on[i] -> wake(N, i)
      :: else
      fi
   }
}

inline close(p) {
   closes++; control[p] = true;
   if :: waits[p].on[0] -> wake(p, 0) :: else fi
}

active proctype Fate() {
   byte m = 0;
end:
   do
   :: d_step { kills < KILLS && !killed[1] -> kills++; killed[1] = true }
   :: d_step { kills < KILLS && !killed[2] -> kills++; killed[2] = true }
   :: d_step { N > 2 && kills < KILLS && !killed[N] -> kills++; killed[N] = true }
   :: d_step { stops < STOPS && !stopped[1] -> stops++; stopped[1] = true }
   :: d_step { stops < STOPS && !stopped[2] -> stops++; stopped[2] = true }
   :: d_step { closes < CLOSES && !control[1] -> close(1) }
   :: d_step { closes < CLOSES && !control[2] -> close(2) }
   :: d_step { kills < KILLS -> kills = KILLS }
   :: d_step { stops < STOPS -> stops = STOPS }
   :: d_step { closes < CLOSES -> closes = CLOSES }
   od
}

active proctype Check() {
   byte k = 0, up = 0;
   timeout -> d_step {
      k = 1;
      do :: k <= N -> if :: !killed[k] && !stopped[k] && !closed[k] -> up++; assert(!control[k]) :: else fi; k++ :: else -> break od;
      k = 1;
      do :: k <= N -> assert(up == 0 || lifeline[k] != DIED); k++ :: else -> break od
   }
}

init {
   byte i = 1;
   atomic {
      do :: i <= N -> lifeline[i] = TID; run Guardian(i); run Exit(i); i++ :: else -> break od;
      i = 0
   }
}
#endif
