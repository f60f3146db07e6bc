// SPDX-License-Identifier: Apache-2.0
//
// The directory of names: insertion with an intent, losers, give-back, recovery of unpublished entries.
//
// index   a table probed linearly; each word EMPTY (-1 in the file) or the number of an entry + 1. Words are only ever
//         filled. All names have the same home here, the worst case.
// intent  of an entry: 0 free, the id of the participant that fills it, or USED
// name    of an entry: what look-ups compare
//
// insert  for each word of the chain:
//           filled: the name is there -> give back an entry that was taken for nothing (CAS intent me->0); done
//                   another name -> the next word
//           EMPTY:  take an entry (CAS intent 0->me) unless one is in hand, fill it, publish it (CAS word EMPTY->entry),
//                   CAS intent me->USED. The CAS of the word failed: the SAME word again, with the same entry in hand.
// recover reads which participants are dead, has the process-wide barrier, then for each entry whose intent is a dead
//         one's: referenced by the index -> CAS intent dead->USED, else -> CAS intent dead->0
//
// -DLINES=n  each entry needs a line of the region, of which there are n, as many as names. An entry that is given back
//         keeps its line. No line is left: search for a free entry that has one; none, but somebody has an entry in hand:
//         the same word again; nobody: full, unless the word has been filled meanwhile. Nobody may find the file full.
//
// Found sound: a name has one entry for ever; a look-up never misses a name that was there when it began and never
// sees one half filled; no entry is lost, none is both free and referenced. With an entry for each of the three
// inserters the pool is never full here.
//
// Not modeled: memory weaker than sequentially consistent. Publication is a release and looking up an acquire.
//
// verify: quick pass -DP=2 -DLOOK
// verify: full  pass -DRECOVERERS=1
// verify: full  pass -DALL_DIFFER
// verify: full  pass -DP=2 -DDEATHS=2 -DRECOVERERS=2
// verify: full  pass -DLOOK
// verify: quick pass -DP=2 -DLINES=1
// verify: full  pass -DLINES=2
// verify: full  pass -DP=2 -DDEATHS=2 -DRECOVERERS=2 -DLINES=2
//
// Each of these takes one safeguard away:
//
//   PUBLISH_FIRST  the entry is published before it is filled
//   NEXT_WORD      the loser goes on to the next word without another look at this one
//   KEEP           an entry taken for nothing is not given back
//   NO_RECOVERY
//   FREE_BLINDLY   recovery frees an entry without asking whether the index refers to it
//   NO_BARRIER     recovery without the barrier
//   NO_SEARCH      (LINES) what was given back is not searched for
//   NO_WAIT        (LINES) who has an entry in hand is not waited for
//   BLIND_VERDICT  (LINES) full, though the word may have been filled meanwhile
//
// verify: quick fail -DPUBLISH_FIRST
// verify: quick fail -DNEXT_WORD
// verify: full  fail -DKEEP
// verify: full  fail -DNO_RECOVERY
// verify: full  fail -DFREE_BLINDLY
// verify: full  fail -DNO_BARRIER
// verify: full  fail -DLINES=2 -DNO_SEARCH
// verify: full  fail -DLINES=2 -DNO_WAIT
// verify: full  fail -DLINES=2 -DBLIND_VERDICT

#ifndef RECOVERERS
#define RECOVERERS 1            // 2: the second may die at any step
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef P
#define P 3                     // inserters, participants 1 to P
#endif
#ifdef ALL_DIFFER
#define NAME(p) (p)
#define NAMES 3
#else
#define NAME(p) ((p) == 3 -> 2 : 1)
#define NAMES 2
#endif
#define WORDS   3               // of the index, all in one chain
#define ENTRIES 3
#define EMPTY   0
#define USED    99
#define NONE    255

byte index[WORDS];              // EMPTY or 1 + entry
byte intent[ENTRIES];           // 0, the id of who fills it, or USED
byte name[ENTRIES];

#ifdef LINES
byte heap = LINES;              // lines of the region that were never given out
bool line[ENTRIES];             // the entry has one
#endif

bool died[P + 1];               // lifeline marked; its threads may still run
bool stopped[P + 1];            // no instruction of it follows
bool finished[P + 1];
byte deaths = 0;
bool due[3], sweeping[3];
bool secondDied = false;

byte found[P + 1];              // ghosts: the result of each, 1 + entry;
byte entryOf[NAMES + 1];        // the entry of each name, 1 + entry;
byte published[ENTRIES];        // the name of each published entry

inline barrier() { d_step { k = 1; do :: k <= P -> stopped[k] = died[k]; k++ :: else -> break od; k = 0 } }

proctype Insert(byte me) {
   byte i = 0, x = NONE, w = 0, n = NAME(me);
#ifdef LINES
   byte j = 0;
   bool another = false;        // has one in hand
#endif
   {
   skip;
look:
   atomic {
      assert(i < WORDS); w = index[i];
      if
      :: w == EMPTY && x == NONE -> goto take
      :: w == EMPTY && x != NONE -> goto publish
      :: else
      fi
   };
   atomic {
      if
      :: name[w - 1] == n -> assert(published[w - 1] == n); found[me] = w; goto giveBack
      :: else -> assert(published[w - 1] != n); i++; goto look
      fi
   };

take:
#ifdef LINES
   atomic {
      if
      :: heap == 0 -> goto search
      :: heap != 0 && intent[0] == 0 -> x = 0
      :: heap != 0 && intent[0] != 0 && intent[1] == 0 -> x = 1
      :: heap != 0 && intent[0] != 0 && intent[1] != 0 && intent[2] == 0 -> x = 2
      :: heap != 0 && intent[0] != 0 && intent[1] != 0 && intent[2] != 0 -> goto search
      fi;
      intent[x] = me
   };
   atomic {
      if
      :: line[x]
      :: !line[x] && heap != 0 -> heap--; line[x] = true
      :: !line[x] && heap == 0 -> intent[x] = 0; x = NONE; goto search
      fi;
      goto fill
   };
search:                         // one that was given back
#ifndef NO_SEARCH
   do
   :: atomic { j < ENTRIES && intent[j] == 0 && line[j] -> intent[j] = me; x = j; j = 0; another = false; goto fill }
   :: atomic { j < ENTRIES && !(intent[j] == 0 && line[j]) ->
         another = another || (intent[j] != 0 && intent[j] != USED); j++ }
   :: atomic { j == ENTRIES -> j = 0; break }
   od;
#endif
   atomic {
#ifndef NO_WAIT
      if :: another -> another = false; goto look :: else fi;
#endif
      another = false;
#ifndef BLIND_VERDICT
      if :: index[i] != EMPTY -> goto look :: else fi;
#endif
      assert(false)             // said to be full
   };
#else
   atomic {                     // the first free one; that it was passed over by a scan is not modeled
      if
      :: intent[0] == 0 -> x = 0
      :: intent[0] != 0 && intent[1] == 0 -> x = 1
      :: intent[0] != 0 && intent[1] != 0 && intent[2] == 0 -> x = 2
      :: else -> assert(false)
      fi;
      intent[x] = me
   };
#endif
fill:
#ifndef PUBLISH_FIRST
   name[x] = n;
#endif
publish:
   atomic {
      if
      :: index[i] == EMPTY -> index[i] = 1 + x; assert(entryOf[n] == 0); entryOf[n] = 1 + x; published[x] = n
      :: else ->
#ifdef NEXT_WORD
         i++;
#endif
         goto look
      fi
   };
#ifdef PUBLISH_FIRST
   name[x] = n;
#endif
   atomic { if :: intent[x] == me -> intent[x] = USED :: else fi; found[me] = 1 + x; x = NONE };
giveBack:
   atomic {
#ifndef KEEP
      if :: x != NONE && intent[x] == me -> intent[x] = 0 :: else fi;
#endif
      finished[me] = true
   }
   } unless { stopped[me] };
#ifdef LINES
   atomic { i = 0; x = 0; w = 0; n = 0; j = 0; another = false }
#else
   atomic { i = 0; x = 0; w = 0; n = 0 }
#endif
}

proctype LookUp(byte n) {
   byte i = 0, w = 0, known = 0;
   known = entryOf[n];          // ghost: it was there when the look-up began
   do
   :: i == WORDS -> assert(known == 0); break
   :: i < WORDS ->
      w = index[i];
      atomic {
         if
         :: w == EMPTY -> assert(known == 0); break
         :: w != EMPTY ->
            if
            :: name[w - 1] == n -> assert(published[w - 1] == n && entryOf[n] == w); break
            :: else -> assert(published[w - 1] != n); i++
            fi
         fi
      }
   od
}

proctype Recover(byte who) {
   byte k = 0, x = 0, w = 0, seen = 0, i = 0;
   bool referenced = false;
   {
end:
   do
   :: d_step { due[who] -> due[who] = false; sweeping[who] = true; k = 1;
         do :: k <= P -> if :: died[k] -> seen = seen | (1 << k) :: else fi; k++ :: else -> break od;
         k = 0 };
#ifndef NO_BARRIER
      barrier();
#endif
#ifndef NO_RECOVERY
      do
      :: atomic { x == ENTRIES -> x = 0; break }
      :: atomic { x < ENTRIES -> w = intent[x];
            if :: w == 0 || w == USED || !((seen >> w) & 1) -> w = 0; x++ :: else fi
         };
         if
         :: w == 0
         :: w != 0 ->
#ifndef FREE_BLINDLY
            do
            :: atomic { i < WORDS -> if :: index[i] == 1 + x -> referenced = true :: else fi; i++ }
            :: atomic { i == WORDS -> i = 0; break }
            od;
#endif
            atomic { if :: intent[x] == w -> intent[x] = (referenced -> USED : 0) :: else fi; w = 0; referenced = false; x++ }
         fi
      od;
#endif
      atomic { seen = 0; sweeping[who] = false }
   od
   } unless { who == 2 && secondDied };
   atomic { k = 0; x = 0; w = 0; seen = 0; i = 0; referenced = false }
}

#define CAN_DIE(p) (deaths < DEATHS && !died[p] && !finished[p])
inline die(p) { died[p] = true; deaths++; due[1] = true; due[2] = RECOVERERS > 1 && !secondDied }

active proctype Fate() {
end:
   do
   :: d_step { CAN_DIE(1) -> die(1) }
   :: d_step { CAN_DIE(2) -> die(2) }
   :: d_step { P > 2 && CAN_DIE(P) -> die(P) }
   :: d_step { RECOVERERS > 1 && !secondDied -> secondDied = true; due[2] = false; sweeping[2] = false; due[1] = true }
   od
}

// Whenever nothing but a death can move, the state must be sound: no unspent budget hides anything.
#define RESTS(p) (finished[p] || stopped[p])
#define QUIET (RESTS(1) && RESTS(2) && RESTS(P) && !due[1] && !due[2] && !sweeping[1] && !sweeping[2])

active proctype Check() {
   byte k = 0, references = 0;
end:
   do
   :: d_step { QUIET ->
      k = 1;
      do
      :: k <= P -> assert(!finished[k] || (found[k] != 0 && found[k] == entryOf[NAME(k)])); k++
      :: else -> break
      od;
      k = 0;
      do
      :: k < WORDS -> if :: index[k] != EMPTY -> references++; assert(name[index[k] - 1] == published[index[k] - 1]) :: else fi; k++
      :: else -> break
      od;
      k = 0;
      do
      :: k < ENTRIES -> assert(intent[k] == 0 || intent[k] == USED); if :: intent[k] == USED -> references-- :: else fi; k++
      :: else -> break
      od;
      assert(references == 0); k = 0
   }
   od
}

init {
   byte i = 1;
   atomic {
      do :: i <= P -> run Insert(i); i++ :: else -> break od;
#ifdef LOOK
      run LookUp(1);
#endif
      i = 1;
      do :: i <= RECOVERERS -> run Recover(i); i++ :: else -> break od;
      i = 0
   }
}
