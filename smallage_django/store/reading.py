"""Schedules as rows, and what planning needs to know of them. A row that cannot be read is told apart from the rest."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, transaction
from django.db.models import Case, Value, When

from ..conf import NAME_RULE, is_name
from ..domain.planning import Blocker, Standing
from ..domain.policies import MissedPolicy, OverlapPolicy, Policies
from ..errors import InvalidConfiguration, UsageError
from ..rules import rule_of

#: Why a row is put aside whose columns the driver cannot turn into Python values.
UNREADABLE_ROW: Final = "a column of this row holds a value that cannot be read"
#: What reading a row may raise where SQL put something into it that Python cannot hold (year 10000, infinity, no JSON).
UNREADABLE: Final = (DatabaseError, ValueError, OverflowError, TypeError)


class ScheduleRow(NamedTuple):
    """The columns that firing needs, in the order of :data:`COLUMNS`."""

    id: int
    uid: uuid.UUID
    name: str
    kind: str
    expression: str
    every: int | None
    unit: str
    anchor: datetime | None
    timezone: str
    task: str
    backend: str
    args: Any
    kwargs: Any
    queue: str
    priority: int | None
    enabled: bool
    paused_until: datetime | None
    starts_at: datetime | None
    ends_at: datetime | None
    max_runs: int | None
    runs_fired: int
    jitter: timedelta
    missed_policy: str
    misfire_grace: timedelta
    catch_up_window: timedelta | None
    catch_up_limit: int
    overlap_policy: str
    late_after: timedelta | None
    start_deadline: timedelta | None
    gap_policy: str
    fold_policy: str
    max_attempts: int | None
    backoff: str
    timeout: timedelta | None
    created_at: datetime
    next_due_at: datetime | None
    accounted_until: datetime | None
    planned_kind: str | None
    planned_expression: str | None
    planned_every: int | None
    planned_unit: str | None
    planned_anchor: datetime | None
    planned_timezone: str | None
    planned_enabled: bool | None
    planned_paused_until: datetime | None
    planned_gap_policy: str | None
    planned_fold_policy: str | None


COLUMNS: Final = ScheduleRow._fields
#: The inputs that say when a schedule fires; the others only bound it.
_RULE: Final = (
    "kind",
    "expression",
    "every",
    "unit",
    "anchor",
    "timezone",
    "enabled",
    "paused_until",
    "gap_policy",
    "fold_policy",
)
_INSTANTS: Final = ("anchor", "paused_until", "starts_at", "ends_at", "created_at")


def read_rows(queryset: Any, limit: int) -> tuple[list[Any], list[int]]:
    """The first rows of a query, and the ids of those that cannot be read at all.

    The whole batch is read at once; only where that fails is it read row by row, so that one bad row costs nothing
    but itself.
    """
    try:
        with transaction.atomic(using=queryset.db):
            return list(queryset[:limit]), []
    except UNREADABLE:
        ids = list(queryset.values_list("pk", flat=True)[:limit])
    rows: list[Any] = []
    unreadable: list[int] = []
    for pk in ids:
        try:
            with transaction.atomic(using=queryset.db):
                rows += queryset.filter(pk=pk)
        except UNREADABLE:
            unreadable.append(pk)
    return rows, unreadable


def instants_in_sql() -> Any:
    """How many of a row's instants are set, counted by the database: SQLite's text can hold what reads as None."""
    return sum(
        (
            Case(When(**{f"{name}__isnull": False}, then=Value(1)), default=Value(0))
            for name in _INSTANTS[1:]
        ),
        start=Case(When(**{f"{_INSTANTS[0]}__isnull": False}, then=Value(1)), default=Value(0)),
    )


def keeps_its_rule(row: ScheduleRow) -> bool:
    """Whether a row still fires when it did as it was planned last."""
    return all(getattr(row, name) == getattr(row, f"planned_{name}") for name in _RULE)


def check_instants(row: ScheduleRow, set_in_sql: int) -> None:
    """Refuse a row with an instant that Python cannot read. Raises ``UsageError``."""
    if sum(getattr(row, name) is not None for name in _INSTANTS) != set_in_sql:
        raise UsageError(f"one of {', '.join(_INSTANTS)} is no instant that can be read")


def policies_of(row: ScheduleRow) -> Policies:
    """The policies of a row. Raises ``InvalidPolicy`` or ``ValueError`` for values outside their range."""
    return _policies(
        row.missed_policy,
        row.misfire_grace,
        row.catch_up_window,
        row.catch_up_limit,
        row.overlap_policy,
        row.late_after,
        row.start_deadline,
        row.jitter,
    )


@lru_cache(maxsize=1000)
def _policies(
    missed: str, grace: Any, window: Any, most: int, overlap: str, *rest: Any
) -> Policies:
    late_after, start_deadline, jitter = rest
    return Policies(
        MissedPolicy(missed),
        grace,
        window,
        most,
        OverlapPolicy(overlap),
        late_after,
        start_deadline,
        jitter,
    )


def check_queue(name: object) -> None:
    """Refuse a queue that cannot be part of a key in Redis. Raises ``InvalidConfiguration``."""
    if not is_name(name):
        raise InvalidConfiguration(f"queue {name!r} is no name; {NAME_RULE}")


def check_arguments(row: ScheduleRow) -> None:
    """Refuse arguments of the wrong shape. Raises ``UsageError``."""
    if not isinstance(row.args, list):
        raise UsageError(f"args is {row.args!r}; it must be a JSON list")
    if not isinstance(row.kwargs, dict):
        raise UsageError(f"kwargs is {row.kwargs!r}; it must be a JSON object")


def standing_of(row: ScheduleRow, blocker: Blocker | None) -> Standing:
    """What planning needs to know of a row whose next instant is known. Raises ``UsageError``, ``ValueError``."""
    if row.next_due_at is None:
        raise InvalidConfiguration(f"schedule {row.name!r} has no next instant")
    left = None if row.max_runs is None else max(row.max_runs - row.runs_fired, 0)
    return Standing(
        row.uid, rule_of(row), policies_of(row), row.next_due_at, row.ends_at, left, blocker
    )


#: What a row with wrong contents may raise while it is looked at.
BROKEN: Final = (UsageError, *UNREADABLE)
