"""``Scheduler.tick(now)``: stepped through explicit instants over rows and a transport in memory (R128)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from smallage_django.domain.identity import scheduled
from smallage_django.domain.lifecycle import State
from smallage_django.domain.planning import Outage
from smallage_django.domain.policies import MissedPolicy, OverlapPolicy, Policies
from smallage_django.domain.recurrence import Cron, Every
from smallage_django.errors import BrokerUnavailable, StoreUnavailable
from smallage_django.scheduler import Options, Scheduler
from tests.support.memory_store import Plan, Promise
from tests.support.memory_world import START, Clock, World

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NOON = START.replace(second=0)
ALLOW = Policies(overlap=OverlapPolicy.ALLOW)


def once_at(world: World, step: str, act: Callable[[], None]) -> None:
    """Do something just before a step reaches the store or the broker, the first time only."""
    done: list[str] = []

    def on_call(name: str) -> None:
        if name == step and not done:
            done.append(name)
            act()

    world.store.on_call = world.server.on_call = on_call


def every_minute(world: World, policies: Policies = ALLOW) -> Plan:
    plan = Plan("every minute", Cron("* * * * *"), START, policies)
    world.store.plans.append(plan)
    return plan


# -- leading --------------------------------------------------------------------------------------------------------


def test_of_two_schedulers_one_leads_and_the_other_stands_by() -> None:
    """R004, R052: two that look at one occurrence make one run and one entry."""
    world = World()
    plan = every_minute(world)
    a, b = world.scheduler("a"), world.scheduler("b")
    for second in range(45):
        now = START + second * SECOND
        assert world.tick(a, now).leading
        assert not world.tick(b, now).leading
    assert list(world.server.added.elements()) == [scheduled(plan.uid, START + 30 * SECOND)]
    assert [term["holder"] for term in world.store.terms] == ["a"]
    assert set(world.store.beats) == {"a", "b"}


def test_a_dead_leaders_place_is_taken_when_its_lease_has_run_out() -> None:
    """R052: late by the lease and a pass at most."""
    world = World()
    a, b = world.scheduler("a"), world.scheduler("b")
    world.tick(a, START)
    assert not world.tick(b, START + 4.9 * SECOND).leading
    report = world.tick(b, START + 5.1 * SECOND)
    assert (report.leading, report.epoch) == (True, 2)
    assert not world.tick(a, START + 5.2 * SECOND).leading


def test_a_leader_that_steps_down_hands_over_at_once() -> None:
    """R056: the lease is given back and the term is ended; the other leads in its next pass."""
    world = World()
    a, b = world.scheduler("a"), world.scheduler("b")
    world.tick(a, START)
    a.step_down()
    assert world.store.terms[0]["ended"]
    assert world.tick(b, START).leading


def test_a_term_is_above_every_earlier_one_even_if_sql_forgot_them() -> None:
    world = World()
    world.server.fence = 41
    assert world.tick(world.scheduler(), START).epoch == 42


def test_losing_the_lease_in_the_middle_of_a_pass_stops_promotion_and_loses_nothing() -> None:
    """R053: the key is taken away while schedules are fired; no entry, and the other leader adds it once."""
    world = World()
    every_minute(world)
    a, b = world.scheduler("a"), world.scheduler("b")
    world.tick_through(a, START + 29 * SECOND)

    def rob() -> None:
        world.now += 2 * SECOND
        world.server.lease = ("b", world.monotonic() + 5)

    once_at(world, "fire_schedules", rob)
    report = world.tick(a, START + 30 * SECOND)
    assert not report.leading
    assert not world.server.added
    assert world.store.in_state(State.CLAIMED)

    world.tick(b, START + 40 * SECOND)
    assert set(world.server.added.values()) == {1}
    assert len(world.store.in_state(State.ENQUEUED)) == 1


def test_a_leader_paused_before_it_promotes_is_fenced() -> None:
    """R065: stopped past its lease, resumed after another one led: nothing of it reaches a stream."""
    world = World()
    every_minute(world)
    a, b = world.scheduler("a"), world.scheduler("b")
    world.tick_through(a, START + 29 * SECOND)
    once_at(world, "promote", lambda: world.tick(b, START + 45 * SECOND) and None)

    report = world.tick(a, START + 30 * SECOND)

    assert not report.leading
    assert set(world.server.added.values()) == {1}
    assert [row.fence for row in world.store.runs.values()] == [2]
    assert world.store.in_state(State.ENQUEUED)


def test_a_leader_paused_before_it_marks_touches_no_row_of_the_next_one() -> None:
    """R060, R065: the other one is told the entry that is known, adds none, and the late mark finds no row."""
    world = World()
    every_minute(world)
    a, b = world.scheduler("a"), world.scheduler("b")
    world.tick_through(a, START + 29 * SECOND)
    once_at(world, "mark_enqueued", lambda: world.tick(b, START + 45 * SECOND) and None)

    assert not world.tick(a, START + 30 * SECOND).leading

    assert set(world.server.added.values()) == {1}
    (row,) = world.store.runs.values()
    assert row.states == [State.CLAIMED, State.CLAIMED, State.ENQUEUED]


def test_without_proof_of_the_lease_nothing_is_promoted() -> None:
    """The lease may have run out while the answer was on its way: the process's own clock decides."""
    world = World()
    every_minute(world)
    leader = world.scheduler("a")
    world.tick_through(leader, START + 29 * SECOND)
    acquire = world.server.scheduler().acquire

    def slow(token: str, ttl: timedelta) -> bool:
        granted = acquire(token, ttl)
        world.now += 4.5 * SECOND
        return granted

    leader._broker.acquire = slow  # type: ignore[method-assign]
    assert not world.tick(leader, START + 30 * SECOND).leading
    assert not world.server.added


# -- outages --------------------------------------------------------------------------------------------------------


def test_the_first_leader_ever_ends_no_outage() -> None:
    world = World()
    world.tick(world.scheduler(), START)
    assert world.store.outages == []


def test_a_pause_within_two_intervals_and_a_second_is_no_outage() -> None:
    world = World()
    leader = world.scheduler()
    for at in (0, 1, 4, 7):
        world.tick(leader, START + at * SECOND)
    assert world.store.outages == []


def test_a_longer_pause_is_recorded_once_by_whoever_ends_it() -> None:
    """R145: an interval in which nobody worked is not silent."""
    world = World()
    world.tick(world.scheduler("a"), START)
    b = world.scheduler("b")
    world.tick(b, START + 60 * SECOND)
    world.tick(b, START + 61 * SECOND)
    assert world.store.outages == [Outage(START, START + 60 * SECOND)]


def test_a_slow_pass_is_no_outage() -> None:
    """A leader that is merely behind makes late runs, never missed ones."""
    world = World()
    every_minute(world)
    leader = world.scheduler(lease_ttl=timedelta(minutes=5))
    world.tick_through(leader, START + 29 * SECOND)

    def dawdle() -> None:
        world.now += 20 * SECOND

    once_at(world, "promote", dawdle)
    leader.tick(START + 30 * SECOND)
    world.tick(leader, world.now + SECOND)
    assert world.store.outages == []


def test_what_fell_into_an_outage_is_missed_and_stands_in_one_row() -> None:
    """R038, R039, R050: five minutes down are one run and one gap of four."""
    world = World()
    every_minute(world, Policies(missed=MissedPolicy.LATEST))
    world.tick(world.scheduler("a"), START)
    world.tick(world.scheduler("b"), START + 5 * MINUTE)
    states = sorted((row.state.value, row.count) for row in world.store.runs.values())
    assert states == [("enqueued", 1), ("missed", 4)]


# -- firing ---------------------------------------------------------------------------------------------------------


def test_an_occurrence_fires_at_its_instant_and_not_before() -> None:
    """R006, R016."""
    world = World()
    every_minute(world)
    leader = world.scheduler()
    world.tick_through(leader, START + 29.9 * SECOND)
    assert not world.server.added
    report = world.tick(leader, START + 30 * SECOND)
    assert (report.fired, report.promoted, report.more) == (1, 1, False)


def test_a_day_of_minutes_fires_1440_times_and_never_twice() -> None:
    """R129: a day in an instant."""
    world = World()
    every_minute(world)
    leader = world.scheduler(interval=MINUTE, lease_ttl=5 * MINUTE)
    world.tick(leader, START)
    for _ in range(24 * 60):
        world.tick(leader, world.now + MINUTE)
        world.work_off()
    assert len(world.store.effects) == 24 * 60
    assert set(world.store.effects.values()) == {1}
    assert not world.store.outages


def test_a_schedule_counts_from_its_creation_and_after_a_change_from_now() -> None:
    """R034, R074: a change is seen in the next pass, and what the new rule would have said earlier is not owed."""
    world = World()
    world.now = NOON + 10 * MINUTE
    plan = Plan("new", Cron("* * * * *"), NOON + 8.5 * MINUTE, ALLOW)
    world.store.plans.append(plan)
    leader = world.scheduler()
    assert world.tick(leader, NOON + 10 * MINUTE).planned == 1
    due = [row.scheduled_for for row in world.store.runs.values()]
    assert due == [NOON + 9 * MINUTE, NOON + 10 * MINUTE]

    plan.change(Cron("*/5 * * * *"))
    report = world.tick(leader, NOON + 10 * MINUTE + SECOND)
    assert (report.planned, report.fired) == (1, 0)
    assert plan.next_due_at == NOON + 15 * MINUTE


def test_a_second_pass_at_the_same_instant_does_nothing() -> None:
    """R060: a double pass is a no-op."""
    world = World()
    every_minute(world)
    world.store.owe(START)
    leader = world.scheduler()
    first = world.tick(leader, START + 30 * SECOND)
    second = world.tick(leader, START + 30 * SECOND)
    assert (first.fired, first.claimed) == (1, 1)
    assert (second.fired, second.claimed, second.promoted) == (0, 0, 0)
    assert set(world.server.added.values()) == {1}


def test_a_promise_in_the_past_fires_in_the_next_pass_and_one_past_its_deadline_expires() -> None:
    """R007, R008."""
    world = World()
    world.store.promises += [
        Promise(START - MINUTE),
        Promise(START - MINUTE, deadline=START - SECOND),
    ]
    report = world.tick(world.scheduler(), START)
    assert (report.promoted, report.expired) == (1, 1)
    assert Counter(row.state.value for row in world.store.runs.values()) == {
        "enqueued": 1,
        "expired": 1,
    }


def test_a_broken_schedule_is_reported_and_the_others_fire() -> None:
    world = World()
    every_minute(world)
    world.store.plans.append(Plan("bad", Cron("* * * * *"), START, broken="no such zone"))
    leader = world.scheduler()
    world.tick_through(leader, START + 29 * SECOND)
    report = world.tick(leader, START + 30 * SECOND)
    assert report.broken == ["bad: no such zone"]
    assert report.promoted == 1


# -- bounds ---------------------------------------------------------------------------------------------------------


def test_no_step_ever_takes_more_than_a_batch_and_yet_all_move_oldest_first() -> None:
    """R062, R063."""
    world = World()
    rows = [world.store.owe(START - n * SECOND) for n in range(10)]
    report = world.tick(world.scheduler(batch=3), START)
    assert (report.claimed, report.more) == (10, False)
    assert world.store.largest == 3
    assert world.server.order == [row.fire_id for row in reversed(rows)]


def test_what_is_urgent_goes_before_what_is_old() -> None:
    """R063: one that is due now is not last behind a backlog."""
    world = World()
    for n in range(5):
        world.store.owe(START - n * MINUTE)
    urgent = world.store.owe(START, priority=5)
    world.tick(world.scheduler(batch=2), START)
    assert world.server.order[0] == urgent.fire_id


def test_a_pass_that_has_used_its_time_says_that_there_is_more() -> None:
    world = World()
    for n in range(10):
        world.store.owe(START - n * SECOND)

    def dawdle(name: str) -> None:
        if name == "promote":
            world.now += 0.6 * SECOND

    world.server.on_call = dawdle
    leader = world.scheduler(batch=2)
    first = world.tick(leader, START)
    assert (first.claimed, first.more) == (4, True)
    world.tick(leader, world.now)
    last = world.tick(leader, world.now)
    assert (last.claimed, last.more) == (2, False)


def test_claims_stop_at_the_backlog_of_a_queue_and_go_on_when_there_is_room() -> None:
    """R143, R062: a full queue holds back its own rows and nobody else's."""
    world = World()
    for n in range(20):
        world.store.owe(START - n * SECOND)
    other = world.store.owe(START, queue="mail")
    leader = world.scheduler(batch=2, max_backlog=6, queues=("default", "mail"))

    report = world.tick(leader, START)
    assert (len(world.store.in_state(State.ENQUEUED)), report.more) == (7, False)
    assert other.state is State.ENQUEUED
    assert not world.tick(leader, START + SECOND).promoted

    world.work_off(5)
    world.tick(leader, START + 2 * SECOND)
    # A batch of two may overshoot a limit of six by one.
    assert len(world.server.streams["ns:q:default:0"]) == 7


def test_an_occurrence_for_a_full_queue_waits_as_pending_and_keeps_its_instant() -> None:
    """R143: the occurrence is recorded on time, whatever the queue says."""
    world = World()
    plan = every_minute(world)
    world.store.owe(START)
    leader = world.scheduler(max_backlog=1)
    world.tick_through(leader, START + 30 * SECOND)
    row = world.store.runs[scheduled(plan.uid, START + 30 * SECOND)]
    assert row.state is State.PENDING

    world.work_off()
    world.tick(leader, START + 31 * SECOND)
    assert row.state is State.ENQUEUED
    assert row.scheduled_for == START + 30 * SECOND


def test_one_full_pass_goes_on_until_nothing_is_due_and_hands_the_lease_back() -> None:
    """``--once``: also where one schedule owes more than a batch of occurrences."""
    world = World()
    world.store.plans.append(Plan("seconds", Every(seconds=1, anchor=START), START, ALLOW))
    world.now = START + 2500 * SECOND
    report = world.scheduler().once()
    assert (report.fired, report.more) == (2500, False)
    assert world.server.lease is None
    assert len(world.server.order) == 2500


def test_one_full_pass_beside_a_leader_does_nothing() -> None:
    world = World()
    world.store.owe(START)
    world.server.lease = ("a", world.monotonic() + 5)
    assert not world.scheduler("b").once().leading
    assert not world.server.added
    assert world.server.lease[0] == "a"


# -- trouble --------------------------------------------------------------------------------------------------------


def test_nothing_is_added_while_the_rows_cannot_be_written() -> None:
    """R066: the database away means that nothing is sent blindly; it goes on where it stopped."""
    world = World()
    every_minute(world)
    leader = world.scheduler()
    world.tick_through(leader, START + 29 * SECOND)
    world.store.away = True
    with pytest.raises(StoreUnavailable):
        world.tick(leader, START + 30 * SECOND)
    assert not world.server.added
    world.store.away = False
    assert world.tick(leader, START + 31 * SECOND).promoted == 1


def test_what_was_claimed_while_redis_went_away_is_handed_over_when_it_is_back() -> None:
    """R058, R100."""
    world = World()
    every_minute(world)
    leader = world.scheduler()
    world.tick_through(leader, START + 29 * SECOND)
    once_at(world, "promote", lambda: setattr(world.server, "away", True))
    with pytest.raises(BrokerUnavailable):
        world.tick(leader, START + 30 * SECOND)
    assert world.store.in_state(State.CLAIMED)
    world.server.away = False
    world.tick_through(leader, START + 36 * SECOND)
    assert world.store.in_state(State.ENQUEUED)
    assert set(world.server.added.values()) == {1}


def test_a_row_that_redis_refuses_fails_with_its_reason_and_the_others_are_sent() -> None:
    """R072."""
    world = World()
    good, bad = world.store.owe(START), world.store.owe(START)
    world.server.refused.add(bad.fire_id)
    world.tick(world.scheduler(), START)
    assert good.state is State.ENQUEUED
    assert (bad.state, bad.reason_code) == (State.FAILED, "unwritable")


def test_lost_entries_come_back_within_the_minute_and_leftovers_go() -> None:
    """PROTOCOL 2.3, step 6: both ways of reconciling, and what is foreign is left alone."""
    world = World()
    lost, left = world.store.owe(START), world.store.owe(START)
    leader = world.scheduler()
    world.tick(leader, START)
    world.server.streams[lost.stream].pop(lost.entry_id)
    left.state = State.CANCELLED
    foreign = {b"v": b"1", b"id": b"theirs", b"task": b"t", b"payload": b"{}"}
    world.server.add({**foreign, b"enqueued_at": b"1", b"attempt": b"0"})

    assert world.tick(leader, START + 59 * SECOND).reconciled == 0
    assert world.tick(leader, START + 61 * SECOND).reconciled == 1

    assert sorted(world.server.order) == sorted([lost.fire_id, "theirs"])
    assert lost.promotion == 1


# -- the loop -------------------------------------------------------------------------------------------------------


def test_the_loop_sleeps_no_longer_than_until_the_next_instant() -> None:
    """An idle leader looks again at the next due instant, or after a piece of its interval that a signal can end."""
    world = World()
    world.store.owe(START + 0.05 * SECOND)
    leader = world.scheduler()
    once_at(world, "wait", leader.stop)
    leader.run()
    broker = leader._broker
    assert broker.slept == [("leader", pytest.approx(0.05))]  # type: ignore[attr-defined]
    assert world.server.lease is None


def test_a_standby_waits_for_the_hand_over() -> None:
    world = World()
    world.server.lease = ("a", world.monotonic() + 5)
    standby = world.scheduler("b")
    once_at(world, "wait_for_lease", standby.stop)
    standby.run()
    assert [kind for kind, _ in standby._broker.slept] == ["standby"]  # type: ignore[attr-defined]


def test_the_loop_outlives_a_dependency_that_is_away() -> None:
    """R100: no restart is needed, and the same loop goes on."""
    world = World()
    world.store.owe(START)
    broker = world.server.scheduler()
    leader = Scheduler(world.store, broker, Clock(world), Options("a"), time.monotonic)
    world.server.away = True
    seen: list[str] = []

    def on_call(name: str) -> None:
        seen.append(name)
        world.server.away = len(seen) < 2
        if name == "wait":
            leader.stop()

    world.server.on_call = on_call
    leader.run()
    assert seen[:2] == ["acquire", "acquire"]
    assert world.store.in_state(State.ENQUEUED)
