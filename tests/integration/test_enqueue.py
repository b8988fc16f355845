"""``enqueue``: one row in the caller's transaction, one publication after its commit, and nothing else."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from smallage_django import enqueue_many, publishing
from smallage_django.compat import (
    InvalidTask,
    TaskResultStatus,
    task,
    task_backends,
    task_enqueued,
)
from smallage_django.domain.identity import epoch_ms
from smallage_django.errors import BrokerUnavailable, InvalidArguments
from smallage_django.fields import DatabaseClock
from smallage_django.models import DelayedRun, Run
from smallage_django.taskpolicy import policy
from tests.app import tasks
from tests.support.fake_broker import FakeBroker

pytestmark = pytest.mark.django_db(transaction=True)


def database_now() -> datetime:
    return DelayedRun.objects.create(task="x", run_at=DatabaseClock()).created_at


def test_it_writes_one_claimed_row_with_one_statement(fake_broker: FakeBroker) -> None:
    before = database_now()
    with CaptureQueriesContext(connection) as queries:
        result = tasks.add.enqueue(1, b=2)

    assert len(queries) == (1 if connection.features.can_return_columns_from_insert else 2)
    run = Run.objects.get(fire_id=result.id)
    assert (run.state, run.kind, run.fence, run.attempt, run.promotion) == (
        "claimed",
        "enqueue",
        0,
        0,
        0,
    )
    assert (run.task, run.queue, run.priority, run.backend) == (
        "tests.app.tasks.add",
        "default",
        0,
        "default",
    )
    assert (run.args, run.kwargs) == ([1], {"b": 2})
    assert run.scheduled_for == run.due_at == run.claimed_at
    assert before <= run.scheduled_for <= database_now()
    assert run.max_attempts == 3


def test_the_result_is_ready_and_tells_its_instant(fake_broker: FakeBroker) -> None:
    result = tasks.add.enqueue(a=1, b=2)

    assert re.fullmatch("task:[0-9a-f]{32}", result.id)
    assert result.status == TaskResultStatus.READY
    assert result.enqueued_at == Run.objects.get().scheduled_for
    assert result.enqueued_at.utcoffset() == timedelta(0)
    assert (result.args, result.kwargs, result.errors, result.worker_ids) == (
        [],
        {"a": 1, "b": 2},
        [],
        [],
    )


def test_a_row_of_the_orm_looks_the_same(fake_broker: FakeBroker) -> None:
    """The plain INSERT leaves no column as the ORM would not."""
    result = tasks.noop.enqueue()
    ours = Run.objects.get(fire_id=result.id)
    theirs = Run.objects.create(
        fire_id="task:" + "0" * 32,
        kind="enqueue",
        task="tests.app.tasks.noop",
        state="claimed",
        scheduled_for=ours.scheduled_for,
        due_at=ours.scheduled_for,
        claimed_at=ours.scheduled_for,
    )
    theirs.refresh_from_db()

    differing = {
        item.name
        for item in Run._meta.concrete_fields
        if getattr(ours, item.attname) != getattr(theirs, item.attname)
    }
    assert differing == {"id", "fire_id"}


def test_it_is_published_after_the_commit_and_not_before(fake_broker: FakeBroker) -> None:
    """R118."""
    with transaction.atomic():
        result = tasks.add.enqueue(a=1, b=2)
        assert fake_broker.published == []

    (order,) = fake_broker.published
    run = Run.objects.get()
    assert fake_broker.fences == [0]
    assert (order.run_id, order.promotion, order.queue, order.priority) == (run.pk, 0, "default", 0)
    assert order.envelope.id == result.id
    assert order.envelope.task == "tests.app.tasks.add"
    assert json.loads(order.envelope.payload) == {"a": 1, "b": 2}
    assert order.envelope.enqueued_at == epoch_ms(run.scheduled_for)
    assert run.state == "claimed"


def test_a_rollback_leaves_neither_row_nor_message(fake_broker: FakeBroker) -> None:
    """R118."""
    with transaction.atomic():
        tasks.noop.enqueue()
        tasks.noop.using(run_after=timedelta(seconds=1)).enqueue()
        transaction.set_rollback(True)

    assert not Run.objects.exists()
    assert not DelayedRun.objects.exists()
    assert fake_broker.calls == 0


def test_positional_arguments_get_their_names_on_the_wire(fake_broker: FakeBroker) -> None:
    tasks.add.enqueue(1, 2)

    assert json.loads(fake_broker.published[0].envelope.payload) == {"a": 1, "b": 2}


def test_no_arguments_are_an_empty_object(fake_broker: FakeBroker) -> None:
    """R013."""
    tasks.noop.enqueue()

    assert fake_broker.published[0].envelope.payload == b"{}"


@pytest.mark.parametrize(("surplus", "by_reference"), [(0, False), (1, True)])
def test_a_payload_above_the_limit_goes_by_reference_to_the_row(
    fake_broker: FakeBroker, smallage_settings: Any, surplus: int, by_reference: bool
) -> None:
    """R106."""
    smallage_settings(MAX_PAYLOAD=1000)
    message = "x" * (1000 - len(b'{"message":""}') + surplus)

    result = tasks.fail.enqueue(message=message)

    envelope = fake_broker.published[0].envelope
    assert (envelope.payload == b"") is by_reference
    assert envelope.payload_ref == (f"row:{result.id}" if by_reference else "")
    run = Run.objects.get()
    assert run.payload_ref == envelope.payload_ref
    assert run.kwargs == {"message": message}


def test_redis_being_away_never_raises_into_the_request(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.error = BrokerUnavailable("connection refused")

    for _ in range(5):
        tasks.noop.enqueue()

    assert Run.objects.count() == 5
    assert fake_broker.calls == 1, "the breaker is open after the first failure"
    told = [record for record in caplog.records if record.name == "smallage_django.publishing"]
    assert len(told) == 1
    assert "connection refused" in told[0].getMessage()


def test_an_unforeseen_failure_of_the_publication_stays_out_of_the_request(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.error = RuntimeError("a defect of ours")

    tasks.noop.enqueue()

    assert Run.objects.count() == 1
    assert "a defect of ours" in caplog.text


def test_the_breaker_tries_again_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    breaker = publishing.Breaker(lambda: now)
    with caplog.at_level("INFO", "smallage_django.publishing"):
        breaker.trip(BrokerUnavailable("away"))
        now += publishing.BREAK_S - 0.1
        assert not breaker.allows()
        now += 0.1
        assert breaker.allows()
        breaker.trip(BrokerUnavailable("away"))
        assert not breaker.allows()
        now += publishing.BREAK_S
        breaker.close()
        assert breaker.allows()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_transactions_managed_by_hand_leave_the_publication_to_the_scheduler(
    fake_broker: FakeBroker,
) -> None:
    transaction.set_autocommit(False)
    try:
        tasks.noop.enqueue()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert Run.objects.get().state == "claimed"
    assert fake_broker.calls == 0


def test_the_policy_is_frozen_into_the_row(fake_broker: FakeBroker) -> None:
    strict = policy(max_attempts=7, timeout=90, backoff="constant(5)")(tasks.noop)

    result = strict.using(priority=-5, queue_name="mail").enqueue()

    run = Run.objects.get()
    assert (run.max_attempts, run.timeout, run.backoff) == (7, timedelta(seconds=90), "constant(5)")
    assert (run.priority, run.queue) == (-5, "mail")
    assert result.max_attempts == 7


def test_bad_arguments_are_refused_before_there_is_a_row(fake_broker: FakeBroker) -> None:
    """R011."""
    with transaction.atomic():
        with pytest.raises(InvalidArguments, match="'a'"):
            tasks.add.enqueue(a="one", b=2)
        tasks.noop.enqueue()

    assert Run.objects.count() == 1


def test_a_task_under_another_name_than_its_function_is_refused(fake_broker: FakeBroker) -> None:
    hidden = task(tasks._leave_effect)

    with pytest.raises(InvalidTask, match="_leave_effect"):
        hidden.enqueue()

    assert not Run.objects.exists()


def test_the_backend_checks_the_task_again(fake_broker: FakeBroker) -> None:
    backend = task_backends["default"]
    stale = tasks.noop.using()
    object.__setattr__(stale, "queue_name", "gone")

    with pytest.raises(InvalidTask, match="gone"):
        backend.enqueue(stale, (), {})


def test_the_signal_carries_the_class_and_a_failing_receiver_changes_nothing(
    fake_broker: FakeBroker,
) -> None:
    heard: list[Any] = []

    def listen(sender: Any, task_result: Any, **_: Any) -> None:
        heard.append((sender, task_result.id))
        raise RuntimeError("a receiver's own trouble")

    task_enqueued.connect(listen)
    try:
        result = tasks.noop.enqueue()
    finally:
        task_enqueued.disconnect(listen)

    assert heard == [(type(task_backends["default"]), result.id)]
    assert Run.objects.count() == 1


class TestMany:
    def test_each_set_of_arguments_is_a_run(self, fake_broker: FakeBroker) -> None:
        results = enqueue_many(tasks.add, [{"a": n, "b": -n} for n in range(2500)])

        assert len({result.id for result in results}) == 2500
        rows = {run.fire_id: run for run in Run.objects.all()}
        assert [rows[result.id].kwargs for result in results] == [
            {"a": n, "b": -n} for n in range(2500)
        ]
        assert all(result.enqueued_at == rows[result.id].scheduled_for for result in results)
        assert [order.envelope.id for order in fake_broker.published] == [r.id for r in results]
        assert {order.run_id for order in fake_broker.published} == {
            run.pk for run in rows.values()
        }
        assert {(run.state, run.fence, run.max_attempts) for run in rows.values()} == {
            ("claimed", 0, 3)
        }

    def test_one_bad_set_refuses_them_all(self, fake_broker: FakeBroker) -> None:
        with pytest.raises(InvalidArguments, match="'b' is missing"):
            enqueue_many(tasks.add, [{"a": 1, "b": 1}, {"a": 1}])

        assert not Run.objects.exists()

    def test_none_are_nothing(self, fake_broker: FakeBroker) -> None:
        assert enqueue_many(tasks.add, []) == []

    def test_a_deferred_task_is_refused(self, fake_broker: FakeBroker) -> None:
        with pytest.raises(InvalidTask, match="run_after"):
            enqueue_many(tasks.noop.using(run_after=timedelta(1)), [{}])

    def test_text_survives_every_database(self, fake_broker: FakeBroker) -> None:
        message = "ünï \\ ' \" % %s 🙂 \n \u2028"
        (result,) = enqueue_many(tasks.fail, [{"message": message}])
        tasks.fail.enqueue(message=message)

        assert {run.kwargs["message"] for run in Run.objects.all()} == {message}
        assert result.kwargs == {"message": message}


class TestRunAfter:
    def test_it_becomes_a_delayed_run(self, fake_broker: FakeBroker) -> None:
        when = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
        result = tasks.add.using(run_after=when, queue_name="mail").enqueue(1, 2)

        row = DelayedRun.objects.get()
        assert result.id == f"once:{row.uid.hex}"
        assert (row.run_at, row.queue, row.args, row.state) == (when, "mail", [1, 2], "waiting")
        assert (result.status, result.due_at) == (TaskResultStatus.READY, when)
        assert result.enqueued_at == row.created_at
        assert not Run.objects.exists()
        assert fake_broker.calls == 0, "far off: the scheduler looks in time by itself"

    def test_a_timedelta_counts_from_now_and_wakes_the_scheduler(
        self, fake_broker: FakeBroker
    ) -> None:
        before = datetime.now(UTC)
        with transaction.atomic():
            result = tasks.noop.using(run_after=timedelta(seconds=5)).enqueue()
            assert fake_broker.woken == 0

        assert timedelta(seconds=5) <= result.due_at - before < timedelta(seconds=15)
        assert fake_broker.woken == 1

    def test_the_scheduler_being_out_of_reach_changes_nothing(
        self, fake_broker: FakeBroker
    ) -> None:
        fake_broker.error = BrokerUnavailable("away")

        tasks.noop.using(run_after=timedelta(seconds=5)).enqueue()

        assert DelayedRun.objects.count() == 1
