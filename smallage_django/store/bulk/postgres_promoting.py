"""Insert runs, advance schedules, mark entries on PostgreSQL: one JSON document in, one statement each."""
# ruff: noqa: S608 - the statements are made of names of our own columns

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, TextField

from ...models import DelayedRun, Run, Schedule
from .document import document, rows_of
from .drafts import DRAFTED, Advance, Mark, RunDraft

_TYPES: Final = {
    "args": "jsonb",
    "kwargs": "jsonb",
    "priority": "smallint",
    "scheduled_for": "timestamptz",
    "due_at": "timestamptz",
    "max_attempts": "smallint",
    "timeout": "interval",
    "schedule_id": "bigint",
    "schedule_uid": "uuid",
    "revision_id": "bigint",
    "merged_into_id": "bigint",
    "blocked_by_id": "bigint",
    "first_scheduled_for": "timestamptz",
    "occurrence_count": "int",
    "start_deadline_at": "timestamptz",
    "late_at": "timestamptz",
    "fence": "bigint",
    "claimed_at": "timestamptz",
    "finished_at": "timestamptz",
}


def _insert_statement() -> str:
    constants = {"attempt": "0", "promotion": "0"}
    for item in Run._meta.concrete_fields:
        if isinstance(item, CharField | TextField) and item.name not in DRAFTED:
            constants[item.name] = "''"
    names = ", ".join(f'"{name}"' for name in (*DRAFTED, *constants))
    values = ", ".join([*(f"d.{name}" for name in DRAFTED), *constants.values()])
    columns = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in DRAFTED)
    return (
        f"INSERT INTO {Run._meta.db_table} ({names}) SELECT {values} "
        f"FROM json_to_recordset(%s::json) AS d({columns}) "
        "ON CONFLICT (fire_id) DO NOTHING RETURNING fire_id, id"
    )


_INSERT: Final = _insert_statement()
_ADVANCE: Final = f"""
UPDATE {Schedule._meta.db_table} AS s SET
    next_due_at = a.next_due_at, accounted_until = COALESCE(a.accounted_until, s.accounted_until),
    runs_fired = s.runs_fired + a.runs, state = a.state, state_reason = a.state_reason
FROM json_to_recordset(%s::json) AS a(
    schedule_id bigint, was_due_at timestamptz, next_due_at timestamptz, accounted_until timestamptz,
    runs int, state text, state_reason text
)
WHERE s.id = a.schedule_id AND s.next_due_at = a.was_due_at
    AND CASE WHEN a.schedule_id IS NOT NULL THEN NOT s.is_stale END
"""
_MARK: Final = f"""
UPDATE {Run._meta.db_table} AS r SET
    state = 'enqueued', stream = m.stream, entry_id = m.entry_id, enqueued_at = m.enqueued_at,
    dispatch_lag_ms = COALESCE(
        r.dispatch_lag_ms, (EXTRACT(EPOCH FROM (m.enqueued_at - r.due_at)) * 1000)::bigint
    )
FROM json_to_recordset(%s::json) AS m(run_id bigint, stream text, entry_id text, enqueued_at timestamptz)
WHERE r.id = m.run_id AND CASE WHEN m.run_id IS NOT NULL THEN r.state = 'claimed' AND r.fence = %s END
"""
_SETTLE: Final = f"""
UPDATE {DelayedRun._meta.db_table} AS d SET
    state = n.state, run_id = n.run_id, reason = n.reason,
    key = CASE WHEN n.state = 'fired' THEN d.key END
FROM json_to_recordset(%s::json) AS n(id bigint, state text, run_id bigint, reason text)
WHERE d.id = n.id AND CASE WHEN n.id IS NOT NULL THEN d.state = 'waiting' END
"""
_ADVANCED: Final = tuple(item.name for item in fields(Advance))
_MARKED: Final = tuple(item.name for item in fields(Mark))


def insert_runs(connection: BaseDatabaseWrapper, drafts: Sequence[RunDraft]) -> dict[str, int]:
    """Insert what is not there yet; the ids of the inserted rows by fire id."""
    rows = rows_of(DRAFTED, drafts)
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [document(rows)])
        return dict(cursor.fetchall())


def advance(connection: BaseDatabaseWrapper, advances: Sequence[Advance]) -> int:
    """Move schedules on where they still stand where they were read; how many were moved."""
    return _execute(connection, _ADVANCE, rows_of(_ADVANCED, advances))


def mark(connection: BaseDatabaseWrapper, marks: Sequence[Mark], fence: int) -> int:
    """Record entries where the row is still claimed under ``fence``; how many were recorded."""
    return _execute(connection, _MARK, rows_of(_MARKED, marks), fence)


def settle_delayed(
    connection: BaseDatabaseWrapper, rows: Sequence[tuple[int, str, int | None, str]]
) -> int:
    """Mark delayed runs as fired or expired where they still wait; an expired one frees its key."""
    names = ("id", "state", "run_id", "reason")
    return _execute(connection, _SETTLE, [dict(zip(names, row, strict=True)) for row in rows])


def _execute(
    connection: BaseDatabaseWrapper, sql: str, rows: Sequence[Mapping[str, Any]], *rest: Any
) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, [document(rows), *rest])
        return int(cursor.rowcount)
