"""A schedule changed by whatever way is seen in the next pass; what the change means is the same for every way."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from smallage_django.models import Run, Schedule
from smallage_django.store.scheduling import SchedulingStore
from smallage_django.store.standing import cancel_runs_of
from tests.support.runs import make_run
from tests.support.schedules import MINUTE, NOON, NOOP, SECOND, facts, one_pass, schedule

pytestmark = pytest.mark.django_db

NEW_RULE = "*/10 * * * *"


@pytest.fixture
def store() -> SchedulingStore:
    return SchedulingStore("default")


def by_queryset(row: Schedule, tmp_path: Path) -> None:
    Schedule.objects.filter(pk=row.pk).update(expression=NEW_RULE)


def by_save(row: Schedule, tmp_path: Path) -> None:
    row.refresh_from_db()
    row.expression = NEW_RULE
    row.save()


def by_sql(row: Schedule, tmp_path: Path) -> None:
    with connection.cursor() as cursor:
        table = Schedule._meta.db_table
        cursor.execute(f"UPDATE {table} SET expression = %s WHERE id = %s", [NEW_RULE, row.pk])


def by_loaddata(row: Schedule, tmp_path: Path) -> None:
    path = tmp_path / "schedules.json"
    call_command("dumpdata", "smallage_django.schedule", output=str(path), verbosity=0)
    (found,) = json.loads(path.read_text())
    found["fields"]["expression"] = NEW_RULE
    path.write_text(json.dumps([found]))
    call_command("loaddata", str(path), verbosity=0)


@pytest.mark.parametrize("change", [by_queryset, by_save, by_sql, by_loaddata])
def test_a_changed_rule_is_seen_in_the_next_pass_and_counts_from_now(
    store: SchedulingStore, change: Callable[[Schedule, Path], None], tmp_path: Path
) -> None:
    """R074, W11: the old occurrence does not fire any more, and the new rule owes nothing from before."""
    row = schedule(expression="7 * * * *")
    one_pass(store, NOON)

    change(row, tmp_path)
    assert store.survey().stale
    fired = one_pass(store, NOON + 8 * MINUTE)

    assert (fired.inserted, Run.objects.count()) == (0, 0)
    row.refresh_from_db()
    assert (row.next_due_at, row.state, row.is_stale) == (NOON + 10 * MINUTE, "active", False)
    assert one_pass(store, NOON + 10 * MINUTE).inserted == 1


def test_a_change_cancels_what_waits_for_a_later_instant_and_keeps_what_was_owed(
    store: SchedulingStore,
) -> None:
    """R074: no ghost of the old rule."""
    row = schedule()
    store.plan_stale(NOON - SECOND, 10)
    of_it = {"kind": "schedule", "schedule": row, "claimed_at": None}
    coming = make_run(state="pending", due_at=NOON + MINUTE, **of_it)
    owed = make_run(state="pending", due_at=NOON - MINUTE, **of_it)
    manual = make_run(state="pending", due_at=NOON + MINUTE, **{**of_it, "kind": "manual"})
    by_queryset(row, Path())
    store.plan_stale(NOON, 10)
    states = dict(Run.objects.values_list("pk", "reason_code"))
    assert states == {coming.pk: "rule_changed", owed.pk: "", manual.pk: ""}
    assert Run.objects.get(pk=coming.pk).finished_at == NOON


def test_what_is_no_input_of_planning_can_be_changed_without_a_new_plan(
    store: SchedulingStore,
) -> None:
    row = schedule()
    one_pass(store, NOON - SECOND)
    Schedule.objects.filter(pk=row.pk).update(description="x", kwargs={"a": 1}, queue="mail")
    assert not store.survey().stale
    (order,) = one_pass(store, NOON).orders
    assert (order.queue, order.envelope.payload) == ("mail", b'{"a":1}')


def test_saving_fires_nothing_and_changes_no_column_of_the_schedulers(
    store: SchedulingStore,
) -> None:
    """Neither a new row, nor one saved again unchanged, nor one whose form was open while it fired."""
    row = schedule()
    one_pass(store, NOON)
    opened = Schedule.objects.get(pk=row.pk)
    one_pass(store, NOON + MINUTE)
    opened.save()
    one_pass(store, NOON + MINUTE)
    one_pass(store, NOON + 90 * SECOND)
    assert Run.objects.count() == 2
    instants = Run.objects.values_list("scheduled_for", flat=True)
    assert len(set(instants)) == 2


def test_a_new_row_owes_nothing_from_before_its_creation_and_everything_since(
    store: SchedulingStore,
) -> None:
    """R034: also what came between its creation and the first pass that saw it."""
    schedule(created_at=NOON + MINUTE + SECOND, overlap_policy="allow")
    one_pass(store, NOON + 3 * MINUTE)
    instants = list(Run.objects.order_by("scheduled_for").values_list("scheduled_for", flat=True))
    assert instants == [NOON + 2 * MINUTE, NOON + 3 * MINUTE]


def test_editing_forth_and_back_cannot_fire_one_occurrence_twice(store: SchedulingStore) -> None:
    row = schedule()
    one_pass(store, NOON)
    by_queryset(row, Path())
    one_pass(store, NOON)
    Schedule.objects.filter(pk=row.pk).update(expression="* * * * *")
    one_pass(store, NOON)
    assert Run.objects.count() == 1


# -- pausing ----------------------------------------------------------------------------------------------------------


def test_paused_time_owes_nothing(store: SchedulingStore) -> None:
    """R141: off for three minutes and on again, by ``queryset.update``; nothing is missed."""
    row = schedule(overlap_policy="allow")
    one_pass(store, NOON)
    Schedule.objects.filter(pk=row.pk).update(enabled=False)
    for n in range(1, 4):
        one_pass(store, NOON + n * MINUTE)
    row.refresh_from_db()
    assert (row.state, row.next_due_at, Run.objects.count()) == ("paused", None, 1)

    Schedule.objects.filter(pk=row.pk).update(enabled=True)
    one_pass(store, NOON + 3 * MINUTE + SECOND)
    row.refresh_from_db()
    assert (row.state, row.next_due_at) == ("active", NOON + 4 * MINUTE)
    one_pass(store, NOON + 4 * MINUTE)
    assert facts() == [("claimed", "", 1)] * 2


def test_a_pause_with_an_end_ends_by_itself(store: SchedulingStore) -> None:
    row = schedule(paused_until=NOON + 2 * MINUTE)
    one_pass(store, NOON + MINUTE)
    row.refresh_from_db()
    assert (row.state, row.next_due_at) == ("paused", NOON + 2 * MINUTE)
    one_pass(store, NOON + 2 * MINUTE)
    row.refresh_from_db()
    assert (row.state, Run.objects.get().scheduled_for) == ("active", NOON + 2 * MINUTE)


def test_a_window_of_life_is_kept_with_both_its_ends(store: SchedulingStore) -> None:
    """R025."""
    schedule(starts_at=NOON + MINUTE, ends_at=NOON + 2 * MINUTE, overlap_policy="allow")
    one_pass(store, NOON + 9 * MINUTE)
    instants = list(Run.objects.order_by("scheduled_for").values_list("scheduled_for", flat=True))
    assert instants == [NOON + MINUTE, NOON + 2 * MINUTE]
    assert Schedule.objects.get().state == "ended"


def test_one_whose_end_comes_before_its_next_occurrence_has_ended(store: SchedulingStore) -> None:
    schedule(kind="interval", every=1, unit="weeks", anchor=NOON, ends_at=NOON - MINUTE)
    store.plan_stale(NOON, 10)
    assert Schedule.objects.values_list("state", "next_due_at").get() == ("ended", None)


# -- deleting ---------------------------------------------------------------------------------------------------------


def delete_by_orm(row: Schedule) -> None:
    Schedule.objects.filter(pk=row.pk).delete()


def delete_by_sql(row: Schedule) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {Schedule._meta.db_table} WHERE id = %s", [row.pk])


@pytest.mark.parametrize("delete", [delete_by_orm, delete_by_sql])
def test_deleting_a_schedule_cancels_what_waits_and_keeps_its_record(
    store: SchedulingStore, delete: Callable[[Schedule], None]
) -> None:
    """R074: at once, or in the next round of maintenance; a run that is on its way ends as it ends."""
    row = schedule()
    of_it = {"kind": "schedule", "schedule_id": row.pk, "schedule_name": "minutely"}
    waiting = make_run(state="pending", claimed_at=None, **of_it)
    going = make_run(state="running", **of_it)
    done = make_run(state="succeeded", **of_it)

    delete(row)
    store.cancel_orphans(NOON, 10)
    assert store.cancel_orphans(NOON, 10) == 0

    rows = dict(Run.objects.values_list("pk", "state"))
    assert rows == {waiting.pk: "cancelled", going.pk: "running", done.pk: "succeeded"}
    run = Run.objects.get(pk=waiting.pk)
    assert (run.reason_code, run.schedule_name) == ("schedule_deleted", "minutely")
    assert run.finished_at is not None


def test_the_deleting_step_itself_cancels_what_waits() -> None:
    row = schedule()
    run = make_run(state="held", claimed_at=None, kind="schedule", schedule_id=row.pk)
    assert cancel_runs_of("default", row.pk) == 1
    assert Run.objects.get(pk=run.pk).reason_code == "schedule_deleted"


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_many_changed_rows_are_planned_batch_by_batch_with_few_statements(
    store: SchedulingStore, django_assert_max_num_queries: Any
) -> None:
    """R062: 300 rows, 100 at a time; equal decisions share a statement."""
    Schedule.objects.bulk_create(
        Schedule(
            name=f"s{n}", expression="* * * * *", task=NOOP, created_at=NOON - timedelta(days=1)
        )
        for n in range(300)
    )
    Schedule.objects.update(accounted_until=NOON)
    with django_assert_max_num_queries(8):
        assert store.plan_stale(NOON, 100) == 100
    assert Schedule.objects.filter(is_stale=True).count() == 200
    assert set(Schedule.objects.filter(is_stale=False).values_list("next_due_at", flat=True)) == {
        NOON + MINUTE
    }
