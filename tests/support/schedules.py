"""Rows of schedules and delayed runs for tests of the promoting side, and one pass over them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from smallage_django.models import DelayedRun, Run, Schedule
from smallage_django.ports import Fired
from smallage_django.store.scheduling import SchedulingStore

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NOOP = "tests.app.tasks.noop"


def schedule(name: str = "minutely", **values: Any) -> Schedule:
    """A schedule for every minute, created half a minute before ``NOON`` and never planned."""
    defaults = {"expression": "* * * * *", "task": NOOP, "created_at": NOON - 30 * SECOND}
    return Schedule.objects.create(name=name, **{**defaults, **values})


def delayed(run_at: datetime = NOON, **values: Any) -> DelayedRun:
    """A promise for ``run_at``."""
    return DelayedRun.objects.create(run_at=run_at, **{"task": NOOP, **values})


def one_pass(
    store: SchedulingStore, now: datetime, fence: int = 1, full_queues: Collection[str] = ()
) -> Fired:
    """Plan what changed, then fire what is due."""
    store.plan_stale(now, 1000)
    return store.fire_schedules(now, fence, 1000, full_queues)


def facts() -> list[tuple[str, str, int]]:
    """State, reason code and count of every run, by occurrence."""
    rows = Run.objects.order_by("scheduled_for", "id")
    return list(rows.values_list("state", "reason_code", "occurrence_count"))
