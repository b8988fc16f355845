"""Insert runs, advance schedules, mark entries on any database: the same behaviour, row by row in one round of SQL."""
# ruff: noqa: S608 - the statements are made of names of our own columns

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper

from ...domain.identity import epoch_ms
from ...fields import InstantField
from ...models import DelayedRun, Run, Schedule
from .drafts import DRAFTED, Advance, Mark, RunDraft

_ADVANCE: Final = (
    f"UPDATE {Schedule._meta.db_table} SET next_due_at = %s, accounted_until = COALESCE(%s, accounted_until), "
    "runs_fired = runs_fired + %s, state = %s, state_reason = %s "
    "WHERE id = %s AND next_due_at = %s AND NOT is_stale"
)
_MARK: Final = (
    f"UPDATE {Run._meta.db_table} SET state = 'enqueued', stream = %s, entry_id = %s, enqueued_at = %s, "
    "dispatch_lag_ms = COALESCE(dispatch_lag_ms, %s) WHERE id = %s AND state = 'claimed' AND fence = %s"
)
_SETTLE: Final = (
    f"UPDATE {DelayedRun._meta.db_table} SET state = %s, run_id = %s, reason = %s "
    "WHERE id = %s AND state = 'waiting'"
)
_INSTANT: Final = InstantField()


def insert_runs(connection: BaseDatabaseWrapper, drafts: Sequence[RunDraft]) -> dict[str, int]:
    """Insert what is not there yet; the ids of the inserted rows by fire id."""
    runs = Run.objects.using(connection.alias)
    fire_ids = [draft.fire_id for draft in drafts]
    known = set(runs.filter(fire_id__in=fire_ids).values_list("fire_id", flat=True))
    new = [
        Run(**{name: getattr(draft, name) for name in DRAFTED})
        for draft in drafts
        if draft.fire_id not in known
    ]
    runs.bulk_create(new, ignore_conflicts=True)
    # A row that another process inserted in between carries its fence, not ours: it is not counted as inserted.
    fences = {draft.fire_id: draft.fence for draft in drafts}
    found = runs.filter(fire_id__in=[run.fire_id for run in new])
    return {
        fire_id: pk
        for fire_id, pk, fence in found.values_list("fire_id", "id", "fence")
        if fence == fences[fire_id]
    }


def advance(connection: BaseDatabaseWrapper, advances: Sequence[Advance]) -> int:
    """Move schedules on where they still stand where they were read; how many were moved."""
    at = _adapter(connection)
    return _each(
        connection,
        _ADVANCE,
        [
            (
                at(item.next_due_at),
                at(item.accounted_until),
                item.runs,
                item.state,
                item.state_reason,
                item.schedule_id,
                at(item.was_due_at),
            )
            for item in advances
        ],
    )


def mark(connection: BaseDatabaseWrapper, marks: Sequence[Mark], fence: int) -> int:
    """Record entries where the row is still claimed under ``fence``; how many were recorded."""
    at = _adapter(connection)
    due = dict(
        Run.objects.using(connection.alias)
        .filter(pk__in=[item.run_id for item in marks])
        .values_list("pk", "due_at")
    )
    return _each(
        connection,
        _MARK,
        [
            (
                item.stream,
                item.entry_id,
                at(item.enqueued_at),
                epoch_ms(item.enqueued_at) - epoch_ms(due[item.run_id]),
                item.run_id,
                fence,
            )
            for item in marks
            if item.run_id in due
        ],
    )


def settle_delayed(
    connection: BaseDatabaseWrapper, rows: Sequence[tuple[int, str, int | None, str]]
) -> int:
    """Mark delayed runs as fired or expired where they still wait; an expired one frees its key."""
    expired = [pk for pk, state, _, _ in rows if state != "fired"]
    if expired:
        waiting = DelayedRun.objects.using(connection.alias).filter(state="waiting")
        waiting.filter(pk__in=expired).update(key=None)
    return _each(
        connection, _SETTLE, [(state, run_id, reason, pk) for pk, state, run_id, reason in rows]
    )


def _adapter(connection: BaseDatabaseWrapper) -> Any:
    def adapt(value: Any) -> Any:
        return _INSTANT.get_db_prep_value(value, connection)

    return adapt


def _each(connection: BaseDatabaseWrapper, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    if not rows:
        return 0
    with connection.cursor() as cursor:
        cursor.executemany(sql, rows)
        return max(int(cursor.rowcount), 0)
