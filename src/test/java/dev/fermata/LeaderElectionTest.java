// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.LeaderElection.Leadership;
import dev.fermata.testing.Kernel;
import dev.fermata.testing.LockPath;
import dev.fermata.testing.Waiter;
import dev.fermata.testing.Worker;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Who leads, for how long, and who is told. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LeaderElectionTest {
    private LockPath place;
    private LockFile file;
    private LeaderElection election;

    @BeforeEach
    void open() throws Exception {
        place = LockPath.create();
        file = LockFile.open(place.file());
        election = file.leaderElection("e");
    }

    @AfterEach
    void close() throws Exception {
        file.close();
        place.close();
    }

    /** Leads until it is told to resign, or to end without. */
    static void leads(String... arguments) throws Exception {
        try (LockFile file = LockFile.builder(Path.of(arguments[0])).label("other").open()) {
            LeaderElection election = file.leaderElection("e");
            Worker.say("ready");
            Worker.hear();
            try (Leadership office = election.campaign()) {
                Worker.say("term " + office.term() + (office.predecessorDied() ? " after a death" : ""));
                Worker.hear();
            }
            Worker.say("resigned");
            Worker.hear();
        }
    }

    private Worker other(String... options) throws Exception {
        Worker other = Worker.start(LeaderElectionTest.class, "leads", List.of(options), place.file());
        other.expect("ready");
        return other;
    }

    @Test
    void thereIsOneLeaderAtATimeAndTermsGrow() throws Exception {
        assertEquals(new LeaderElection.State(0, Optional.empty()), election.state());
        Leadership first = election.campaign();
        assertEquals(1, first.term());
        assertFalse(first.predecessorDied());
        assertEquals(file.self().id(), election.state().leader().orElseThrow().id());
        assertTrue(election.tryCampaign().isEmpty());
        LockTimeoutException late =
                assertThrows(LockTimeoutException.class, () -> election.campaign(Duration.ofMillis(1)));
        assertTrue(late.getMessage().contains("held by pid"), late.getMessage());
        first.resign();
        first.close();
        assertFalse(election.hasLeader());
        assertEquals(1, election.term());
        try (Leadership second = election.tryCampaign().orElseThrow()) {
            assertEquals(2, second.term());
            first.close(); // has no effect on the next one
            assertTrue(election.hasLeader());
        }
        assertTrue(election.toString().contains("no leader, last term 2"), election.toString());
    }

    @Test
    void aDeadLeaderIsSucceededAndItsSuccessorKnows() throws Exception {
        try (Worker other = other()) {
            other.tell("campaign");
            other.expect("term 1");
            assertEquals(other.pid(), election.awaitLeader().leader().orElseThrow().pid());
            CompletableFuture<Leadership> asked = election.campaignAsync();
            assertFalse(asked.isDone());
            other.kill();
            Leadership office = asked.get();
            Waiter<Leadership> waiter = Waiter.call(election::campaign);
            assertEquals(2, office.term());
            assertTrue(office.predecessorDied());
            office.resign();
            assertEquals(3, waiter.result().term());
        }
    }

    @Test
    void listenersAreToldWhoLeadsAndThatNobodyDoes() throws Exception {
        BlockingQueue<LeaderElection.State> told = new LinkedBlockingQueue<>();
        try (LeaderElection.Subscription _ = election.onChange(told::add); Worker other = other()) {
            assertEquals(new LeaderElection.State(0, Optional.empty()), told.poll(10, TimeUnit.SECONDS));
            other.tell("campaign");
            other.expect("term 1");
            LeaderElection.State state = told.poll(10, TimeUnit.SECONDS);
            assertEquals(other.pid(), state.leader().orElseThrow().pid());
            other.tell("resign");
            other.expect("resigned");
            assertEquals(new LeaderElection.State(1, Optional.empty()), told.poll(10, TimeUnit.SECONDS));
            try (Leadership office = election.campaign()) {
                assertEquals(office.term(), told.poll(10, TimeUnit.SECONDS).term());
            }
            assertEquals(2, told.poll(10, TimeUnit.SECONDS).term());
        }
        election.campaign().resign();
        assertEquals(null, told.poll(100, TimeUnit.MILLISECONDS));
    }

    @Test
    void aListenerThatThrowsIsToldTheNextTimeAllTheSame() throws Exception {
        BlockingQueue<Long> told = new LinkedBlockingQueue<>();
        try (LeaderElection.Subscription _ = election.onChange(state -> {
            told.add(state.term());
            throw new IllegalArgumentException("as planned");
        })) {
            assertEquals(0, told.poll(10, TimeUnit.SECONDS));
            Leadership office = election.campaign();
            assertEquals(1, told.poll(10, TimeUnit.SECONDS));
            office.resign();
            assertEquals(1, told.poll(10, TimeUnit.SECONDS));
        }
    }

    @Test
    void listenersAreToldOfALeadersDeath() throws Exception {
        BlockingQueue<LeaderElection.State> told = new LinkedBlockingQueue<>();
        try (LeaderElection.Subscription _ = election.onChange(told::add); Worker other = other()) {
            told.poll(10, TimeUnit.SECONDS);
            other.tell("campaign");
            assertTrue(told.poll(10, TimeUnit.SECONDS).leader().isPresent());
            other.kill();
            assertEquals(new LeaderElection.State(1, Optional.empty()), told.poll(10, TimeUnit.SECONDS));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"lock: taken", "election: elected", "election: ended", "unlock: released",
        "election: resigned", "wake: epoch"})
    void whereverALeaderDiesTheNextIsElectedAndListenersKnow(String step) throws Exception {
        BlockingQueue<LeaderElection.State> told = new LinkedBlockingQueue<>();
        try (LeaderElection.Subscription _ = election.onChange(told::add);
                Worker victim = other("-Ddev.fermata.failpoint=" + step)) {
            victim.tell("campaign");
            if (!step.equals("lock: taken") && !step.equals("election: elected") && !step.equals("wake: epoch")) {
                victim.expect("term 1");
                victim.tell("resign");
            }
            victim.awaitDeath();
            try (Leadership office = election.campaign(Duration.ofSeconds(10))) {
                assertEquals(step.equals("lock: taken") ? 1 : 2, office.term());
                assertEquals(!step.startsWith("unlock") && !step.equals("election: resigned"), office.predecessorDied());
                while (told.poll(10, TimeUnit.SECONDS).leader().filter(file.self()::equals).isEmpty()) {
                    // what came before
                }
            }
            while (told.poll(10, TimeUnit.SECONDS).leader().isPresent()) {
                // what came before
            }
        }
    }

    /** Leads and resigns, and campaigns once more. */
    static void leadsTwice(String... arguments) throws Exception {
        LeaderElection election = LockFile.open(Path.of(arguments[0])).leaderElection("e");
        election.campaign().resign();
        election.campaign();
    }

    @Test
    void whoHasResignedAndStopsBeforeItsNextTermIsNotTakenForTheLeader() throws Exception {
        try (Worker stopped = Worker.startMortal("lock: taken#2#stop", LeaderElectionTest.class, "leadsTwice", place.file())) {
            Kernel.awaitStopped(stopped.pid());
            assertEquals(new LeaderElection.State(1, Optional.empty()), election.state());
        }
    }

    @Test
    void whoSucceedsTheDeadAndStopsBeforeItsTermIsNotTakenForTheLeader() throws Exception {
        try (Worker dead = other(); Worker stopped = other("-Ddev.fermata.failpoint=lock: told#1#stop")) {
            dead.tell("campaign");
            dead.expect("term 1");
            dead.kill();
            stopped.tell("campaign");
            Kernel.awaitStopped(stopped.pid());
            assertEquals(new LeaderElection.State(1, Optional.empty()), election.state());
        }
    }

    @Test
    void acceptanceCanBeGivenUp() throws Exception {
        Leadership office = election.campaign();
        CompletableFuture<Leadership> asked = election.campaignAsync();
        assertTrue(asked.cancel(false));
        office.resign();
        election.campaign(Duration.ofSeconds(10)).resign();
    }

    @Test
    void closingEndsATermAndEveryWait() throws Exception {
        Leadership office = election.campaign();
        CompletableFuture<Leadership> asked = election.campaignAsync();
        Waiter<Leadership> waiter = Waiter.call(election::campaign);
        LeaderElection.Subscription subscription = election.onChange(state -> { });
        file.close();
        assertInstanceOf(LockFileClosedException.class, assertThrows(ExecutionException.class, asked::get).getCause());
        assertThrows(LockFileClosedException.class, waiter::result);
        assertThrows(LockFileClosedException.class, election::state);
        assertEquals(1, office.term());
        assertThrows(LockFileClosedException.class, office::resign);
        office.resign(); // has no effect the second time
        subscription.close();
        file = LockFile.open(place.file());
        assertTrue(file.leaderElection("e").campaign().predecessorDied());
    }
}
