"""``delay``, ``cancel``, ``reschedule``: promises that are kept once, moved, or taken back in time."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from smallage_django import cancel, delay, policy, reschedule
from smallage_django.compat import InvalidTask, TaskResultStatus
from smallage_django.errors import InvalidArguments, InvalidPolicy, UnknownRun
from smallage_django.models import DelayedRun, Run, RunEvent
from tests.app import tasks
from tests.support.fake_broker import FakeBroker

pytestmark = pytest.mark.django_db(transaction=True)

T0 = datetime(2100, 1, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _fake(fake_broker: FakeBroker) -> None:
    """Nothing here is published anywhere."""


def test_a_promise_is_a_row_with_its_reasons() -> None:
    result = delay(
        policy(max_attempts=2)(tasks.add),
        {"a": 1, "b": 2},
        run_at=T0,
        deadline=HOUR,
        late_after=timedelta(minutes=5),
        key="class-7",
        origin="booking 7",
    )

    row = DelayedRun.objects.get()
    assert result.id == f"once:{row.uid.hex}"
    assert (row.run_at, row.deadline, row.late_after) == (T0, T0 + HOUR, timedelta(minutes=5))
    assert (row.key, row.origin, row.max_attempts) == ("class-7", "booking 7", 2)
    assert (row.kwargs, row.args) == ({"a": 1, "b": 2}, [])
    assert result.status == TaskResultStatus.READY


def test_a_time_from_now_is_an_instant() -> None:
    before = datetime.now(UTC)

    result = delay(tasks.noop, run_at=HOUR)

    assert HOUR <= result.due_at - before <= HOUR + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"kwargs": {"a": "x", "b": 1}, "run_at": T0}, InvalidArguments, "'a'"),
        ({"run_at": T0, "args": [1, 2], "deadline": T0 - HOUR}, InvalidPolicy, "deadline"),
        ({"run_at": T0, "args": [1, 2], "deadline": -HOUR}, InvalidPolicy, "deadline"),
        ({"run_at": T0, "args": [1, 2], "key": ""}, InvalidPolicy, "key"),
        ({"run_at": T0, "args": [1, 2], "key": "k" * 192}, InvalidPolicy, "key"),
        ({"run_at": T0, "args": [1, 2], "key": "a\0"}, InvalidPolicy, "key"),
        ({"run_at": T0, "args": [1, 2], "late_after": -HOUR}, InvalidPolicy, "late_after"),
        ({"run_at": datetime(2100, 1, 1), "args": [1, 2]}, InvalidPolicy, "aware"),  # noqa: DTZ001
        ({"run_at": T0.date(), "args": [1, 2]}, InvalidPolicy, "run_at is datetime.date"),
        ({"run_at": timedelta.max, "args": [1, 2]}, InvalidPolicy, "run_at.*9999"),
        ({"run_at": T0, "args": [1, 2], "deadline": timedelta.max}, InvalidPolicy, "deadline"),
        ({"run_at": T0, "args": [1, 2], "deadline": T0.date()}, InvalidPolicy, "deadline"),
    ],
)
def test_what_cannot_be_promised_is_refused(
    call: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        delay(tasks.add, **call)

    assert not DelayedRun.objects.exists()


def test_only_tasks_of_ours_can_be_delayed() -> None:
    with pytest.raises(InvalidTask):
        delay(tasks.add.func, {"a": 1, "b": 2}, run_at=T0)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (T0.date(), "run_after is datetime.date"),
        ("tomorrow", "run_after is 'tomorrow'"),
        (timedelta.max, "run_after.*9999"),
    ],
)
def test_run_after_is_an_instant_or_a_time_from_now(when: Any, words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        tasks.noop.using(run_after=when)


@pytest.mark.parametrize("what", [5, None, object()])
def test_what_is_no_run_cannot_be_cancelled_or_moved(what: Any) -> None:
    with pytest.raises(UnknownRun, match="neither a fire id nor the result of a task"):
        cancel(what)
    with pytest.raises(UnknownRun, match="neither a fire id nor the result of a task"):
        reschedule(what, T0)


class TestKeys:
    def test_the_same_key_is_the_same_promise(self) -> None:
        first = delay(tasks.add, {"a": 1, "b": 1}, run_at=T0, key="k")
        second = delay(tasks.add, {"a": 2, "b": 2}, run_at=T0 + HOUR, key="k")

        assert second.id == first.id
        assert second.kwargs == {"a": 1, "b": 1}
        assert second.due_at == T0
        assert DelayedRun.objects.count() == 1

    def test_the_callers_transaction_is_not_hurt(self) -> None:
        delay(tasks.noop, run_at=T0, key="k")

        with transaction.atomic():
            again = delay(tasks.noop, run_at=T0, key="k")
            other = tasks.noop.enqueue()

        assert Run.objects.filter(fire_id=other.id).exists()
        assert DelayedRun.objects.count() == 1
        assert again.id

    def test_replace_gives_a_waiting_one_everything_new(self) -> None:
        """Replace is replace: nothing of the old one stays."""
        first = delay(tasks.add, {"a": 1, "b": 1}, run_at=T0, key="k", deadline=HOUR, origin="old")
        second = delay(tasks.noop, run_at=T0 + HOUR, key="k", replace=True)

        row = DelayedRun.objects.get()
        assert second.id == first.id
        assert (row.run_at, row.deadline, row.origin) == (T0 + HOUR, None, "")
        assert (row.task, row.kwargs) == ("tests.app.tasks.noop", {})
        assert (second.due_at, second.kwargs) == (T0 + HOUR, {})

    def test_one_that_has_fired_keeps_its_key_and_is_not_replaced(self) -> None:
        first = delay(tasks.noop, run_at=T0, key="k")
        run = Run.objects.create(
            fire_id=first.id,
            kind="delayed",
            task="tests.app.tasks.noop",
            state="running",
            scheduled_for=T0,
            due_at=T0,
        )
        DelayedRun.objects.update(state="fired", run=run)

        second = delay(tasks.noop, run_at=T0 + HOUR, key="k", replace=True)

        assert (second.id, second.status) == (first.id, TaskResultStatus.RUNNING)
        assert DelayedRun.objects.get().run_at == T0

    def test_cancelling_frees_the_key(self) -> None:
        first = delay(tasks.noop, run_at=T0, key="k")
        assert cancel(first)

        second = delay(tasks.noop, run_at=T0, key="k")

        assert second.id != first.id
        assert DelayedRun.objects.filter(state="waiting", key="k").count() == 1

    def test_many_at_once_make_one(self) -> None:
        workers = 6
        found: list[str] = []
        start = threading.Barrier(workers)

        def promise() -> None:
            try:
                start.wait(10)
                found.append(delay(tasks.noop, run_at=T0, key="k").id)
            finally:
                connection.close()

        threads = [threading.Thread(target=promise) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert len(found) == workers
        assert len(set(found)) == 1
        assert DelayedRun.objects.count() == 1


class TestCancel:
    def test_a_waiting_promise(self) -> None:
        result = delay(tasks.noop, run_at=T0)

        assert cancel(result.id, reason="booking cancelled") is True

        row = DelayedRun.objects.get()
        assert (row.state, row.reason) == ("cancelled", "booking cancelled")
        assert cancel(result.id) is False
        result.refresh()
        assert result.state == "cancelled"

    def test_a_promise_that_has_fired_but_not_begun(self) -> None:
        result = delay(tasks.noop, run_at=T0, key="k")
        run = Run.objects.create(
            fire_id=result.id,
            kind="delayed",
            task="tests.app.tasks.noop",
            state="enqueued",
            scheduled_for=T0,
            due_at=T0,
        )
        DelayedRun.objects.update(state="fired", run=run)

        assert cancel(result) is True

        assert DelayedRun.objects.get().key is None
        run.refresh_from_db()
        assert run.state == "cancelled"

    @pytest.mark.parametrize("state", ["pending", "held", "claimed", "enqueued", "retrying"])
    def test_a_run_that_waits(self, state: str) -> None:
        result = tasks.noop.enqueue()
        Run.objects.update(state=state)

        assert cancel(result, by="ann", reason="no longer wanted") is True

        run = Run.objects.get()
        assert (run.state, run.reason_code, run.reason) == (
            "cancelled",
            "operator",
            "no longer wanted",
        )
        assert run.finished_at is not None
        event = RunEvent.objects.get(run=run)
        assert (event.kind, event.actor, event.detail) == ("cancelled", "ann", "no longer wanted")
        assert event.at >= run.scheduled_for

    @pytest.mark.parametrize("state", ["running", "succeeded", "failed", "skipped", "cancelled"])
    def test_one_that_runs_or_is_over_stays_what_it_is(self, state: str) -> None:
        result = tasks.noop.enqueue()
        Run.objects.update(state=state)

        assert cancel(result) is False

        assert Run.objects.get().state == state
        assert not RunEvent.objects.exists()

    @pytest.mark.parametrize("fire_id", ["", "nonsense", "task:" + "0" * 32, "once:" + "0" * 32])
    def test_an_id_that_never_was_is_an_error(self, fire_id: str) -> None:
        with pytest.raises(UnknownRun):
            cancel(fire_id)
        with pytest.raises(UnknownRun):
            reschedule(fire_id, T0)


class TestReschedule:
    def test_a_promise_gets_another_instant(self, fake_broker: FakeBroker) -> None:
        result = delay(tasks.noop, run_at=T0)

        assert reschedule(result, T0 + HOUR) is True

        result.refresh()
        assert (result.due_at, result.scheduled_for) == (T0 + HOUR, T0 + HOUR)
        assert fake_broker.woken == 0

    def test_an_earlier_one_wakes_the_scheduler(self, fake_broker: FakeBroker) -> None:
        result = delay(tasks.noop, run_at=T0)

        with transaction.atomic():
            reschedule(result, timedelta(seconds=1))
            assert fake_broker.woken == 0

        assert fake_broker.woken == 1

    def test_not_beyond_its_deadline(self) -> None:
        result = delay(tasks.noop, run_at=T0, deadline=HOUR)

        with pytest.raises(InvalidPolicy, match="deadline"):
            reschedule(result, T0 + 2 * HOUR)

        assert reschedule(result, T0 + HOUR)

    def test_a_run_that_waits_keeps_its_ideal_instant(self) -> None:
        result = tasks.noop.enqueue()
        Run.objects.update(state="retrying")

        assert reschedule(result, T0) is True

        run = Run.objects.get()
        assert (run.due_at, run.scheduled_for) == (T0, result.scheduled_for)

    @pytest.mark.parametrize("state", ["claimed", "enqueued", "running", "succeeded"])
    def test_too_late_once_it_is_handed_over(self, state: str) -> None:
        result = tasks.noop.enqueue()
        Run.objects.update(state=state)

        assert reschedule(result, T0) is False
        assert Run.objects.get().due_at == result.due_at

    def test_a_cancelled_promise_stays_cancelled(self) -> None:
        result = delay(tasks.noop, run_at=T0)
        cancel(result)

        assert reschedule(result, T0 + HOUR) is False
        assert DelayedRun.objects.get().run_at == T0
