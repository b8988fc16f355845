"""Claim, recover, mark, reconcile, terms: each a conditional update that touches what it should and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from smallage_django.domain.identity import epoch_ms
from smallage_django.domain.lifecycle import State
from smallage_django.domain.planning import Outage as OutageValue
from smallage_django.errors import LeaseLost
from smallage_django.models import Attempt, Heartbeat, LeaderTerm, Outage, Run, RunEvent
from smallage_django.ports import Presence, Receipt, Survey
from smallage_django.store import claiming
from smallage_django.store.bulk import portable_promoting
from smallage_django.store.scheduling import SchedulingStore
from tests.support.runs import beat, make_run
from tests.support.schedules import MINUTE, NOON, SECOND, delayed, schedule

pytestmark = pytest.mark.django_db

BULKS = ["native", "portable"] if connection.vendor == "postgresql" else ["portable"]


@pytest.fixture(params=BULKS)
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SchedulingStore:
    if request.param == "portable":
        monkeypatch.setattr(claiming, "bulk_of", lambda _alias: portable_promoting)
    return SchedulingStore("default")


def pending(due_at: Any = NOON, **values: Any) -> Run:
    return make_run(state="pending", claimed_at=None, due_at=due_at, scheduled_for=due_at, **values)


def receipt(run: Run, at: Any = NOON, number: int = 0, stream: str = "s") -> Receipt:
    return Receipt(run.pk, run.fire_id, stream, f"{epoch_ms(at)}-{number}")


def again(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


# -- claim ------------------------------------------------------------------------------------------------------------


def test_claims_go_by_priority_then_instant_then_id_and_no_further_than_the_limit(
    store: SchedulingStore,
) -> None:
    """R057, R062, R063."""
    young = pending(NOON - SECOND)
    old = pending(NOON - MINUTE)
    low = pending(NOON - MINUTE, priority=-5)
    high = pending(NOON, priority=5)
    coming = pending(NOON + SECOND, priority=9)

    fired = store.claim_due(NOON, 7, 3, ())

    assert [order.run_id for order in fired.orders] == [high.pk, old.pk, young.pk]
    assert (again(high).state, again(high).fence, again(high).claimed_at) == ("claimed", 7, NOON)
    assert (again(low).state, again(coming).state) == ("pending", "pending")
    assert [order.run_id for order in store.claim_due(NOON, 7, 3, ()).orders] == [low.pk]


def test_a_retry_is_claimed_with_its_attempt_and_its_promotion(store: SchedulingStore) -> None:
    run = make_run(state="retrying", attempt=2, promotion=1, due_at=NOON, reason="was too busy")
    (order,) = store.claim_due(NOON, 1, 10, ()).orders
    assert (order.envelope.attempt, order.promotion) == (2, 1)
    assert again(run).reason == ""


def test_rows_of_a_full_queue_are_left_where_they_are(store: SchedulingStore) -> None:
    """R143."""
    pending()
    other = pending(queue="mail")
    fired = store.claim_due(NOON, 1, 10, {"default"})
    assert [order.run_id for order in fired.orders] == [other.pk]


@pytest.mark.parametrize("state", ["held", "claimed", "enqueued", "running", "succeeded", "failed"])
def test_only_what_waits_is_claimed(store: SchedulingStore, state: str) -> None:
    make_run(state=state, due_at=NOON)
    assert store.claim_due(NOON, 1, 10, ()).examined == 0


def test_what_would_start_too_late_expires_instead(store: SchedulingStore) -> None:
    """R008, R045: with the reason of its kind; one that has started once is let go on."""
    deadline = NOON - SECOND
    run = pending(NOON - MINUTE, start_deadline_at=deadline)
    promise = pending(NOON - MINUTE, start_deadline_at=deadline, kind="delayed")
    started = make_run(
        state="retrying", due_at=NOON, start_deadline_at=deadline, first_started_at=deadline
    )
    fired = store.claim_due(NOON, 1, 10, ())
    assert (fired.expired, fired.examined) == (2, 3)
    assert [order.run_id for order in fired.orders] == [started.pk]
    assert [again(row).reason_code for row in (run, promise)] == ["start_deadline", "deadline"]
    assert (again(run).state, again(run).finished_at) == ("expired", NOON)


def test_old_claims_are_taken_over_whatever_their_fence(store: SchedulingStore) -> None:
    """R058: also those of an enqueue, which carry no fence."""
    enqueue = make_run(fence=0, claimed_at=NOON - 6 * SECOND)
    leader = make_run(fence=3, claimed_at=NOON - 7 * SECOND, promotion=2)
    fresh = make_run(fence=3, claimed_at=NOON - SECOND)
    orders = store.recover_claims(NOON - 5 * SECOND, NOON, 4, 10)
    assert {order.run_id: order.promotion for order in orders} == {enqueue.pk: 0, leader.pk: 2}
    assert [again(row).fence for row in (enqueue, leader, fresh)] == [4, 4, 3]
    assert again(leader).claimed_at == NOON
    assert store.recover_claims(NOON - 5 * SECOND, NOON, 4, 10) == []


def test_a_claim_without_an_instant_is_seen_and_taken_over(store: SchedulingStore) -> None:
    """R058: such a row can only be made by SQL."""
    made = make_run(claimed_at=None)
    seen = store.survey().oldest_claim_at
    assert seen is not None
    assert seen < NOON - MINUTE
    [order] = store.recover_claims(NOON - 5 * SECOND, NOON, 4, 10)
    assert order.run_id == made.pk
    assert (again(made).fence, again(made).claimed_at) == (4, NOON)
    assert store.survey().oldest_claim_at == NOON


# -- mark -------------------------------------------------------------------------------------------------------------


def test_a_mark_records_entry_and_lag(store: SchedulingStore) -> None:
    """R140: the entry's own milliseconds tell when it was handed over."""
    runs = [make_run(fence=1, due_at=NOON - n * SECOND) for n in range(2)]
    at = NOON + timedelta(milliseconds=250)
    marked = store.mark_enqueued(1, [receipt(run, at, n) for n, run in enumerate(runs)])
    assert marked == 2
    run = again(runs[1])
    assert (run.state, run.stream, run.entry_id) == ("enqueued", "s", f"{epoch_ms(at)}-1")
    assert (run.enqueued_at, run.dispatch_lag_ms) == (at, 1250)


def test_the_lag_of_the_first_hand_over_stays(store: SchedulingStore) -> None:
    run = make_run(fence=1, dispatch_lag_ms=17)
    store.mark_enqueued(1, [receipt(run, NOON + MINUTE)])
    assert again(run).dispatch_lag_ms == 17


def test_under_another_fence_a_mark_touches_no_row(store: SchedulingStore) -> None:
    """R065: PROTOCOL 2.4, a leader that was stopped between promote and mark."""
    run = make_run(fence=2)
    assert store.mark_enqueued(1, [receipt(run)]) == 0
    assert (again(run).state, again(run).entry_id) == ("claimed", "")


@pytest.mark.parametrize("state", ["running", "succeeded", "retrying", "cancelled"])
def test_a_mark_that_comes_after_a_fast_worker_touches_nothing(
    store: SchedulingStore, state: str
) -> None:
    run = make_run(fence=1, state=state, entry_id="7-0")
    assert store.mark_enqueued(1, [receipt(run)]) == 0
    assert (again(run).state, again(run).entry_id) == (state, "7-0")


def test_nothing_to_mark_is_no_statement(
    store: SchedulingStore, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        assert store.mark_enqueued(1, [Receipt(1, "x", error="WRONGTYPE")]) == 0


def test_what_redis_refuses_fails_under_our_fence_only(store: SchedulingStore) -> None:
    """R072."""
    mine, other = make_run(fence=1), make_run(fence=2)
    refused = [Receipt(run.pk, run.fire_id, error="WRONGTYPE no stream") for run in (mine, other)]
    assert store.fail_unwritable(1, refused, NOON) == 1
    assert (again(mine).state, again(mine).reason_code) == ("failed", "unwritable")
    assert "WRONGTYPE" in again(mine).reason
    assert again(other).state == "claimed"


# -- reconcile --------------------------------------------------------------------------------------------------------


def enqueued(**values: Any) -> Run:
    return make_run(**{"state": "enqueued", "stream": "s", "entry_id": "5-0", **values})


def presence(run: Run, **values: Any) -> Presence:
    facts = {"stream": run.stream, "entry_id": run.entry_id, **values}
    return Presence(run.pk, run.fire_id, State(run.state), **facts)


def test_entries_are_expected_of_enqueued_runs_and_of_those_whose_owner_is_silent(
    store: SchedulingStore,
) -> None:
    """PROTOCOL 2.3, step 6: a running run with a living owner is left alone, or a flush would double each."""
    beat("alive", NOON)
    beat("silent", NOON - MINUTE)
    beat("stopped", NOON, stopped_at=NOON)
    running = {"state": "running", "stream": "s", "entry_id": "5-0"}
    runs = [enqueued(), *(make_run(worker=w, **running) for w in ("silent", "stopped", "unknown"))]
    make_run(worker="alive", **running)
    make_run(state="succeeded", entry_id="5-0")
    make_run(state="claimed")

    first = store.presences(0, 3, NOON - 6 * SECOND)
    rest = store.presences(first[-1].run_id, 3, NOON - 6 * SECOND)

    assert [item.run_id for item in (*first, *rest)] == [run.pk for run in runs]
    assert first[0] == presence(runs[0])


def test_a_lost_entry_is_claimed_again_as_another_promotion(store: SchedulingStore) -> None:
    run = enqueued(attempt=1, promotion=3)
    (order,) = store.reclaim_missing([presence(run)], NOON, 9)
    assert (order.promotion, order.lost_entry, order.envelope.attempt) == (4, "5-0", 1)
    row = again(run)
    assert (row.state, row.fence, row.promotion, row.claimed_at) == ("claimed", 9, 4, NOON)
    assert RunEvent.objects.get(run=run).kind == "reconciled"


@pytest.mark.parametrize("moved", [{"entry_id": "6-0"}, {"state": "running"}, {"state": "failed"}])
def test_a_row_that_moved_on_meanwhile_is_left_alone(
    store: SchedulingStore, moved: dict[str, str]
) -> None:
    """Compare and set on the lost entry."""
    run = enqueued()
    seen = presence(run)
    Run.objects.filter(pk=run.pk).update(**moved)
    assert store.reclaim_missing([seen], NOON, 9) == []
    assert again(run).promotion == 0
    assert not RunEvent.objects.exists()


def test_the_attempt_of_a_silent_owner_counts_as_lost(store: SchedulingStore) -> None:
    running = {"stream": "s", "entry_id": "5-0", "worker": "w", "started_at": NOON - MINUTE}
    run = make_run(state="running", attempt=1, max_attempts=3, token="t", **running)
    last = make_run(state="running", attempt=1, max_attempts=1, token="u", **running)
    missing = [presence(run), presence(last, attempts_left=False)]

    orders = store.reclaim_missing(missing, NOON, 9)

    assert [order.run_id for order in orders] == [run.pk]
    assert again(run).state == "claimed"
    assert (again(last).state, again(last).reason_code) == ("failed", "worker_lost")
    lost = Attempt.objects.order_by("run_id").values_list("run_id", "number", "ending", "worker")
    assert list(lost) == [(run.pk, 1, "lost", "w"), (last.pk, 1, "lost", "w")]


def test_runs_that_are_over_are_named(store: SchedulingStore) -> None:
    over = [make_run(state=s) for s in ("succeeded", "failed", "cancelled", "expired", "skipped")]
    going = [make_run(state=s) for s in ("pending", "claimed", "running", "retrying")]
    asked = [run.fire_id for run in (*over, *going)]
    assert store.terminal_among([*asked, "foreign"]) == {run.fire_id for run in over}


# -- terms ------------------------------------------------------------------------------------------------------------


def test_a_term_is_above_every_earlier_one_and_above_the_fence_that_redis_saw(
    store: SchedulingStore,
) -> None:
    """PROTOCOL 2.2: after a flush Redis has forgotten; SQL has not, and the other way round."""
    first = store.open_term("a", NOON, 0)
    assert (first.epoch, first.last_pass_at, first.incarnation) == (1, None, "")
    store.record_pass(1, NOON + SECOND, "life 1")

    second = store.open_term("b", NOON + MINUTE, 41)

    assert (second.epoch, second.last_pass_at) == (42, NOON + SECOND)
    assert second.incarnation == "life 1"
    assert LeaderTerm.objects.get(epoch=1).ended_at == NOON + MINUTE
    assert store.open_term("c", NOON + MINUTE, 3).epoch == 43


def test_a_pass_of_a_term_that_is_over_is_not_recorded(store: SchedulingStore) -> None:
    store.open_term("a", NOON, 0)
    store.open_term("b", NOON, 0)
    with pytest.raises(LeaseLost):
        store.record_pass(1, NOON + SECOND, "x")
    store.close_term(1, NOON + MINUTE)
    store.close_term(2, NOON + MINUTE)
    assert LeaderTerm.objects.get(epoch=1).ended_at == NOON
    with pytest.raises(LeaseLost):
        store.record_pass(2, NOON + SECOND, "x")


def test_old_terms_go_and_the_last_one_stays_for_its_epoch(store: SchedulingStore) -> None:
    store.open_term("a", NOON, 0)
    store.open_term("b", NOON, 0)
    store.record_outage(OutageValue(NOON - MINUTE, NOON), 2)
    beat("gone", NOON)
    store.forget_old(NOON + timedelta(days=100))
    assert list(LeaderTerm.objects.values_list("epoch", flat=True)) == [2]
    assert not Outage.objects.exists()
    assert not Heartbeat.objects.exists()


def test_a_scheduler_shows_itself_in_one_row(store: SchedulingStore) -> None:
    facts = {"name": "a", "host": "h", "pid": 1, "version": "0"}
    store.beat(facts, NOON)
    store.beat(facts, NOON + SECOND)
    row = Heartbeat.objects.get()
    assert (row.role, row.started_at, row.beat_at) == ("scheduler", NOON, NOON + SECOND)


# -- survey -----------------------------------------------------------------------------------------------------------


def test_one_query_tells_all_that_waits(
    store: SchedulingStore, django_assert_num_queries: Any
) -> None:
    """R132: the oldest of each kind, and nothing where there is none."""
    with django_assert_num_queries(1):
        assert store.survey() == Survey()
    schedule()
    assert store.survey().stale
    store.plan_stale(NOON - SECOND, 10)
    delayed(NOON + 2 * MINUTE)
    delayed(NOON + MINUTE)
    delayed(NOON, state="cancelled")
    pending(NOON + 4 * MINUTE)
    make_run(state="retrying", due_at=NOON + 3 * MINUTE)
    make_run(claimed_at=NOON - MINUTE)
    with django_assert_num_queries(1):
        survey = store.survey()
    assert survey == Survey(NOON, NOON + MINUTE, NOON + 3 * MINUTE, NOON - MINUTE, stale=False)
    assert survey.next_due_at() == NOON
