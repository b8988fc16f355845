"""Contents that only show when a row is fired: the row is put aside, the others fire, and the scheduler lives."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from smallage_django.errors import StoreUnavailable
from smallage_django.models import DelayedRun, LeaderTerm, Run, Schedule
from smallage_django.scheduler import Scheduler
from smallage_django.store.scheduling import SchedulingStore
from tests.support.memory_transport import MemoryTransport
from tests.support.memory_world import World
from tests.support.schedules import MINUTE, NOON, SECOND, delayed, facts, one_pass, schedule

pytestmark = pytest.mark.django_db

HUGE = timedelta(days=106_000_000)
BAD_SCHEDULES: list[dict[str, Any]] = [
    {"backoff": "exp(1)"},
    {"max_attempts": 0},
    {"timeout": timedelta(days=-1)},
    {"timeout": timedelta(days=4000)},
    {"late_after": HUGE},
    {"start_deadline": HUGE},
    {"queue": "no such"},
    {"overlap_policy": "buffer_one"},
]
BAD_PROMISES: list[dict[str, Any]] = [
    {"backoff": "exp(1)"},
    {"max_attempts": 0},
    {"timeout": timedelta(days=-1)},
    {"late_after": HUGE},
    {"queue": "no such"},
]


@pytest.fixture
def store() -> SchedulingStore:
    return SchedulingStore("default")


@pytest.mark.parametrize("moment", ["before it is planned", "after it was planned"])
@pytest.mark.parametrize("values", BAD_SCHEDULES, ids=lambda values: next(iter(values)))
def test_a_schedule_with_contents_that_cannot_be_is_broken_and_the_others_fire(
    store: SchedulingStore, values: dict[str, Any], moment: str
) -> None:
    bad, good = schedule("bad"), schedule("good")
    if moment.startswith("after"):
        store.plan_stale(NOON - 20 * SECOND, 1000)
    Schedule.objects.filter(pk=bad.pk).update(**values)

    one_pass(store, NOON)

    assert list(Run.objects.values_list("schedule_name", flat=True)) == [good.name]
    bad.refresh_from_db()
    assert bad.state == "broken"
    assert next(iter(values)).partition("_")[0] in bad.state_reason
    # It is not called mended in the next round, to break again in the next minute.
    assert store.revive_broken(NOON + SECOND, 1000) == 0


def test_a_row_that_the_database_refuses_is_put_aside_and_the_batch_goes_on(
    store: SchedulingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason is: the batch is repeated row by row, and only the culprit stays out."""
    for name in ("a", "bad", "c"):
        schedule(name)
    store.plan_stale(NOON - 20 * SECOND, 1000)
    from smallage_django.store import firing

    real = firing.bulk_of("default")

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def insert_runs(self, connection: Any, drafts: Any) -> Any:
            if any(draft.schedule_name == "bad" for draft in drafts):
                raise ValueError("out of range")
            return real.insert_runs(connection, drafts)

    monkeypatch.setattr(firing, "bulk_of", lambda _: Refusing())

    fired = store.fire_schedules(NOON, 1, 1000, ())

    assert sorted(Run.objects.values_list("schedule_name", flat=True)) == ["a", "c"]
    assert fired.inserted == len(fired.orders) == 2
    assert [told.partition(": ")[2] for told in fired.broken] == ["out of range"]
    assert Schedule.objects.get(name="bad").state == "broken"


@pytest.mark.parametrize("values", BAD_PROMISES, ids=lambda values: next(iter(values)))
def test_a_promise_with_contents_that_cannot_be_is_cancelled_and_the_others_fire(
    store: SchedulingStore, values: dict[str, Any]
) -> None:
    bad, good = delayed(), delayed()
    DelayedRun.objects.filter(pk=bad.pk).update(**values)

    store.fire_delayed(NOON, 1, 1000, ())

    bad.refresh_from_db()
    good.refresh_from_db()
    assert (bad.state, good.state) == ("cancelled", "fired")
    assert bad.reason
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    "bounds",
    [
        {"ends_at": NOON + timedelta(days=365)},
        {"max_runs": 1000},
        {"starts_at": NOON - timedelta(days=1)},
    ],
    ids=lambda bounds: next(iter(bounds)),
)
def test_a_change_of_bounds_keeps_what_was_owed(
    store: SchedulingStore, bounds: dict[str, Any]
) -> None:
    """Every occurrence is accounted for, whenever somebody edits."""
    row = schedule()
    store.plan_stale(NOON - 20 * SECOND, 1000)
    Schedule.objects.filter(pk=row.pk).update(**bounds)

    one_pass(store, NOON + 5 * SECOND)

    assert list(Run.objects.values_list("scheduled_for", flat=True)) == [NOON]


def test_a_row_that_claims_to_be_old_owes_nothing_from_before_it_was_there(
    store: SchedulingStore,
) -> None:
    """A fixture brings its created_at along; the scheduler was at work all the time and did not see it."""
    store.open_term("leader", NOON - timedelta(days=40), 0)
    store.record_pass(1, NOON - SECOND, "")
    schedule(created_at=NOON - timedelta(days=30), overlap_policy="allow")

    one_pass(store, NOON)

    # The grace is a minute: 11:59 and 12:00 may still have been promised in time.
    assert facts() == [("claimed", "", 1)] * 2


def test_before_the_first_pass_of_all_nobody_was_at_work(store: SchedulingStore) -> None:
    """The missed policy holds for the time between the first schedule and the first scheduler."""
    schedule(created_at=NOON - timedelta(days=30) - 30 * SECOND)
    world = World(
        now=NOON,
        store=store,
        server=MemoryTransport(),
        facts={"host": "h", "pid": 1, "version": "0"},
    )

    world.tick(world.scheduler(lease_ttl=timedelta(minutes=10)), NOON)

    assert sorted(facts()) == [("enqueued", "", 1), ("missed", "coalesced", 30 * 1440)]


def test_a_pass_that_stalls_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is merely slow makes late runs and not one missed row."""
    store: Any = SchedulingStore("default")
    world = World(
        now=NOON - MINUTE,
        store=store,
        server=MemoryTransport(),
        facts={"host": "h", "pid": 1, "version": "0"},
    )
    leader = world.scheduler(lease_ttl=timedelta(minutes=10))
    world.tick(leader, NOON - MINUTE)
    survey = store.survey

    def stall() -> Any:
        world.now += timedelta(seconds=20)
        monkeypatch.setattr(store, "survey", survey)
        return survey()

    def world_seconds() -> float:
        return world.now.timestamp()

    monkeypatch.setattr(store, "survey", stall)
    monkeypatch.setattr(leader, "_monotonic", world_seconds)
    world.tick(leader, NOON - MINUTE + SECOND)

    assert LeaderTerm.objects.get().last_pass_at == NOON - MINUTE + 21 * SECOND


def test_a_pass_that_fails_for_an_unknown_reason_does_not_end_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store: Any = SchedulingStore("default")
    world = World(
        now=datetime(2030, 1, 1, tzinfo=UTC),
        store=store,
        server=MemoryTransport(),
        facts={"host": "h", "pid": 1, "version": "0"},
    )
    scheduler: Scheduler = world.scheduler(lease_ttl=timedelta(minutes=10))
    # It pauses after each failure, by a clock that runs.
    monkeypatch.setattr(scheduler, "_monotonic", time.monotonic)
    survey, calls = store.survey, []

    def break_then_work() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("nobody thought of this")
        if len(calls) == 2:
            raise StoreUnavailable("away")
        scheduler.stop()
        return survey()

    monkeypatch.setattr(store, "survey", break_then_work)

    scheduler.run()

    assert len(calls) == 3
    assert "a pass failed" in caplog.text
    assert not LeaderTerm.objects.filter(ended_at__isnull=True).exists()
