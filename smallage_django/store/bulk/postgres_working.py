"""Begin and finish on PostgreSQL: arrays in, one statement, RETURNING.

``state || ''`` keeps the planner from looking rows up by state: its statistics lag behind a table in which a state
has thousands of rows now and none a minute later, while the ids find each row in one step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.dateparse import parse_duration

from ...domain.lifecycle import State
from ...fields import InstantField
from ...ports import Finish
from .columns import BEGUN, TABLE
from .document import document
from .portable_working import BEGINNABLE, Entry

_LAG = "(EXTRACT(EPOCH FROM (%s - r.due_at)) * 1000)::bigint"
_BEGIN = f"""
UPDATE {TABLE} AS r SET
    state = 'running', reason_code = '', reason = '',
    attempt = r.attempt + 1, token = n.token, worker = n.worker,
    started_at = n.now,
    first_started_at = COALESCE(r.first_started_at, n.now),
    start_lag_ms = COALESCE(r.start_lag_ms, {_LAG % "n.now"}),
    stream = e.stream, entry_id = e.entry_id,
    enqueued_at = CASE WHEN r.state = 'claimed' THEN e.at ELSE r.enqueued_at END,
    dispatch_lag_ms = COALESCE(r.dispatch_lag_ms, {_LAG % "e.at"})
FROM
    unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[]) AS e(fire_id, stream, entry_id, at),
    (VALUES (%s::text, %s::text, %s::timestamptz)) AS n(token, worker, now)
WHERE r.fire_id = e.fire_id COLLATE "C"
    AND CASE WHEN e.fire_id IS NOT NULL THEN r.state = ANY(%s) END
    AND (r.start_deadline_at IS NULL OR r.start_deadline_at >= n.now)
RETURNING {", ".join(f"r.{name}" for name in BEGUN)}
"""  # noqa: S608 - names of our own columns
_FINISH = f"""
UPDATE {TABLE} AS r SET
    state = f.state, finished_at = f.finished_at,
    due_at = COALESCE(f.due_at, r.due_at),
    promotion = r.promotion + f.again,
    result = f.result::jsonb, error = f.error, error_fingerprint = f.fingerprint,
    reason_code = f.reason_code, reason = f.reason
FROM json_to_recordset(%s::json) AS f(
    id bigint, token text, attempt int, state text, finished_at timestamptz, due_at timestamptz,
    again int, result json, error text, fingerprint text, reason_code text, reason text
)
WHERE r.id = f.id AND r.token = f.token AND r.attempt = f.attempt
    AND CASE WHEN f.id IS NOT NULL THEN r.state = 'running' END
RETURNING r.id
"""  # noqa: S608 - names of our own columns
_INSTANTS = frozenset({"scheduled_for", "due_at", "started_at", "late_at"})


def begin(
    connection: BaseDatabaseWrapper,
    entries: Sequence[Entry],
    worker: str,
    token: str,
    now: datetime,
) -> list[tuple[Any, ...]]:
    """Take what may run; the rows taken, as :data:`BEGUN` says."""
    columns = list(zip(*entries, strict=True))
    parameters = [list(column) for column in columns]
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN, [*parameters, token, worker, now, list(BEGINNABLE)])
        return [_row(row, connection) for row in cursor.fetchall()]


def finish(connection: BaseDatabaseWrapper, finishes: Sequence[Finish]) -> set[int]:
    """Record outcomes where the attempt is still the caller's; the ids of the rows that were changed."""
    if not finishes:
        return set()
    rows = [_outcome(item) for item in sorted(finishes, key=lambda item: item.begun.run_id)]
    with connection.cursor() as cursor:
        cursor.execute(_FINISH, [document(rows)])
        return {row[0] for row in cursor.fetchall()}


def _outcome(finish: Finish) -> dict[str, Any]:
    begun, outcome = finish.begun, finish.outcome
    retrying = finish.state is State.RETRYING
    row = {
        "id": begun.run_id,
        "token": begun.token,
        "attempt": begun.attempt,
        "state": finish.state.value,
        "finished_at": None if retrying else finish.finished_at,
        "due_at": finish.due_at,
        "again": int(retrying),
        "error": outcome.error,
        "fingerprint": outcome.fingerprint,
        "reason_code": finish.reason_code,
        "reason": finish.reason,
    }
    if outcome.result is not None:
        row["result"] = outcome.result
    return row


def _row(row: tuple[Any, ...], connection: BaseDatabaseWrapper) -> tuple[Any, ...]:
    return tuple(_value(name, value, connection) for name, value in zip(BEGUN, row, strict=True))


def _value(name: str, value: Any, connection: BaseDatabaseWrapper) -> Any:
    if value is None:
        return None
    if name in ("args", "kwargs"):
        return json.loads(value) if isinstance(value, str) else value
    if name == "timeout" and isinstance(value, str):
        return parse_duration(value)
    if name in _INSTANTS:
        return _INSTANT.from_db_value(value, None, connection)
    return value


_INSTANT = InstantField()
