"""Insert runs, advance schedules, mark entries on PostgreSQL: arrays in, one statement each."""
# ruff: noqa: S608 - the statements are made of names of our own columns

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, TextField

from ...models import DelayedRun, Run, Schedule
from .drafts import DRAFTED, Advance, Mark, RunDraft

_JSON: Final = frozenset({"args", "kwargs"})
_TYPES: Final = {
    "fire_id": "text",
    "args": "text",
    "kwargs": "text",
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
    values = [f"d.{name}::jsonb" if name in _JSON else f"d.{name}" for name in DRAFTED]
    arrays = ", ".join(f"%s::{_TYPES.get(name, 'text')}[]" for name in DRAFTED)
    return (
        f"INSERT INTO {Run._meta.db_table} ({names}) "
        f"SELECT {', '.join([*values, *constants.values()])} "
        f"FROM unnest({arrays}) AS d({', '.join(DRAFTED)}) "
        "ON CONFLICT (fire_id) DO NOTHING RETURNING fire_id, id"
    )


_INSERT: Final = _insert_statement()
_ADVANCE: Final = f"""
UPDATE {Schedule._meta.db_table} AS s SET
    next_due_at = a.next_due_at, accounted_until = COALESCE(a.accounted_until, s.accounted_until),
    runs_fired = s.runs_fired + a.runs, state = a.state, state_reason = a.state_reason
FROM unnest(
    %s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::int[], %s::text[], %s::text[]
) AS a(id, was_due_at, next_due_at, accounted_until, runs, state, state_reason)
WHERE s.id = a.id AND s.next_due_at = a.was_due_at AND NOT s.is_stale
"""
_MARK: Final = f"""
UPDATE {Run._meta.db_table} AS r SET
    state = 'enqueued', stream = m.stream, entry_id = m.entry_id, enqueued_at = m.enqueued_at,
    dispatch_lag_ms = COALESCE(
        r.dispatch_lag_ms, (EXTRACT(EPOCH FROM (m.enqueued_at - r.due_at)) * 1000)::bigint
    )
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[]) AS m(id, stream, entry_id, enqueued_at)
WHERE r.id = m.id AND r.state = 'claimed' AND r.fence = %s
"""
_SETTLE: Final = f"""
UPDATE {DelayedRun._meta.db_table} AS d SET
    state = n.state, run_id = n.run_id, reason = n.reason,
    key = CASE WHEN n.state = 'fired' THEN d.key END
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[]) AS n(id, state, run_id, reason)
WHERE d.id = n.id AND d.state = 'waiting'
"""


def insert_runs(connection: BaseDatabaseWrapper, drafts: Sequence[RunDraft]) -> dict[str, int]:
    """Insert what is not there yet; the ids of the inserted rows by fire id."""
    columns = [_column(name, drafts) for name in DRAFTED]
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, columns)
        return dict(cursor.fetchall())


def advance(connection: BaseDatabaseWrapper, advances: Sequence[Advance]) -> int:
    """Move schedules on where they still stand where they were read; how many were moved."""
    rows = [
        (
            item.schedule_id,
            item.was_due_at,
            item.next_due_at,
            item.accounted_until,
            item.runs,
            item.state,
            item.state_reason,
        )
        for item in advances
    ]
    return _execute(connection, _ADVANCE, rows, [])


def mark(connection: BaseDatabaseWrapper, marks: Sequence[Mark], fence: int) -> int:
    """Record entries where the row is still claimed under ``fence``; how many were recorded."""
    rows = [(item.run_id, item.stream, item.entry_id, item.enqueued_at) for item in marks]
    return _execute(connection, _MARK, rows, [fence])


def settle_delayed(
    connection: BaseDatabaseWrapper, rows: Sequence[tuple[int, str, int | None, str]]
) -> int:
    """Mark delayed runs as fired or expired where they still wait; an expired one frees its key."""
    return _execute(connection, _SETTLE, rows, [])


def _execute(
    connection: BaseDatabaseWrapper, sql: str, rows: Sequence[Sequence[Any]], rest: list[Any]
) -> int:
    columns = [list(column) for column in zip(*rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(sql, columns + rest)
        return int(cursor.rowcount)


def _column(name: str, drafts: Sequence[RunDraft]) -> list[Any]:
    values = [getattr(draft, name) for draft in drafts]
    return [json.dumps(value) for value in values] if name in _JSON else values
