"""The running context: what a task is told of the fire that it is part of."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from smallage_django import current_run
from smallage_django.compat import TaskContext, TaskResultStatus
from smallage_django.context import context_of, running
from smallage_django.ports import Begun, Delivery
from tests.app import tasks

T0 = datetime(2030, 1, 1, 2, 30, tzinfo=UTC)


def begun(**values: Any) -> Begun:
    return Begun(
        **{
            "delivery": Delivery("s", "1-1", {}),
            "run_id": 1,
            "worker": "worker-1",
            "fire_id": "sched:" + "a" * 32 + ":1",
            "token": "t",
            "attempt": 2,
            "max_attempts": 3,
            "task": "tests.app.tasks.add",
            "backend": "default",
            "args": [],
            "kwargs": {"a": 1, "b": 2},
            "backoff": "",
            "timeout": timedelta(seconds=60),
            "scheduled_for": T0,
            "due_at": T0 + timedelta(seconds=10),
            "started_at": T0 + timedelta(seconds=15),
            "queue": "mail",
            "schedule_name": "nightly",
            "occurrence_count": 3,
            "kind": "schedule",
            **values,
        }
    )


def test_outside_of_a_run_there_is_none() -> None:
    assert current_run() is None


def test_the_fire_travels_with_the_context() -> None:
    """R044."""
    with running(begun()):
        context = current_run()

    assert current_run() is None
    assert isinstance(context, TaskContext)
    assert context.fire_id == context.task_result.id == "sched:" + "a" * 32 + ":1"
    assert context.attempt == 2
    assert context.deadline == T0 + timedelta(seconds=75)
    fire = context.fire
    assert fire is not None
    assert (fire.schedule, fire.scheduled_for, fire.due_at) == (
        "nightly",
        T0,
        T0 + timedelta(seconds=10),
    )
    assert (fire.lateness, fire.attempt) == (timedelta(seconds=15), 2)
    assert (fire.occurrence_count, fire.coalesced) == (3, True)


def test_the_first_attempt_counts_itself() -> None:
    context = context_of(begun(attempt=1))

    assert context.attempt == 1
    assert context.task_result.worker_ids == ["worker-1"]
    assert context.task_result.status == TaskResultStatus.RUNNING
    assert context.task_result.task == tasks.add.using(queue_name="mail")


def test_a_plain_enqueue_has_a_fire_id_and_no_fire() -> None:
    context = context_of(begun(kind="enqueue", fire_id="task:" + "0" * 32, timeout=None))

    assert context.fire is None
    assert context.deadline is None
    assert context.fire_id == "task:" + "0" * 32


def test_it_is_frozen() -> None:
    context = context_of(begun())

    with pytest.raises((FrozenInstanceError, AttributeError)):
        context.fire = None  # type: ignore[misc]


def test_runs_beside_one_another_see_their_own() -> None:
    seen: dict[str, str] = {}
    together = threading.Barrier(2)

    def work(fire_id: str) -> None:
        with running(begun(fire_id=fire_id)):
            together.wait(10)
            context = current_run()
            assert context is not None
            seen[fire_id] = context.fire_id

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == {"one": "one", "two": "two"}


def test_it_follows_into_coroutines_and_copied_contexts() -> None:
    async def work(fire_id: str) -> str:
        with running(begun(fire_id=fire_id)):
            await asyncio.sleep(0)
            context = await asyncio.to_thread(current_run)
            assert context is not None
            return context.fire_id

    async def both() -> list[str]:
        return list(await asyncio.gather(work("one"), work("two")))

    assert asyncio.run(both()) == ["one", "two"]
    with running(begun()):
        copied = contextvars.copy_context()
    assert copied.run(current_run) is not None


def test_an_error_of_the_task_ends_the_context_too() -> None:
    with pytest.raises(ZeroDivisionError), running(begun()):
        raise ZeroDivisionError

    assert current_run() is None
