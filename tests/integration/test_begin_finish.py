"""Begin and finish against a real database: who owns an attempt, and whose outcome counts.

Every test runs over each implementation that this database can use.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from smallage_django.domain.lifecycle import Ending, State
from smallage_django.models import Attempt, Heartbeat, Run, RunEvent
from smallage_django.ports import Beginning, Delivery
from smallage_django.store.bulk import portable_working, postgres_working
from smallage_django.store.working import WorkingStore
from tests.support.runs import NOW, STREAM, beat, delivery, finish, letter, make_run

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(seconds=2)


@pytest.fixture(params=["own", "portable"])
def store(request: pytest.FixtureRequest) -> WorkingStore:
    made = WorkingStore("default", silent_after=timedelta(seconds=6))
    if request.param == "portable":
        made._bulk = portable_working
    return made


def begin(
    store: WorkingStore,
    *pairs: tuple[Delivery, Any],
    worker: str = "w1",
    token: str = "t1",
    now: Any = LATER,
) -> Beginning:
    return store.begin(pairs, worker, token, now)


def test_postgresql_has_its_own_statements() -> None:
    own = WorkingStore("default")._bulk

    assert (own is postgres_working) is (connection.vendor == "postgresql")


# -- begin ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.CLAIMED, State.ENQUEUED])
def test_a_waiting_run_is_begun_with_all_that_its_code_needs(
    store: WorkingStore, state: State
) -> None:
    run = make_run(
        state=state.value,
        args=[1, {"a": None}],
        kwargs={"x": "ü", "n": [1.5]},
        timeout=timedelta(seconds=30),
        backoff="constant(3)",
        queue="mail",
        priority=-3,
        max_attempts=5,
        schedule_name="nightly",
        late_at=NOW,
    )
    entry = delivery()

    [begun] = begin(store, (entry, letter(run.fire_id))).begun

    assert begun.delivery is entry
    assert (begun.run_id, begun.fire_id, begun.attempt, begun.token) == (
        run.pk,
        run.fire_id,
        1,
        "t1",
    )
    assert (begun.args, begun.kwargs) == ([1, {"a": None}], {"x": "ü", "n": [1.5]})
    assert begun.timeout == timedelta(seconds=30)
    assert (begun.scheduled_for, begun.due_at, begun.started_at) == (NOW, NOW, LATER)
    assert (begun.queue, begun.priority, begun.max_attempts) == ("mail", -3, 5)
    assert (begun.backoff, begun.schedule_name, begun.late_at) == ("constant(3)", "nightly", NOW)
    run.refresh_from_db()
    assert (run.state, run.attempt, run.worker, run.token) == ("running", 1, "w1", "t1")
    assert (run.stream, run.entry_id) == (STREAM, entry.entry_id)


def test_begin_says_where_the_entry_is_when_the_mark_has_not_come_yet(store: WorkingStore) -> None:
    run = make_run(due_at=NOW)
    entry = delivery(at=NOW + timedelta(milliseconds=250))

    begin(store, (entry, letter(run.fire_id)))

    run.refresh_from_db()
    assert run.enqueued_at == NOW + timedelta(milliseconds=250)
    assert (run.dispatch_lag_ms, run.start_lag_ms) == (250, 2000)
    assert (run.started_at, run.first_started_at) == (LATER, LATER)


def test_what_was_frozen_at_the_first_start_stays(store: WorkingStore) -> None:
    run = make_run(
        state="enqueued",
        attempt=1,
        enqueued_at=NOW,
        dispatch_lag_ms=7,
        start_lag_ms=9,
        first_started_at=NOW,
        reason="attempt 1 of 3 failed",
    )

    [begun] = begin(store, (delivery(at=LATER), letter(run.fire_id))).begun

    run.refresh_from_db()
    assert begun.attempt == run.attempt == 2
    assert (run.enqueued_at, run.first_started_at, run.started_at) == (NOW, NOW, LATER)
    assert (run.dispatch_lag_ms, run.start_lag_ms, run.reason) == (7, 9, "")


def test_a_retry_whose_mark_has_not_come_gets_the_time_of_its_new_entry(
    store: WorkingStore,
) -> None:
    run = make_run(attempt=1, enqueued_at=NOW - timedelta(hours=1), dispatch_lag_ms=7)

    begin(store, (delivery(at=LATER), letter(run.fire_id)))

    run.refresh_from_db()
    assert (run.enqueued_at, run.dispatch_lag_ms) == (LATER, 7)


def test_a_whole_read_is_begun_together(
    store: WorkingStore, django_assert_max_num_queries: Any
) -> None:
    runs = [make_run(kwargs={"n": n}) for n in range(50)]
    pairs = [(delivery(), letter(run.fire_id)) for run in runs]

    with django_assert_max_num_queries(6):
        beginning = begin(store, *pairs)

    assert [begun.kwargs["n"] for begun in beginning.begun] == list(range(50))
    assert Run.objects.filter(state="running", attempt=1).count() == 50


@pytest.mark.parametrize(
    "state",
    ["succeeded", "failed", "missed", "skipped", "expired", "cancelled", "retrying", "held"],
)
def test_an_entry_whose_run_is_over_or_waits_for_another_entry_is_dropped(
    store: WorkingStore, state: str
) -> None:
    run = make_run(state=state)
    entry = delivery()

    assert begin(store, (entry, letter(run.fire_id))) == Beginning(
        begun=[], over=[entry], elsewhere=[], poison=[]
    )
    run.refresh_from_db()
    assert (run.state, run.attempt) == (state, 0)


def test_two_entries_of_one_fire_in_one_read_make_one_attempt(store: WorkingStore) -> None:
    """R113"""
    run = make_run()
    first, second = delivery(), delivery()

    beginning = begin(store, (first, letter(run.fire_id)), (second, letter(run.fire_id)))

    assert [begun.delivery for begun in beginning.begun] == [first]
    assert beginning.over == [second]
    run.refresh_from_db()
    assert (run.attempt, run.entry_id) == (1, first.entry_id)


def test_a_duplicate_of_a_run_that_is_running_is_dropped(store: WorkingStore) -> None:
    """R113"""
    run = make_run()
    begin(store, (delivery(), letter(run.fire_id)))
    beat("w1", LATER)
    duplicate = delivery()

    beginning = begin(store, (duplicate, letter(run.fire_id)), worker="w2", token="t2")

    assert (beginning.begun, beginning.over) == ([], [duplicate])


def test_a_duplicate_for_the_worker_that_runs_it_is_dropped_too(store: WorkingStore) -> None:
    run = make_run()
    begin(store, (delivery(), letter(run.fire_id)))
    duplicate = delivery()

    beginning = begin(store, (duplicate, letter(run.fire_id)), worker="w1", token="t2")

    assert (beginning.begun, beginning.over) == ([], [duplicate])


def test_the_entry_of_a_living_owner_is_left_alone(store: WorkingStore) -> None:
    """R078"""
    run, entry = make_run(), delivery()
    begin(store, (entry, letter(run.fire_id)))
    beat("w1", LATER)

    beginning = begin(store, (entry, letter(run.fire_id)), worker="w2", token="t2")

    assert (beginning.begun, beginning.elsewhere) == ([], [entry])


@pytest.mark.parametrize("how", ["no heartbeat", "stale heartbeat", "stopped"])
def test_the_run_of_a_silent_owner_is_taken_over_and_its_attempt_counted(
    store: WorkingStore, how: str
) -> None:
    """R078"""
    run, entry = make_run(), delivery()
    begin(store, (entry, letter(run.fire_id)))
    if how != "no heartbeat":
        stopped = LATER if how == "stopped" else None
        beat("w1", LATER if stopped else LATER - timedelta(seconds=7), stopped_at=stopped)

    [begun] = begin(store, (entry, letter(run.fire_id)), worker="w2", token="t2").begun

    assert (begun.attempt, begun.worker, begun.token) == (2, "w2", "t2")
    lost = Attempt.objects.get(run=run)
    assert (lost.number, lost.ending, lost.worker) == (1, Ending.LOST, "w1")
    assert lost.error_class == "smallage_django.errors.WorkerLost"
    assert RunEvent.objects.get(run=run).kind == "lost"
    run.refresh_from_db()
    assert (run.state, run.first_started_at) == ("running", LATER)


def test_a_worker_that_was_started_again_under_its_name_takes_over_its_own(
    store: WorkingStore,
) -> None:
    run, entry = make_run(), delivery()
    begin(store, (entry, letter(run.fire_id)))
    beat("w1", LATER)

    [begun] = begin(store, (entry, letter(run.fire_id)), worker="w1", token="t2").begun

    assert begun.attempt == 2


def test_without_an_attempt_left_a_lost_run_fails(store: WorkingStore) -> None:
    run, entry = make_run(max_attempts=1), delivery()
    begin(store, (entry, letter(run.fire_id)))

    beginning = begin(store, (entry, letter(run.fire_id)), worker="w2", token="t2")

    assert (beginning.begun, beginning.over) == ([], [entry])
    run.refresh_from_db()
    assert (run.state, run.reason_code, run.attempt) == ("failed", "worker_lost", 1)
    assert run.finished_at == LATER


def test_asked_again_after_a_lost_answer_it_tells_the_same(store: WorkingStore) -> None:
    run, entry = make_run(max_attempts=1), delivery()
    begin(store, (entry, letter(run.fire_id)))

    [begun] = begin(store, (entry, letter(run.fire_id))).begun

    assert begun.attempt == 1
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    ("kind", "code"), [("schedule", "start_deadline"), ("delayed", "deadline")]
)
def test_a_run_picked_up_after_its_deadline_expires(
    store: WorkingStore, kind: str, code: str
) -> None:
    late = make_run(kind=kind, start_deadline_at=LATER - timedelta(milliseconds=1))
    in_time = make_run(start_deadline_at=LATER)
    entry = delivery()

    beginning = begin(store, (entry, letter(late.fire_id)), (delivery(), letter(in_time.fire_id)))

    assert [begun.fire_id for begun in beginning.begun] == [in_time.fire_id]
    assert beginning.over == [entry]
    late.refresh_from_db()
    assert (late.state, late.reason_code, late.finished_at) == ("expired", code, LATER)


def test_a_run_that_no_worker_manages_to_begin_is_poison(store: WorkingStore) -> None:
    """R080"""
    run, patient = make_run(), make_run()
    entry = delivery(deliveries=6)

    beginning = begin(
        store,
        (entry, letter(run.fire_id)),
        (delivery(deliveries=5), letter(patient.fire_id)),
    )

    assert [begun.fire_id for begun in beginning.begun] == [patient.fire_id]
    assert [item[:2] for item in beginning.poison] == [(entry, "too_many_deliveries")]
    run.refresh_from_db()
    assert (run.state, run.reason_code, run.attempt) == ("failed", "too_many_deliveries", 0)


def test_many_deliveries_of_a_long_run_do_not_end_it(store: WorkingStore) -> None:
    run = make_run()
    entry = delivery()
    begin(store, (entry, letter(run.fire_id)))
    beat("w1", LATER)
    again = delivery(entry_id=entry.entry_id, deliveries=9)

    beginning = begin(store, (again, letter(run.fire_id)), worker="w2", token="t2")

    assert beginning.elsewhere == [again]


def test_a_foreign_entry_gets_a_row_and_is_begun(store: WorkingStore) -> None:
    """R117"""
    entry = delivery(stream="ns:q:mail@5:0")
    foreign = letter("cron:nightly:1893499200000", payload=b'{"a": 1}', attempt=1)

    [begun] = begin(store, (entry, foreign)).begun

    run = Run.objects.get()
    assert (run.fire_id, run.kind, run.queue) == (foreign.id, "enqueue", "mail")
    assert (run.state, run.scheduled_for, run.kwargs) == ("running", NOW, {"a": 1})
    assert (begun.kwargs, begun.attempt, begun.max_attempts) == ({"a": 1}, 2, 3)


def test_a_foreign_id_too_long_for_the_column_keeps_one_row(store: WorkingStore) -> None:
    foreign = letter("cron:" + "long-name-" * 10 + ":1")

    first = begin(store, (delivery(), foreign))
    again = begin(store, (delivery(), foreign), token="t2")

    assert (len(first.begun), len(again.begun), len(again.over)) == (1, 0, 1)
    assert len(Run.objects.get().fire_id) == 63


def test_two_entries_of_one_foreign_id_make_one_run(store: WorkingStore) -> None:
    beginning = begin(store, (delivery(), letter("ab" * 16)), (delivery(), letter("ab" * 16)))

    assert (len(beginning.begun), len(beginning.over)) == (1, 1)


@pytest.mark.parametrize(
    "foreign",
    [
        letter("aa", payload=b"[1]"),
        letter("aa", payload=b"{"),
        letter("aa", payload_ref="file:///x"),
    ],
)
def test_a_foreign_entry_whose_arguments_cannot_be_read_fails_and_is_buried(
    store: WorkingStore, foreign: Any
) -> None:
    """R108"""
    entry = delivery()

    beginning = begin(store, (entry, foreign))

    assert [item[:2] for item in beginning.poison] == [(entry, "bad_arguments")]
    run = Run.objects.get()
    assert (run.state, run.reason_code) == ("failed", "bad_arguments")


# -- finish -----------------------------------------------------------------------------------------------------------


def begun_runs(store: WorkingStore, count: int = 1, **values: Any) -> list[Any]:
    runs = [make_run(**values) for _ in range(count)]
    return list(begin(store, *((delivery(), letter(run.fire_id)) for run in runs)).begun)


def test_outcomes_of_all_kinds_are_written_in_one_batch(store: WorkingStore) -> None:
    """R112"""
    good, bad, again = begun_runs(store, 3)
    due = NOW + timedelta(minutes=1)

    accepted = store.finish(
        [
            finish(good, result={"a": [1, "ü", None, 2.5]}),
            finish(
                bad,
                State.FAILED,
                reason_code="attempts_exhausted",
                reason="attempt 3 of 3 failed",
                error="no",
                error_class="builtins.ValueError",
                traceback="Traceback ...",
                fingerprint="f1",
            ),
            finish(again, State.RETRYING, due_at=due, error="not yet", reason="attempt 1"),
        ]
    )

    assert accepted == {good.run_id, bad.run_id, again.run_id}
    row = Run.objects.get(pk=good.run_id)
    assert (row.state, row.result, row.finished_at) == (
        "succeeded",
        {"a": [1, "ü", None, 2.5]},
        NOW + timedelta(seconds=5),
    )
    assert (row.due_at, row.promotion) == (NOW, 0)
    row = Run.objects.get(pk=bad.run_id)
    assert (row.state, row.reason_code, row.error, row.error_fingerprint) == (
        "failed",
        "attempts_exhausted",
        "no",
        "f1",
    )
    row = Run.objects.get(pk=again.run_id)
    assert (row.state, row.due_at, row.finished_at, row.promotion) == ("retrying", due, None, 1)
    assert row.scheduled_for == NOW
    written = Attempt.objects.order_by("run_id").values_list(
        "run_id", "number", "ending", "traceback"
    )
    assert list(written) == [
        (bad.run_id, 1, "failed", "Traceback ..."),
        (again.run_id, 1, "failed", ""),
    ]


def test_a_run_that_succeeds_leaves_no_attempt_row_and_sql_null_for_none(
    store: WorkingStore,
) -> None:
    [begun] = begun_runs(store)

    store.finish([finish(begun)])

    assert not Attempt.objects.exists()
    assert Run.objects.filter(result__isnull=True, state="succeeded").exists()


def test_the_outcome_of_a_worker_that_lost_its_run_is_refused(store: WorkingStore) -> None:
    run, entry = make_run(), delivery()
    [lost] = begin(store, (entry, letter(run.fire_id))).begun
    [now_ours] = begin(store, (entry, letter(run.fire_id)), worker="w2", token="t2").begun

    assert store.finish([finish(lost, State.FAILED, error="late")]) == set()
    assert store.finish([finish(now_ours, result=1)]) == {run.pk}
    assert store.finish([finish(lost)]) == set()

    run.refresh_from_db()
    assert (run.state, run.result, run.attempt) == ("succeeded", 1, 2)
    assert [item.ending for item in Attempt.objects.all()] == ["lost"]


def test_writing_an_outcome_again_after_a_lost_answer_is_accepted_and_changes_nothing(
    store: WorkingStore,
) -> None:
    good, again = begun_runs(store, 2)
    batch = [
        finish(good, result=1),
        finish(again, State.RETRYING, due_at=NOW + timedelta(minutes=1)),
    ]
    store.finish(batch)

    assert store.finish(batch) == {good.run_id, again.run_id}
    assert Run.objects.get(pk=again.run_id).promotion == 1
    assert Attempt.objects.count() == 1


def test_a_cancelled_run_does_not_become_a_success(store: WorkingStore) -> None:
    [begun] = begun_runs(store)
    Run.objects.update(state="cancelled")

    assert store.finish([finish(begun)]) == set()


def test_text_that_no_column_takes_is_mended_and_bounded(store: WorkingStore) -> None:
    """PEER_FAULTS J1, J2"""
    [begun] = begun_runs(store)
    told = "a\0b\ud800" + "x" * 5000

    store.finish(
        [
            finish(
                begun,
                State.FAILED,
                error=told,
                traceback="start" + "\0" * 9 + "y" * 100_000 + "end",
                reason=told,
                error_class="z" * 300,
            )
        ]
    )

    row, attempt = Run.objects.get(), Attempt.objects.get()
    assert row.error.startswith("ab?xxx")
    assert len(row.error) == 2000
    assert attempt.traceback.startswith("starty")
    assert attempt.traceback.endswith("yend")
    assert len(attempt.traceback) <= 32_000
    assert len(attempt.error_class) == 255


def test_an_outcome_whose_details_the_database_refuses_is_recorded_without_them(
    store: WorkingStore,
) -> None:
    """PEER_FAULTS J3: the writer does not crash, and success stays success."""
    [begun] = begun_runs(store)

    assert store.finish([finish(begun, result={"x": float("nan")})]) == {begun.run_id}

    row = Run.objects.get()
    assert (row.state, row.result) == ("succeeded", None)
    assert "could not be stored" in row.reason


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_a_run_given_back_has_not_been_started(store: WorkingStore) -> None:
    run, entry = make_run(), delivery()
    [begun] = begin(store, (entry, letter(run.fire_id))).begun

    assert store.give_back([begun], LATER) == 1

    run.refresh_from_db()
    assert (run.state, run.attempt, run.worker, run.token) == ("claimed", 0, "", "")
    assert (run.first_started_at, run.start_lag_ms, run.claimed_at) == (None, None, LATER)
    [begun] = begin(store, (entry, letter(run.fire_id)), worker="w2", token="t2").begun
    assert begun.attempt == 1


def test_giving_back_what_another_worker_took_over_changes_nothing(store: WorkingStore) -> None:
    run, entry = make_run(), delivery()
    [lost] = begin(store, (entry, letter(run.fire_id))).begun
    begin(store, (entry, letter(run.fire_id)), worker="w2", token="t2")

    assert store.give_back([lost], LATER) == 0


def test_only_what_has_not_begun_can_be_failed_unstarted(store: WorkingStore) -> None:
    waiting = make_run()
    [begun] = begun_runs(store)

    assert store.fail_unstarted(waiting.fire_id, NOW, "unknown_task", "no such task")
    assert not store.fail_unstarted(begun.fire_id, NOW, "unknown_task", "no such task")
    assert Run.objects.get(pk=waiting.pk).reason_code == "unknown_task"


def test_a_heartbeat_is_one_row_for_one_process(store: WorkingStore) -> None:
    facts = {"name": "w1", "host": "h", "pid": 3, "version": "1", "queues": ["a"], "busy": 2}

    store.beat(facts, NOW)
    store.beat({**facts, "busy": 0, "stopped_at": LATER}, LATER)

    row = Heartbeat.objects.get()
    assert (row.name, row.role, row.queues, row.busy) == ("w1", "worker", ["a"], 0)
    assert (row.started_at, row.beat_at, row.stopped_at) == (NOW, LATER, LATER)
