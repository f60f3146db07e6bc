// SPDX-License-Identifier: Apache-2.0
//
// LeaderElection (PROTOCOL.md, section 15): what a watcher sees of it, and that it does not sleep over a change.
//
// The mutex is taken for granted (shared_mutex.pml): one step takes it, with its fence, and one releases it; recovery
// makes a dead owner's word ABANDONED. HOLDER is written after FENCE, as by SharedMutex. Memory is sequentially
// consistent: every store here is followed by a full fence or read-modify-write before the next look.
//
// Two candidates lead for up to TERMS terms in all; each may die at any step, or stay in office. A watcher registers,
// looks, sleeps; at the end it has to have seen that nobody leads, or who does. A recoverer repairs and wakes after a
// death.
//
// Switches, each of which takes a safeguard away and must fail:
//   NOFENCELOOK   a look does not compare FENCE with ELECTED: it takes the next owner for the leader of the last term
//   NOENDED       a look does not ask whether the term has ended: a process that has resigned and has the mutex again, but
//                 not yet its fence, is taken for the leader that it was
//   NOWAKEELECT   no wake after ELECTED
//   NOWAKERESIGN  no wake after the release
//   NORECOVERWAKE recovery does not wake
//   LOOKFIRST     the watcher looks before it registers, and not after
//
// verify: quick pass pan:"-E"
// verify: full pass -DTERMS=3 pan:"-E"
// verify: quick fail -DNOFENCELOOK pan:"-E"
// verify: quick fail -DNOENDED pan:"-E"
// verify: quick fail -DNOWAKEELECT pan:"-E"
// verify: quick fail -DNOWAKERESIGN pan:"-E"
// verify: full fail -DNORECOVERWAKE pan:"-E"
// verify: full fail -DLOOKFIRST pan:"-E"

#ifndef TERMS
#define TERMS 2
#endif
#define FREE 1
#define ABANDONED 2
#define ID(p) (10 + p)

byte owner = FREE, holder, fence, elected, ended;
bool asleep;              // ASLEEP in events
byte epoch;
bool dead[2];
bool recovered[2];
byte leading[2];          // the term that a candidate believes to lead, for the assertions
byte led[TERMS + 1];      // who led a term
bool lately[TERMS + 1];   // whether a term was one since the watcher's look began
byte seen;                // whom the watcher has seen to lead last, or 0

#ifdef NOENDED
#define IS_OVER false
#else
#define IS_OVER (t <= n)
#endif

inline wake() { atomic { if :: asleep -> asleep = false; epoch++ :: else fi } }
inline die() { atomic { dead[me] = true; leading[me] = 0; goto end } }

proctype Candidate(byte me) {
   byte term;
   do
   :: atomic { owner == FREE || owner == ABANDONED; if :: fence < TERMS -> owner = ID(me) :: else -> goto end fi };
      if :: die() :: skip fi;
      atomic { fence++; term = fence };
      if :: die() :: skip fi;
      holder = ID(me);
      if :: die() :: skip fi;
      atomic {
         assert(elected < term); elected = term;
         assert(leading[1 - me] == 0); leading[me] = term; led[term] = ID(me); lately[term] = true
      };
      if :: die() :: skip fi;
#ifndef NOWAKEELECT
      wake();
#endif
      if :: die() :: goto end /* stays in office */ :: skip fi;
      atomic { ended = term; leading[me] = 0 };
      if :: die() :: skip fi;
      owner = FREE;
      if :: die() :: skip fi;
#ifndef NOWAKERESIGN
      wake();
#endif
   od;
end: skip
}

// Repairs after each death, and wakes.
active proctype Recovery() {
   byte p;
end:
   do
   :: atomic { dead[0] && !recovered[0] -> p = 0 }; goto repair
   :: atomic { dead[1] && !recovered[1] -> p = 1 }; goto repair
   od;
repair:
   atomic { if :: owner == ID(p) -> owner = ABANDONED :: else fi };
#ifndef NORECOVERWAKE
   wake();
#endif
   recovered[p] = true;
   goto end
}

inline look() {
   do
   :: atomic { h = 1; do :: h <= TERMS -> lately[h] = (leading[0] == h || leading[1] == h); h++ :: else -> break od };
      n = ended; t = elected; h = holder; o = owner;
      if
      :: IS_OVER || o != h || (h >= ID(0) && dead[h - ID(0)]) -> l = 0; break
      :: else ->
#ifdef NOFENCELOOK
         l = h; break
#else
         f = fence;
         if
         :: f == t -> l = h; break
         :: else -> if :: elected == t -> l = 0; break :: else fi
         fi
#endif
      fi
   od
}

// What it believes when it sleeps for good is how it is.
active proctype Watcher() {
   byte n, t, h, o, f, l, e;
end:
   do
   :: 
#ifdef LOOKFIRST
      look();
      atomic { asleep = true; e = epoch };
#else
      atomic { asleep = true; e = epoch };
      look();
#endif
      // Who was seen to lead a term had that term, and led at some moment of the look.
      atomic { if :: l != 0 -> assert(led[t] == l && lately[t]) :: else fi; seen = l };
      e != epoch
   od
}

// When nothing moves any more, the watcher has seen how it is.
active proctype Judge() {
   timeout;
   if
   :: elected > ended && owner == holder && owner >= ID(0) && !dead[owner - ID(0)] -> assert(seen == owner)
   :: else -> assert(seen == 0)
   fi
}

init { atomic { run Candidate(0); run Candidate(1) } }
