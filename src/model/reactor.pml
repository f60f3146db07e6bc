// SPDX-License-Identifier: Apache-2.0
//
// The line of one lock: waiters without a thread of their own (virtual threads, asynchronous takers), for whom a reactor
// waits. To the other processes the line is one waiter, as in shared_mutex.pml; here is what goes on behind it.
//
// join      under the line's monitor: last in line; nobody waits for the line: registered := true, put it into the inbox
//           of a reactor, change the reactor's control word and wake it
// reactor   1  remember the control word, then empty the inbox
//           2  under the monitor: nobody in line, nothing offered: registered := false, and it leaves. Nobody in line, or it
//              rests: it sleeps for a limited time, but not on events. In both cases, if it has registered in events, it
//              passes a wake on, like any waiter that leaves
//           3  events |= ASLEEP, remember e; a look; barrier; a look; each under the monitor: owner FREE -> me, for the
//              first in line, to whom the lock is then offered
//           4  sleep on (control, events) unless one has changed; from 1
// offered   the waiter's own thread takes the offer (or what cancels the wait gives the lock back), whenever it gets a
//           processor. Until then the reactor may withdraw it, as others want the lock: the waiter is first in line again,
//           the lock is released, and the reactor rests for a while, or until the waiter's thread rouses it
// leave     under the monitor: out of the line; what was offered is released
//
// The foreign waiter is another process. Its words are sequentially consistent here, and it knows no heir: that is
// checked in shared_mutex.pml. What lasts a limited time (an offer, a rest) may end at any moment. The 1 s looks are not
// modeled.
//
// Run by hand, 0 errors: -DCANCELS=2 -DWITHDRAWALS=2, 81.2 million states.
//
// Whenever nothing can move, everybody has had the lock or has left, it is free, and nothing is registered.
//
// verify: quick pass -DCANCELS=0 -DWITHDRAWALS=0
// verify: full  pass
// verify: full  pass -DCANCELS=2 -DWITHDRAWALS=0
// verify: full  pass -DW=3 -DCANCELS=0 -DWITHDRAWALS=0
//
//   NOPASS         the reactor leaves without passing its wake on
//   LATECONTROL    it remembers the control word after it has emptied the inbox
//   LATELEAVE      it finds the line nobody, and lets go of the monitor before it says that it leaves
//   BLINDOFFER     it lets go of the monitor between taking the lock and offering it
//   LEAVEOFFERED   who leaves does not release what was offered
//   WITHDRAWQUIET  who withdraws an offer wakes nobody
//   REFUSELATE     an offer is taken without a look at whether it was withdrawn
//
// verify: full  fail -DNOPASS
// verify: full  fail -DLATECONTROL
// verify: quick fail -DLATELEAVE
// verify: quick fail -DBLINDOFFER
// verify: full  fail -DLEAVEOFFERED
// verify: full  fail -DWITHDRAWQUIET
// verify: quick fail -DREFUSELATE

#ifndef W
#define W 2                     // waiters in line, at most 3
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef WITHDRAWALS
#define WITHDRAWALS 1
#endif

// ---- words of the entry -------------------------------------------------------------------------------------------

#define FREE    1
#define ME      3
#define FOREIGN 4
#define ASLEEP  1
#define NEXT(e) ((((e) | 1) + 1) & 15)

byte owner = FREE;
byte events = 0;

// ---- the line, under its monitor ----------------------------------------------------------------------------------

mtype = { ABSENT, WAITING, OFFERED, TAKEN, LEFT };
mtype place[W];
byte ticket[W];
byte tickets = 0;
bool registered = false;
bool resting = false;           // after a withdrawal
byte offered = 255;

// ---- the reactor --------------------------------------------------------------------------------------------------

bool inbox = false, client = false;
byte control = 0;
bool reactorAsleep = false, foreignAsleep = false;
bool onEvents = false;          // the reactor sleeps on events, too

// ---- ghosts -------------------------------------------------------------------------------------------------------

byte insiders = 0, cancels = 0, withdrawals = 0, done = 0;

#define CALL control = (control + 1) & 7; reactorAsleep = false
#define IS_EMPTY (first == 255 && offered == 255)

inline findFirst() {
   d_step { first = 255; i = 0;
   do
   :: i < W ->
      if
      :: place[i] == WAITING && (first == 255 || ticket[i] < ticket[first]) -> first = i
      :: else
      fi;
      i++
   :: else -> break
   od;
   i = 0 }
}

inline wake() {
   if
   :: d_step { events & ASLEEP -> events = NEXT(events) };
      atomic { if :: reactorAsleep && onEvents -> reactorAsleep = false :: foreignAsleep -> foreignAsleep = false :: else fi }
   :: else
   fi
}

inline release() {
   owner = FREE;
   wake()
}

// ---- who waits in the line ----------------------------------------------------------------------------------------

proctype Waiter(byte me) {
   atomic {                     // join
      place[me] = WAITING; ticket[me] = tickets; tickets++;
      if :: !registered -> registered = true; inbox = true :: else -> goto wait fi
   };
   atomic { CALL };
wait:
   if
   :: atomic { place[me] == OFFERED -> place[me] = TAKEN; offered = 255 };
#ifdef REFUSELATE
   :: atomic { place[me] == OFFERED -> skip };
      atomic { place[me] = TAKEN; offered = 255 };
#endif
      insiders++; assert(insiders == 1 && owner == ME);
      insiders--;
      release()
   :: atomic { cancels < CANCELS && place[me] == WAITING -> cancels++; place[me] = LEFT; CALL }
   :: atomic { cancels < CANCELS && place[me] == OFFERED -> cancels++; place[me] = LEFT; offered = 255 };
#ifndef LEAVEOFFERED
      release()
#endif
   :: atomic { resting && place[me] == WAITING -> resting = false; CALL }; goto wait     // it got a processor too late
   fi;
   done++
}

// ---- the reactor --------------------------------------------------------------------------------------------------

inline look() {
   atomic {
      findFirst();
      if
      :: first != 255 && !resting && owner == FREE ->
         owner = ME;
#ifndef BLINDOFFER
         place[first] = OFFERED; offered = first;
#endif
         taken = true
      :: else
      fi
   };
#ifdef BLINDOFFER
   if :: taken -> place[first] = OFFERED; offered = first :: else fi;
#endif
   first = 255
}

active proctype Reactor() {
   byte c = 0, e = 0, first = 255, i = 0;
   bool isIn = false, taken = false, limited = false, nobody = false, idle = false;    // isIn: has registered since it had the lock last
   do
   ::
#ifndef LATECONTROL
      c = control;
#endif
      atomic { if :: inbox -> inbox = false; client = true :: else fi };
#ifdef LATECONTROL
      c = control;
#endif
again:
      if
      :: atomic { client && offered != 255 && withdrawals < WITHDRAWALS ->
            withdrawals++; place[offered] = WAITING; offered = 255; resting = true };
#ifdef WITHDRAWQUIET
         owner = FREE
#else
         release()
#endif
      :: skip
      fi;
      atomic {
         nobody = false;
         idle = true;
         if :: client -> findFirst(); nobody = IS_EMPTY; idle = first == 255 || resting; first = 255 :: else fi;
#ifndef LATELEAVE
         if :: nobody -> registered = false :: else fi;
#endif
         if :: nobody -> client = false :: else fi;
         limited = client && (resting || offered != 255)
      };
      if
      :: isIn && (nobody || idle) ->            // it waits no more, or not now: passes on what it has consumed
#ifdef LATELEAVE
         if :: nobody -> registered = false :: else fi;
#endif
#ifndef NOPASS
         events = events | ASLEEP;
         if :: owner == FREE -> wake() :: else fi;
#endif
         isIn = false
      :: else ->
#ifdef LATELEAVE
         if :: nobody -> registered = false :: else fi
#endif
      fi;
      if
      :: client && !idle ->
         d_step { events = events | ASLEEP; e = events; isIn = true };
         taken = false;
         look();
         if :: !taken -> look() :: else fi;     // the barrier is between the two
         if :: taken -> isIn = false; taken = false; goto again :: else fi
      :: else
      fi;
      atomic {
         if
         :: control == c && (!isIn || events == e) -> reactorAsleep = true; onEvents = isIn
         :: else
         fi
      };
end:  if
      :: !reactorAsleep
      :: atomic { reactorAsleep && limited -> reactorAsleep = false; resting = false }
      fi
   od
}

// ---- the other process --------------------------------------------------------------------------------------------

active proctype Foreign() {
   byte e = 0;
   do
   :: atomic { events = events | ASLEEP; e = events };
      atomic { if :: owner == FREE -> owner = FOREIGN; break :: else fi };
      atomic { if :: events == e -> foreignAsleep = true :: else fi };
      !foreignAsleep
   od;
   insiders++; assert(insiders == 1 && owner == FOREIGN);
   insiders--;
   release();
   done++
}

// Once nothing moves any more, not even what lasts a limited time.
active proctype Check() {
end:
   timeout ->
   assert(done == W + 1 && owner == FREE && !registered && offered == 255)
}

init {
   byte i = 0;
   atomic { do :: i < W -> run Waiter(i); i++ :: else -> break od; i = 0 }
}
