"""One row that cannot be: it is marked with the reason, and everything else goes on, on time.

Rows are broken the way rows break: by ``queryset.update``, by SQL, by a restored dump, never by our own forms.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from smallage_django.models import DelayedRun, Run, Schedule
from smallage_django.scheduler import Scheduler
from smallage_django.store.scheduling import SchedulingStore
from tests.support.memory_transport import MemoryTransport
from tests.support.memory_world import World
from tests.support.runs import make_run
from tests.support.schedules import MINUTE, NOON, SECOND, delayed, schedule

pytestmark = pytest.mark.django_db

SQLITE = connection.vendor == "sqlite"
#: What a column of instants can hold that Python cannot, by database.
UNREADABLE = {
    "postgresql": ["infinity", "-infinity", "10000-01-01 00:00:00+00", "0044-03-15 00:00:00+00 BC"],
    "sqlite": ["garbage", "10000-01-01 00:00:00", "", "0000-00-00 00:00:00"],
}.get(connection.vendor, ["0000-00-00 00:00:00"])


@pytest.fixture
def world() -> World:
    facts = {"host": "h", "pid": 1, "version": "0"}
    store: Any = SchedulingStore("default")
    return World(now=NOON - 20 * SECOND, store=store, server=MemoryTransport(), facts=facts)


def put(row: Any, column: str, value: Any) -> None:
    """Write a column as any client of the database can."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = ''")
        table = row._meta.db_table
        cursor.execute(f"UPDATE {table} SET {column} = %s WHERE id = %s", [value, row.pk])


def lead(world: World) -> Scheduler:
    """A leader that has planned what there is."""
    scheduler = world.scheduler(lease_ttl=timedelta(minutes=10))
    world.tick(scheduler, world.now)
    return scheduler


def state_of(row: Schedule) -> tuple[str, str]:
    return Schedule.objects.values_list("state", "state_reason").get(pk=row.pk)


def instants_of(row: Schedule) -> list[Any]:
    runs = Run.objects.filter(schedule_id=row.pk).order_by("scheduled_for")
    return list(runs.values_list("scheduled_for", flat=True))


def assert_only_bad_is_broken(world: World, leader: Scheduler, bad: Schedule) -> str:
    """Two minutes go by, and the good schedules fire in both; the reason that the bad one bears."""
    for at in (NOON, NOON + MINUTE):
        world.tick(leader, at)
    for name in ("before", "after"):
        assert instants_of(Schedule.objects.get(name=name)) == [NOON, NOON + MINUTE]
    assert instants_of(bad) == []
    state, reason = state_of(bad)
    assert state == "broken"
    return reason


def three(**values: Any) -> Schedule:
    """Two good schedules with one in the middle that is to be broken."""
    schedule("before", overlap_policy="allow")
    bad = schedule("bad", **values)
    schedule("after", overlap_policy="allow")
    return bad


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"expression": "99 * * * *"}, "99"),
        ({"expression": ""}, ""),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
        ({"timezone": "../etc/passwd"}, "passwd"),
        ({"kind": "moonphase"}, "moonphase"),
        ({"kind": "interval"}, "interval"),
        ({"kind": "interval", "every": 2_000_000_000, "unit": "years"}, ""),
        ({"kind": "interval", "every": 1, "unit": "fortnights"}, "fortnights"),
        ({"args": {"a": 1}}, "args"),
        ({"kwargs": [1]}, "kwargs"),
        ({"task": "no.such.task"}, "no.such.task"),
        ({"task": "os.system"}, "os.system"),
        ({"missed_policy": "sometimes"}, "sometimes"),
        ({"overlap_policy": "maybe"}, "maybe"),
        ({"misfire_grace": timedelta(seconds=-1)}, "misfire_grace"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
    ],
)
@pytest.mark.parametrize("when", ["new", "in use"])
def test_a_row_that_cannot_be_is_marked_and_the_others_fire(
    world: World, values: dict[str, Any], told: str, when: str
) -> None:
    """R031, R072: rule, zone, arguments, task, policy; in a new row, or in one that has worked so far."""
    bad = three()
    if when == "new":
        Schedule.objects.filter(pk=bad.pk).update(**values)
    leader = lead(world)
    if when == "in use":
        Schedule.objects.filter(pk=bad.pk).update(**values)
    reason = assert_only_bad_is_broken(world, leader, bad)
    assert told in reason
    assert reason


@pytest.mark.parametrize("value", UNREADABLE)
@pytest.mark.parametrize("column", ["starts_at", "ends_at", "paused_until", "anchor", "created_at"])
def test_an_instant_that_python_cannot_hold_breaks_its_own_row_only(
    world: World, column: str, value: str
) -> None:
    bad = three()
    leader = lead(world)
    put(bad, column, value)
    world.tick(leader, NOON - 10 * SECOND)
    if column == "created_at":
        # No input of a plan that was made: it is seen when the row is next planned.
        Schedule.objects.filter(pk=bad.pk).update(expression="*/1 * * * *")
        world.tick(leader, NOON - 5 * SECOND)
    assert "read" in assert_only_bad_is_broken(world, leader, bad)


@pytest.mark.parametrize("value", UNREADABLE)
@pytest.mark.parametrize("column", ["next_due_at", "accounted_until"])
def test_a_spoilt_column_of_the_schedulers_own_stops_no_other_row(
    world: World, column: str, value: str
) -> None:
    three()
    bad = Schedule.objects.get(name="bad")
    leader = lead(world)
    put(bad, column, value)
    for at in (NOON, NOON + MINUTE):
        world.tick(leader, at)
    for name in ("before", "after"):
        assert instants_of(Schedule.objects.get(name=name)) == [NOON, NOON + MINUTE]


@pytest.mark.parametrize("column", ["args", "kwargs"])
def test_arguments_that_are_no_json_break_their_own_row_only(world: World, column: str) -> None:
    """SQLite's JSON is text behind a check that a restore may pass by; elsewhere it is at least JSON."""
    bad = three()
    leader = lead(world)
    with connection.cursor() as cursor:
        if SQLITE:
            cursor.execute("PRAGMA ignore_check_constraints = ON")
        put(bad, column, "{no json" if SQLITE else '"text"')
        if SQLITE:
            cursor.execute("PRAGMA ignore_check_constraints = OFF")
    assert assert_only_bad_is_broken(world, leader, bad)


def test_a_mended_row_is_planned_anew_and_fires_again(world: World) -> None:
    bad = three()
    Schedule.objects.filter(pk=bad.pk).update(timezone="Mars/Base")
    leader = lead(world)
    assert state_of(bad)[0] == "broken"
    Schedule.objects.filter(pk=bad.pk).update(timezone="UTC")
    world.tick(leader, NOON - SECOND)
    assert state_of(bad) == ("active", "")
    world.tick(leader, NOON)
    assert instants_of(bad) == [NOON]


def test_a_row_whose_arguments_or_task_are_mended_works_again_within_a_minute(
    world: World,
) -> None:
    """They are no inputs of planning: maintenance looks at broken rows again."""
    bad = three(task="no.such.task")
    leader = lead(world)
    Schedule.objects.filter(pk=bad.pk).update(task="tests.app.tasks.noop")
    world.tick(leader, NOON + 41 * SECOND)
    assert state_of(bad) == ("active", "")


def test_every_broken_row_is_logged_with_its_id_and_reported(world: World, caplog: Any) -> None:
    bad = three()
    leader = lead(world)
    Schedule.objects.filter(pk=bad.pk).update(args={"a": 1})
    report = world.tick(leader, NOON)
    assert [text.partition(":")[0] for text in report.broken] == [f"schedule {bad.pk}"]
    assert f"schedule {bad.pk}" in caplog.text


# -- promises and runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [{"args": {"a": 1}}, {"kwargs": [1]}, {"args": [1], "kwargs": [1]}]
)
def test_a_delayed_run_with_arguments_of_the_wrong_shape_stops_no_other(
    world: World, values: dict[str, Any]
) -> None:
    """What cannot be written to a stream is in the row, and the worker says what is wrong with it."""
    bad = delayed(NOON - MINUTE)
    DelayedRun.objects.filter(pk=bad.pk).update(**values)
    good = delayed(NOON - SECOND)
    leader = lead(world)
    world.tick(leader, NOON)
    for row in (good, bad):
        row.refresh_from_db()
        assert (row.state, row.run.state) == ("fired", "enqueued")


@pytest.mark.parametrize("state", ["pending", "claimed", "retrying"])
def test_a_run_with_arguments_of_the_wrong_shape_stops_no_other(world: World, state: str) -> None:
    values = {"state": state, "due_at": NOON - MINUTE, "claimed_at": NOON - MINUTE}
    bad = make_run(**values)
    Run.objects.filter(pk=bad.pk).update(args={"a": 1}, kwargs=[1])
    good = make_run(**values)
    leader = lead(world)
    world.tick(leader, NOON)
    assert set(Run.objects.values_list("pk", "state")) == {
        (good.pk, "enqueued"),
        (bad.pk, "enqueued"),
    }


@pytest.mark.parametrize("value", UNREADABLE)
@pytest.mark.parametrize("column", ["run_at", "deadline"])
def test_a_delayed_run_with_an_unreadable_instant_stops_no_other(
    world: World, column: str, value: str
) -> None:
    bad, good = delayed(NOON - MINUTE), delayed(NOON - SECOND)
    occurring = schedule(overlap_policy="allow")
    put(bad, column, value)
    leader = lead(world)
    world.tick(leader, NOON)
    world.tick(leader, NOON + MINUTE)
    good.refresh_from_db()
    assert good.run.state == "enqueued"
    assert instants_of(occurring) == [NOON, NOON + MINUTE]
    # One that is never due waits; one that is due and cannot be read is put aside, with the reason.
    state, reason = DelayedRun.objects.values_list("state", "reason").get(pk=bad.pk)
    assert state == "waiting" or (state == "cancelled" and "read" in reason)


@pytest.mark.parametrize("value", UNREADABLE)
@pytest.mark.parametrize("column", ["due_at", "scheduled_for", "start_deadline_at", "claimed_at"])
@pytest.mark.parametrize("state", ["pending", "claimed"])
def test_a_run_with_an_unreadable_instant_stops_no_other(
    world: World, state: str, column: str, value: str
) -> None:
    values = {"state": state, "due_at": NOON - MINUTE, "claimed_at": NOON - MINUTE}
    bad, good = make_run(**values), make_run(**values)
    occurring = schedule(overlap_policy="allow")
    put(bad, column, value)
    leader = lead(world)
    world.tick(leader, NOON)
    world.tick(leader, NOON + MINUTE)
    assert Run.objects.values_list("state", flat=True).get(pk=good.pk) == "enqueued"
    assert instants_of(occurring) == [NOON, NOON + MINUTE]
