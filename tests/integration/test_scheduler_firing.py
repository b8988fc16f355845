"""Firing over the real rows: what is inserted, what is linked, and what a second decision finds.

One suite for both kinds of bulk statements: PostgreSQL's own, and those that every database understands.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from smallage_django.domain.identity import scheduled
from smallage_django.models import DelayedRun, Outage, Run, Schedule, ScheduleRevision
from smallage_django.querysets import RunQuerySet
from smallage_django.store import claiming, delaying, firing
from smallage_django.store.bulk import portable_promoting
from smallage_django.store.scheduling import SchedulingStore
from tests.support.runs import make_run
from tests.support.schedules import MINUTE, NOON, SECOND, delayed, facts, one_pass, schedule

pytestmark = pytest.mark.django_db

BULKS = ["native", "portable"] if connection.vendor == "postgresql" else ["portable"]


@pytest.fixture(params=BULKS)
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SchedulingStore:
    if request.param == "portable":
        for module in (claiming, delaying, firing):
            monkeypatch.setattr(module, "bulk_of", lambda _alias: portable_promoting)
    return SchedulingStore("default")


# -- occurrences ------------------------------------------------------------------------------------------------------


def test_an_occurrence_becomes_a_claimed_run_with_everything_frozen(store: SchedulingStore) -> None:
    """R003, R044, R057, R116: the fire id, the instants and the terms of the moment."""
    row = schedule(
        kwargs={"a": 1},
        queue="mail",
        priority=7,
        max_attempts=5,
        timeout=timedelta(seconds=9),
        late_after=timedelta(seconds=10),
        start_deadline=timedelta(seconds=20),
    )
    number = {"schedule_uid": row.uid, "changes": {}}
    ScheduleRevision.objects.create(number=1, **number)
    latest = ScheduleRevision.objects.create(number=2, **number)
    now = NOON + SECOND

    fired = one_pass(store, now, fence=4)

    run = Run.objects.get()
    assert (fired.inserted, fired.examined, fired.broken) == (1, 1, [])
    assert (run.fire_id, run.kind, run.state) == (scheduled(row.uid, NOON), "schedule", "claimed")
    assert (run.scheduled_for, run.due_at, run.claimed_at) == (NOON, NOON, now)
    assert (run.fence, run.attempt, run.promotion) == (4, 0, 0)
    assert (run.schedule_id, run.schedule_uid, run.schedule_name) == (row.pk, row.uid, "minutely")
    assert (run.queue, run.priority, run.max_attempts) == ("mail", 7, 5)
    assert (run.timeout, run.kwargs, run.args) == (timedelta(seconds=9), {"a": 1}, [])
    assert (run.late_at, run.start_deadline_at) == (NOON + 10 * SECOND, NOON + 20 * SECOND)
    assert (run.revision_id, run.finished_at, run.occurrence_count) == (latest.pk, None, 1)
    (order,) = fired.orders
    assert (order.run_id, order.queue, order.priority) == (run.pk, "mail", 7)
    assert (order.envelope.id, order.envelope.payload) == (run.fire_id, b'{"a":1}')
    row.refresh_from_db()
    assert (row.next_due_at, row.accounted_until, row.runs_fired) == (NOON + MINUTE, NOON, 1)


def test_a_second_pass_at_the_same_instant_fires_nothing(store: SchedulingStore) -> None:
    """R060."""
    schedule()
    one_pass(store, NOON)
    assert one_pass(store, NOON).examined == 0
    assert Run.objects.count() == 1


def test_nothing_fires_before_its_instant(store: SchedulingStore) -> None:
    """R006."""
    schedule()
    assert one_pass(store, NOON - timedelta(microseconds=1)).examined == 0
    assert Schedule.objects.get().next_due_at == NOON


def test_an_occurrence_that_has_a_row_already_is_neither_doubled_nor_handed_over(
    store: SchedulingStore,
) -> None:
    """R004, W8: the unique fire id decides who was first; the schedule goes on."""
    row = schedule()
    make_run(fire_id=scheduled(row.uid, NOON), kind="schedule", schedule=row, state="skipped")
    fired = one_pass(store, NOON)
    assert (fired.inserted, list(fired.orders)) == (0, [])
    row.refresh_from_db()
    assert (row.next_due_at, Run.objects.count()) == (NOON + MINUTE, 1)


def test_what_another_leader_inserted_is_not_taken_for_ours(store: SchedulingStore) -> None:
    row = schedule(overlap_policy="allow")
    make_run(fire_id=scheduled(row.uid, NOON), kind="schedule", schedule=row, fence=3)
    fired = one_pass(store, NOON + MINUTE, fence=2)
    assert [order.envelope.id for order in fired.orders] == [scheduled(row.uid, NOON + MINUTE)]


def test_a_row_that_comes_in_between_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """R004: where a statement cannot tell what it inserted, the fence read back does."""
    row = schedule()
    insert = RunQuerySet.bulk_create

    def outrun(runs: Any, new: Any, **options: Any) -> Any:
        make_run(fire_id=new[0].fire_id, kind="schedule", schedule=row, fence=3)
        return insert(runs, new, **options)

    monkeypatch.setattr(RunQuerySet, "bulk_create", outrun)
    monkeypatch.setattr(firing, "bulk_of", lambda _alias: portable_promoting)
    fired = one_pass(SchedulingStore("default"), NOON, fence=2)
    assert (fired.inserted, list(fired.orders)) == (0, [])
    assert Run.objects.get().fence == 3


def test_a_batch_is_a_batch_and_the_oldest_come_first(store: SchedulingStore) -> None:
    """R062, R063."""
    for n in range(5):
        schedule(f"s{n}", expression=f"{n} 12 * * *")
    store.plan_stale(NOON - SECOND, 1000)
    fired = store.fire_schedules(NOON + 10 * MINUTE, 1, 2, ())
    assert (fired.examined, fired.inserted) == (2, 2)
    assert sorted(Run.objects.values_list("schedule_name", flat=True)) == ["s0", "s1"]


def test_one_that_owes_more_than_a_plan_holds_counts_as_a_full_batch(
    store: SchedulingStore,
) -> None:
    schedule(
        kind="interval", every=1, unit="seconds", anchor=NOON, created_at=NOON, overlap_policy="allow"
    )  # fmt: skip
    store.plan_stale(NOON, 1000)
    now = NOON + 1200 * SECOND
    assert store.fire_schedules(now, 1, 10, ()).examined == 10
    assert store.fire_schedules(now, 1, 10, ()).examined == 1
    assert Run.objects.count() == 1200


def test_a_full_queue_leaves_the_occurrence_pending(store: SchedulingStore) -> None:
    """R143."""
    schedule()
    schedule("other", queue="mail")
    fired = one_pass(store, NOON, full_queues={"default"})
    assert [order.queue for order in fired.orders] == ["mail"]
    assert Run.objects.get(queue="default").state == "pending"
    assert Run.objects.get(queue="default").claimed_at is None


def test_jitter_moves_the_due_instant_of_a_pending_run(store: SchedulingStore) -> None:
    """R029."""
    schedule(jitter=timedelta(seconds=30))
    one_pass(store, NOON)
    run = Run.objects.get()
    assert (run.state, run.scheduled_for) == ("pending", NOON)
    assert NOON < run.due_at < NOON + 30 * SECOND


def test_too_late_to_start_is_recorded_as_expired(store: SchedulingStore) -> None:
    """R045."""
    schedule(start_deadline=timedelta(seconds=15))
    fired = one_pass(store, NOON + 47 * SECOND)
    run = Run.objects.get()
    assert (list(fired.orders), run.state, run.reason_code) == ([], "expired", "start_deadline")
    assert run.finished_at == NOON + 47 * SECOND


def test_a_schedule_ends_with_its_last_run(store: SchedulingStore) -> None:
    schedule(max_runs=2, overlap_policy="allow")
    one_pass(store, NOON + 5 * MINUTE)
    row = Schedule.objects.get()
    assert (Run.objects.count(), row.runs_fired) == (2, 2)
    assert (row.state, row.next_due_at) == ("ended", None)


def test_both_showings_of_a_repeated_hour_have_rows_of_their_own(store: SchedulingStore) -> None:
    """R019."""
    day = NOON.replace(year=2027, month=10, day=30)
    schedule(
        expression="30 2 31 10 *", timezone="Europe/Berlin", fold_policy="both", created_at=day,
        overlap_policy="allow",
    )  # fmt: skip
    store.plan_stale(day, 10)
    store.fire_schedules(day + timedelta(days=1), 1, 10, ())
    instants = Run.objects.order_by("scheduled_for").values_list("scheduled_for", flat=True)
    assert [at.hour * 60 + at.minute for at in instants] == [30, 90]


# -- missed and overlapping -------------------------------------------------------------------------------------------


def down(start: Any, end: Any) -> None:
    Outage.objects.create(started_at=start, ended_at=end, epoch=1)


def test_after_an_outage_the_latest_runs_and_one_gap_row_points_at_it(
    store: SchedulingStore,
) -> None:
    """R038, R039, R041, R145: ten missed minutes are a run and a row for nine."""
    row = schedule()
    store.plan_stale(NOON - SECOND, 10)
    end = NOON + 9 * MINUTE + 5 * SECOND
    down(NOON - SECOND, end)
    one_pass(store, end)
    assert facts() == [("missed", "coalesced", 9), ("claimed", "", 1)]
    gap, run = Run.objects.order_by("scheduled_for")
    assert gap.merged_into_id == run.pk
    assert (gap.first_scheduled_for, gap.scheduled_for) == (NOON, NOON + 8 * MINUTE)
    assert (gap.finished_at, run.fire_id in gap.reason) == (end, True)
    row.refresh_from_db()
    assert row.next_due_at == NOON + 10 * MINUTE


def test_policy_skip_runs_none_of_the_missed_and_says_how_many_they_were(
    store: SchedulingStore,
) -> None:
    """R042."""
    schedule(missed_policy="skip", expression="*/5 * * * *")
    store.plan_stale(NOON - SECOND, 10)
    end = NOON + 12 * MINUTE
    down(NOON - SECOND, end)
    fired = one_pass(store, end)
    assert (list(fired.orders), facts()) == ([], [("missed", "policy_skip", 3)])


def test_policy_all_runs_each_up_to_its_limit(store: SchedulingStore) -> None:
    """R040, R043."""
    schedule(missed_policy="all", catch_up_limit=2, overlap_policy="allow")
    store.plan_stale(NOON - SECOND, 10)
    down(NOON - SECOND, NOON + 5 * MINUTE)
    one_pass(store, NOON + 5 * MINUTE)
    assert facts() == [("claimed", "", 1), ("claimed", "", 1), ("missed", "over_limit", 4)]


def test_two_policies_side_by_side_are_both_right(store: SchedulingStore) -> None:
    """R051: an hourly cleanup runs once, late; a report that is no use late is recorded as missed."""
    schedule("cleanup", expression="0 * * * *")
    schedule("report", expression="0 * * * *", missed_policy="skip")
    store.plan_stale(NOON - SECOND, 10)
    down(NOON - SECOND, NOON + 20 * MINUTE)
    one_pass(store, NOON + 20 * MINUTE)
    states = dict(Run.objects.values_list("schedule_name", "state"))
    assert states == {"cleanup": "claimed", "report": "missed"}


def test_a_leader_that_is_merely_behind_misses_nothing(store: SchedulingStore) -> None:
    schedule(overlap_policy="allow")
    store.plan_stale(NOON - SECOND, 10)
    one_pass(store, NOON + 3 * MINUTE)
    assert facts() == [("claimed", "", 1)] * 4


@pytest.mark.parametrize("state", ["pending", "held", "claimed", "enqueued", "running", "retrying"])
def test_an_unfinished_run_makes_the_next_occurrence_skipped_with_a_link(
    store: SchedulingStore, state: str
) -> None:
    """R046."""
    row = schedule()
    earlier = make_run(kind="schedule", schedule=row, state=state)
    fired = one_pass(store, NOON)
    run = Run.objects.exclude(pk=earlier.pk).get()
    assert (list(fired.orders), run.state, run.reason_code) == ([], "skipped", "overlap")
    assert run.blocked_by_id == earlier.pk
    assert earlier.fire_id in run.reason


def test_a_finished_run_blocks_nothing(store: SchedulingStore) -> None:
    row = schedule()
    make_run(kind="schedule", schedule=row, state="failed")
    assert len(one_pass(store, NOON).orders) == 1


def test_overlap_can_be_allowed(store: SchedulingStore) -> None:
    """R047."""
    row = schedule(overlap_policy="allow")
    make_run(kind="schedule", schedule=row, state="running")
    assert len(one_pass(store, NOON).orders) == 1


def test_of_two_occurrences_in_one_batch_the_first_blocks_the_second(
    store: SchedulingStore,
) -> None:
    schedule()
    store.plan_stale(NOON - SECOND, 10)
    one_pass(store, NOON + MINUTE)
    first, second = Run.objects.order_by("scheduled_for")
    assert (first.state, second.state) == ("claimed", "skipped")
    assert second.blocked_by_id == first.pk


# -- delayed runs -----------------------------------------------------------------------------------------------------


def test_a_delayed_run_becomes_a_run_and_is_linked_to_it(store: SchedulingStore) -> None:
    """R001, R005, R006."""
    row = delayed(key="k", kwargs={"a": "ü"}, priority=-3, traceparent="00-ab-cd-01")
    assert store.fire_delayed(NOON - timedelta(microseconds=1), 1, 10, ()).examined == 0
    fired = store.fire_delayed(NOON, 2, 10, ())
    row.refresh_from_db()
    run = Run.objects.get()
    assert (fired.inserted, fired.expired, fired.examined) == (1, 0, 1)
    assert (row.state, row.run_id, row.key) == ("fired", run.pk, "k")
    assert (run.fire_id, run.kind, run.state) == (f"once:{row.uid.hex}", "delayed", "claimed")
    assert (run.scheduled_for, run.due_at, run.fence) == (NOON, NOON, 2)
    assert fired.orders[0].envelope.payload == '{"a":"ü"}'.encode()
    assert fired.orders[0].envelope.traceparent == "00-ab-cd-01"
    assert store.fire_delayed(NOON, 2, 10, ()).examined == 0


def test_one_past_its_deadline_expires_and_frees_its_key(store: SchedulingStore) -> None:
    """R008: useful until then, and not sent late."""
    late = delayed(deadline=NOON + SECOND, key="late")
    good = delayed(deadline=NOON + MINUTE, key="good")
    fired = store.fire_delayed(NOON + 2 * SECOND, 1, 10, ())
    late.refresh_from_db()
    good.refresh_from_db()
    assert (fired.expired, len(fired.orders)) == (1, 1)
    assert (late.state, late.key, good.state, good.key) == ("expired", None, "fired", "good")
    assert (late.run.state, late.run.reason_code) == ("expired", "deadline")
    assert "useful until" in late.reason
    assert late.run.finished_at == NOON + 2 * SECOND
    assert delayed(key="late").pk


def test_a_delayed_run_for_a_full_queue_waits_as_pending(store: SchedulingStore) -> None:
    """R143."""
    delayed()
    fired = store.fire_delayed(NOON, 1, 10, {"default"})
    assert (list(fired.orders), Run.objects.get().state) == ([], "pending")
    assert DelayedRun.objects.get().state == "fired"


def test_a_delayed_run_of_a_task_unknown_here_is_the_workers_to_judge(
    store: SchedulingStore,
) -> None:
    delayed(task="gone.away.task")
    assert len(store.fire_delayed(NOON, 1, 10, ()).orders) == 1


def test_a_cancelled_one_does_not_fire_and_the_batch_is_bounded(store: SchedulingStore) -> None:
    """R062."""
    delayed(state="cancelled")
    for n in range(3):
        delayed(NOON - n * SECOND)
    assert store.fire_delayed(NOON, 1, 2, ()).examined == 2
    oldest = Run.objects.order_by("scheduled_for").values_list("scheduled_for", flat=True)
    assert list(oldest) == [NOON - 2 * SECOND, NOON - SECOND]
