"""The questions that are asked of the rows, by name. Reading only: every write is in ``store``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import F, Q

from .domain.lifecycle import ACTIVE, CLAIMABLE, State

if TYPE_CHECKING:
    from .models import DelayedRun, Run, Schedule  # noqa: F401

#: The inputs of planning; each has a copy named ``planned_<input>`` that the scheduler keeps.
PLANNING_INPUTS = (
    "kind",
    "expression",
    "every",
    "unit",
    "anchor",
    "trigger",
    "timezone",
    "enabled",
    "paused_until",
    "starts_at",
    "ends_at",
    "max_runs",
    "gap_policy",
    "fold_policy",
)
_NULLABLE_INPUTS = frozenset(
    {"every", "anchor", "paused_until", "starts_at", "ends_at", "max_runs"}
)


def stale_condition() -> Q:
    """True where a planning input differs from the copy that the scheduler planned from.

    Spelled with plain comparisons and null tests: the same on every database, and allowed in a generated column.
    """
    condition = Q(planned_kind__isnull=True)
    for name in PLANNING_INPUTS:
        condition |= _differs(name, f"planned_{name}")
    return condition


def _differs(name: str, copy: str) -> Q:
    other = Q(**{f"{name}__lt": F(copy)}) | Q(**{f"{name}__gt": F(copy)})
    if name in _NULLABLE_INPUTS:
        other |= Q(**{f"{name}__isnull": True, f"{copy}__isnull": False})
        other |= Q(**{f"{name}__isnull": False, f"{copy}__isnull": True})
    return other


def late_condition(now: datetime) -> Q:
    """True where a run started, or still waits, past its own limit of lateness."""
    return Q(first_started_at__gt=F("late_at")) | Q(
        first_started_at__isnull=True, late_at__lt=now, state__in=sorted(ACTIVE)
    )


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    def due(self, now: datetime) -> ScheduleQuerySet:
        """Schedules with an unaccounted occurrence at or before ``now``, oldest first."""
        return self.filter(next_due_at__lte=now).order_by("next_due_at", "id")

    def stale(self) -> ScheduleQuerySet:
        """Schedules whose inputs changed since they were planned, by whatever way."""
        return self.filter(is_stale=True)


class DelayedRunQuerySet(models.QuerySet["DelayedRun"]):
    def due(self, now: datetime) -> DelayedRunQuerySet:
        """Waiting delayed runs whose instant has come, oldest first."""
        return self.filter(state="waiting", run_at__lte=now).order_by("run_at", "id")


class RunQuerySet(models.QuerySet["Run"]):
    def in_state(self, *states: State) -> RunQuerySet:
        """Runs in one of ``states``."""
        return self.filter(state__in=[state.value for state in states])

    def active(self) -> RunQuerySet:
        """Runs that are not over yet."""
        return self.in_state(*sorted(ACTIVE))

    def active_of(self, schedule_ids: Any) -> RunQuerySet:
        """Unfinished runs of these schedules: what the overlap policy looks at."""
        return self.active().filter(schedule_id__in=schedule_ids)

    def claimable(self, now: datetime) -> RunQuerySet:
        """Due runs that wait to be handed to a stream, in the order they are owed."""
        return (
            self.in_state(*sorted(CLAIMABLE))
            .filter(due_at__lte=now)
            .order_by("-priority", "due_at", "id")
        )

    def late(self, now: datetime) -> RunQuerySet:
        """Runs that started, or still wait, past their own limit of lateness."""
        return self.filter(late_condition(now))

    def stuck(self, before: datetime) -> RunQuerySet:
        """Running runs that began before ``before``: their owner has to be looked at."""
        return self.in_state(State.RUNNING).filter(started_at__lt=before)
