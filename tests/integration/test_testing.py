"""What a project's own tests can use: ``drain()`` and the two backends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import TestCase

from smallage_django import delay, policy
from smallage_django.compat import TaskResultStatus
from smallage_django.errors import UsageError
from smallage_django.fields import DatabaseClock
from smallage_django.models import DelayedRun, Run
from smallage_django.testing import drain
from tests.app import tasks
from tests.app.models import Effect
from tests.support.fake_broker import FakeBroker


class TestInsideOfATransaction(TestCase):
    """Nothing is ever committed here, so nothing is ever published."""

    def test_what_was_enqueued_has_run(self) -> None:
        results = [tasks.add.enqueue(1, 2), tasks.async_add.enqueue(3, 4), tasks.noop.enqueue()]

        assert drain() == 3

        for result in results:
            result.refresh()
        assert [result.return_value for result in results] == [3, 7, None]
        assert drain() == 0


@pytest.mark.django_db(transaction=True)
class TestDrain:
    @pytest.fixture(autouse=True)
    def _fake(self, fake_broker: FakeBroker) -> None:
        """Nothing is published anywhere."""

    def test_a_task_sees_its_own_fire(self) -> None:
        result = tasks.record.enqueue(key="k")

        assert drain() == 1

        assert Effect.objects.get().fire_id == result.id

    def test_due_promises_are_kept_and_later_ones_wait(self) -> None:
        due = delay(tasks.add, {"a": 1, "b": 2}, run_at=datetime(2020, 1, 1, tzinfo=UTC))
        later = delay(tasks.noop, run_at=timedelta(hours=1))

        assert drain() == 1

        due.refresh()
        later.refresh()
        assert (due.return_value, due.id[:5]) == (3, "once:")
        assert later.status == TaskResultStatus.READY
        assert DelayedRun.objects.get(state="fired").run is not None

    def test_an_expired_promise_frees_its_key(self) -> None:
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        expired = delay(
            tasks.noop, run_at=long_ago, deadline=timedelta(seconds=1), key="k", origin="late"
        )

        assert drain() == 0

        expired.refresh()
        assert (expired.state, expired.errors[0].exception_class.__name__) == (
            "expired",
            "RunExpired",
        )
        assert delay(tasks.noop, run_at=timedelta(hours=1), key="k").id != expired.id

    def test_a_retry_is_run_once_it_is_due(self) -> None:
        result = policy(max_attempts=2, backoff="constant(60)")(tasks.fail_first).enqueue(
            key="k", failures=1
        )

        assert drain() == 1
        result.refresh()
        assert (result.state, result.attempts) == ("retrying", 1)
        assert result.errors[0].exception_class is tasks.Boom

        Run.objects.update(due_at=DatabaseClock())
        assert drain() == 1
        result.refresh()
        assert (result.return_value, result.attempts) == (2, 2)

    def test_a_failure_is_told_with_its_traceback(self) -> None:
        result = policy(max_attempts=1)(tasks.fail).enqueue(message="on purpose")

        drain()

        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        (error,) = result.errors
        assert error.exception_class is tasks.Boom
        assert "on purpose" in error.traceback

    def test_an_unknown_task_ends_failed_and_the_others_run(self) -> None:
        gone, fine = tasks.noop.enqueue(), tasks.noop.enqueue()
        Run.objects.filter(fire_id=gone.id).update(task="gone.away")

        drain()

        gone.refresh()
        fine.refresh()
        assert gone.errors[0].exception_class.__name__ == "UnknownTask"
        assert fine.status == TaskResultStatus.SUCCESSFUL

    def test_higher_priorities_go_first(self) -> None:
        for priority in (0, 50, -50):
            tasks.record.using(priority=priority).enqueue(key=str(priority))

        drain()

        assert list(Effect.objects.order_by("pk").values_list("key", flat=True)) == [
            "50",
            "0",
            "-50",
        ]

    def test_it_does_not_run_for_ever(self) -> None:
        for _ in range(5):
            tasks.noop.enqueue()

        with pytest.raises(UsageError, match="at_most"):
            drain(at_most=3)


@pytest.mark.parametrize("name", ["ImmediateBackend", "DummyBackend"])
def test_the_backends_keep_policies(settings: Any, name: str) -> None:
    settings.TASKS = {"default": {"BACKEND": f"smallage_django.testing.{name}", "QUEUES": []}}

    once = policy(max_attempts=1)(tasks.add)

    assert once.max_attempts == 1
    assert once.enqueue(1, 2).args == [1, 2]
