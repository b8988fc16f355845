"""Results: our rows as the framework's four statuses, with an error that says why for every end but success."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from smallage_django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from smallage_django.domain.lifecycle import State
from smallage_django.errors import UnknownTask
from smallage_django.models import Attempt, DelayedRun, Run
from smallage_django.tasktypes import SmallageResult
from tests.app import tasks
from tests.support.fake_broker import FakeBroker

pytestmark = pytest.mark.django_db(transaction=True)

T0 = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _fake(fake_broker: FakeBroker) -> None:
    """Nothing here is published anywhere."""


def get(result_id: Any) -> SmallageResult:
    return task_backends["default"].get_result(result_id)


def a_run(**values: Any) -> Run:
    return Run.objects.create(
        **{
            "fire_id": "sched:" + "a" * 32 + ":1",
            "kind": "schedule",
            "task": "tests.app.tasks.add",
            "kwargs": {"a": 1, "b": 2},
            "scheduled_for": T0,
            "due_at": T0,
            **values,
        }
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nothing",
        "x" * 63,
        "x" * 5000,
        "🙂",
        "a\0b",
        "' OR 1=1 --",
        "task:" + "0" * 32,
        "once:" + "0" * 32,
        "once:short",
        "TASK:" + "0" * 32,
        "task:" + "G" * 32,
        "task:" + "0" * 32 + "\n",
        "\ud800",
        None,
        7,
        b"task",
        object(),
    ],
)
def test_anything_else_than_an_id_of_a_row_does_not_exist(value: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        get(value)


def test_a_result_is_read_back_as_it_was_returned() -> None:
    made = tasks.add.using(priority=3, queue_name="mail").enqueue(1, b=2)

    found = get(made.id)

    assert found == made
    assert found.task == tasks.add.using(priority=3, queue_name="mail")
    assert tasks.add.get_result(made.id) == made


def test_a_result_of_another_task_is_a_mismatch() -> None:
    made = tasks.noop.enqueue()

    with pytest.raises(TaskResultMismatch):
        tasks.add.get_result(made.id)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.PENDING, TaskResultStatus.READY),
        (State.HELD, TaskResultStatus.READY),
        (State.CLAIMED, TaskResultStatus.READY),
        (State.ENQUEUED, TaskResultStatus.READY),
        (State.RETRYING, TaskResultStatus.READY),
        (State.RUNNING, TaskResultStatus.RUNNING),
        (State.SUCCEEDED, TaskResultStatus.SUCCESSFUL),
        (State.FAILED, TaskResultStatus.FAILED),
        (State.MISSED, TaskResultStatus.FAILED),
        (State.SKIPPED, TaskResultStatus.FAILED),
        (State.EXPIRED, TaskResultStatus.FAILED),
        (State.CANCELLED, TaskResultStatus.FAILED),
    ],
)
def test_every_state_has_a_status(state: State, status: TaskResultStatus) -> None:
    run = a_run(state=state.value)

    result = get(run.fire_id)

    assert (result.status, result.state) == (status, state.value)
    assert len(result.errors) == (1 if status == TaskResultStatus.FAILED else 0)
    for error in result.errors:
        assert issubclass(error.exception_class, Exception)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"state": "missed", "reason_code": "coalesced"}, "RunMissed"),
        ({"state": "skipped", "reason_code": "overlap"}, "RunSkipped"),
        ({"state": "expired", "reason_code": "start_deadline"}, "RunExpired"),
        ({"state": "cancelled", "reason_code": "operator"}, "RunCancelled"),
        ({"state": "failed", "reason_code": "unknown_task"}, "UnknownTask"),
        ({"state": "failed", "reason_code": "bad_arguments"}, "InvalidArguments"),
        ({"state": "failed", "reason_code": "too_many_deliveries"}, "TooManyDeliveries"),
        ({"state": "failed", "reason_code": "unwritable"}, "RunUnwritable"),
        ({"state": "failed", "reason_code": "worker_lost"}, "WorkerLost"),
        ({"state": "failed", "reason_code": "timed_out"}, "RunTimedOut"),
    ],
)
def test_the_error_names_the_reason(values: dict[str, str], name: str) -> None:
    run = a_run(reason="because of this", **values)

    (error,) = get(run.fire_id).errors

    assert error.exception_class_path == f"smallage_django.errors.{name}"
    assert error.exception_class.__name__ == name
    assert "because of this" in error.traceback


def test_success_after_a_failure_tells_both_attempts() -> None:
    run = a_run(
        state="succeeded",
        attempt=2,
        first_started_at=T0 + timedelta(seconds=5),
        started_at=T0 + timedelta(seconds=9),
        finished_at=T0 + timedelta(seconds=10),
        worker="second",
        result={"sum": 3},
        schedule_name="nightly",
    )
    Attempt.objects.create(
        run=run,
        number=1,
        worker="first",
        ending="failed",
        error_class="builtins.ZeroDivisionError",
        traceback="Traceback...",
    )

    result = get(run.fire_id)

    assert result.return_value == {"sum": 3}
    assert result.worker_ids == ["first", "second"]
    assert result.attempts == 2
    assert [error.exception_class for error in result.errors] == [ZeroDivisionError]
    assert result.started_at == T0 + timedelta(seconds=5)
    assert result.last_attempted_at == T0 + timedelta(seconds=9)
    assert result.finished_at == T0 + timedelta(seconds=10)
    assert (result.schedule, result.lateness) == ("nightly", timedelta(seconds=5))
    assert result.is_finished


def test_lost_attempts_count_and_are_named() -> None:
    run = a_run(state="failed", attempt=2, reason_code="worker_lost", worker="b")
    for number, worker in ((1, "a"), (2, "b")):
        Attempt.objects.create(run=run, number=number, worker=worker, ending="lost")

    result = get(run.fire_id)

    assert result.worker_ids == ["a", "b"]
    assert [error.exception_class.__name__ for error in result.errors] == ["WorkerLost"] * 2
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_run_whose_task_is_gone_can_still_be_read() -> None:
    run = a_run(task="shop.tasks.removed", state="failed", reason_code="unknown_task", queue="old")

    result = get(run.fire_id)

    assert result.task.module_path == "shop.tasks.removed"
    assert result.task.queue_name == "old"
    with pytest.raises(UnknownTask, match="removed"):
        result.task.call()


def test_a_queue_that_left_the_settings_does_not_hide_results() -> None:
    run = a_run(queue="old", priority=7)

    assert get(run.fire_id).task.queue_name == "old"


def test_refresh_brings_everything_up_to_date() -> None:
    result = tasks.add.enqueue(1, 2)
    Run.objects.update(
        state="succeeded", result=3, attempt=1, worker="w", first_started_at=T0, started_at=T0
    )

    result.refresh()

    assert (result.status, result.state, result.return_value) == (
        TaskResultStatus.SUCCESSFUL,
        "succeeded",
        3,
    )
    assert result.worker_ids == ["w"]
    assert result.lateness == T0 - result.scheduled_for


def test_refreshing_what_was_pruned_says_that_it_does_not_exist() -> None:
    result = tasks.noop.enqueue()
    Run.objects.all().delete()

    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_all_of_it_works_from_async_code() -> None:
    async def story() -> Any:
        result = await tasks.async_add.aenqueue(1, 2)
        await Run.objects.aupdate(state="succeeded", result=3, attempt=1, worker="w")
        await result.arefresh()
        again = await tasks.async_add.aget_result(result.id)
        # The thread that served these calls outlives the test; its connection must not.
        await sync_to_async(connections.close_all)()
        return result, again

    result, again = asyncio.run(story())

    assert result == again
    assert result.return_value == 3


class TestDelayed:
    def test_it_is_ready_until_it_fires(self) -> None:
        made = tasks.add.using(run_after=T0).enqueue(1, 2)

        found = get(made.id)

        assert (found.status, found.due_at, found.scheduled_for) == (TaskResultStatus.READY, T0, T0)
        assert found.task.run_after == T0
        assert found == made

    def test_then_it_is_the_run(self) -> None:
        made = tasks.add.using(run_after=T0).enqueue(1, 2)
        run = a_run(fire_id=made.id, kind="delayed", state="running", attempt=1, worker="w")
        DelayedRun.objects.update(state="fired", run=run)

        made.refresh()

        assert (made.status, made.worker_ids) == (TaskResultStatus.RUNNING, ["w"])

    @pytest.mark.parametrize(
        ("state", "name"),
        [("cancelled", "RunCancelled"), ("expired", "RunExpired"), ("fired", "RunPruned")],
    )
    def test_an_end_without_a_run_says_why(self, state: str, name: str) -> None:
        made = tasks.noop.using(run_after=T0).enqueue()
        DelayedRun.objects.update(state=state, reason="said so")

        made.refresh()

        assert made.status == TaskResultStatus.FAILED
        assert [error.exception_class.__name__ for error in made.errors] == [name]
        assert "said so" in made.errors[0].traceback

    def test_a_naive_instant_is_refused_where_the_project_uses_aware_ones(self) -> None:
        with pytest.raises(InvalidTask, match="aware"):
            tasks.noop.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001


class TestSupports:
    @pytest.mark.parametrize(
        "flag",
        ["supports_defer", "supports_async_task", "supports_get_result", "supports_priority"],
    )
    def test_everything(self, flag: str) -> None:
        assert getattr(task_backends["default"], flag) is True

    @pytest.mark.parametrize("priority", [-101, 101, 1.5])
    def test_priorities_out_of_range_are_refused(self, priority: Any) -> None:
        with pytest.raises(InvalidTask, match="priority"):
            tasks.noop.using(priority=priority)
