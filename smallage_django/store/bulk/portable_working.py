"""Begin and finish on any database: a conditional update of all rows at once, then read back what it took.

Both run inside a transaction of the caller's. The condition is in the update, so it does not matter what another
process does in between: a row carries either this caller's token afterwards, or it was not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Coalesce

from ...domain.lifecycle import State, sources
from ...fields import InstantField
from ...models import Run
from ...ports import Finish
from .columns import BEGUN, TABLE

#: From where a run may be begun without asking who owns it.
BEGINNABLE: Final = tuple(sorted(state.value for state in sources(State.RUNNING) - {State.RUNNING}))
FINISHED: Final = (
    "state",
    "finished_at",
    "due_at",
    "result",
    "error",
    "error_fingerprint",
    "reason_code",
    "reason",
)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Entry(NamedTuple):
    """Where the entry of a fire id is, and when it was added (aware UTC)."""

    fire_id: str
    stream: str
    entry_id: str
    added_at: datetime


def begin(
    connection: BaseDatabaseWrapper,
    entries: Sequence[Entry],
    worker: str,
    token: str,
    now: datetime,
) -> list[tuple[Any, ...]]:
    """Take what may run; the rows taken, as :data:`BEGUN` says."""
    by_id = {entry.fire_id: entry for entry in entries}
    runs = Run.objects.using(connection.alias)
    in_time = Q(start_deadline_at__isnull=True) | Q(start_deadline_at__gte=now)
    taken = runs.filter(in_time, fire_id__in=list(by_id), state__in=BEGINNABLE).update(
        # First, since MariaDB's later assignments would see the new state. Of a claimed row the mark has not come yet.
        enqueued_at=Case(When(state=State.CLAIMED.value, then=None), default=F("enqueued_at")),
        state=State.RUNNING.value,
        reason_code="",
        reason="",
        attempt=F("attempt") + 1,
        token=token,
        worker=worker,
        started_at=now,
        first_started_at=Coalesce("first_started_at", Value(now, output_field=InstantField())),
    )
    if not taken:
        return []
    wanted = ("enqueued_at", "dispatch_lag_ms", "start_lag_ms", *BEGUN)
    rows = runs.filter(fire_id__in=list(by_id), token=token, state=State.RUNNING.value)
    found = list(rows.values_list(*wanted))
    _fill_in(connection, found, by_id, now)
    at = {name: BEGUN.index(name) for name in ("fire_id", "stream", "entry_id")}
    begun = []
    for _, _, _, *row in found:
        entry = by_id[row[at["fire_id"]]]
        row[at["stream"]], row[at["entry_id"]] = entry.stream, entry.entry_id
        begun.append(tuple(row))
    return begun


def _fill_in(
    connection: BaseDatabaseWrapper,
    found: Sequence[Sequence[Any]],
    by_id: dict[str, Entry],
    now: datetime,
) -> None:
    rows: list[tuple[int, list[Any]]] = []
    due_at = 3 + BEGUN.index("due_at")
    for row in found:
        enqueued_at, dispatch_lag, start_lag, pk, fire_id = row[:5]
        entry = by_id[fire_id]
        if start_lag is None:
            start_lag = (now - row[due_at]) // _MILLISECOND
        if dispatch_lag is None:
            dispatch_lag = (entry.added_at - row[due_at]) // _MILLISECOND
        values = [
            entry.stream,
            entry.entry_id,
            enqueued_at or entry.added_at,
            dispatch_lag,
            start_lag,
        ]
        rows.append((pk, values))
    names = ("stream", "entry_id", "enqueued_at", "dispatch_lag_ms", "start_lag_ms")
    sql, parameters = assignments(connection, names, rows)
    marks = ", ".join(["%s"] * len(rows))
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {TABLE} SET {sql} WHERE id IN ({marks})",  # noqa: S608 - own names
            [*parameters, *(pk for pk, _ in rows)],
        )


def finish(connection: BaseDatabaseWrapper, finishes: Sequence[Finish]) -> set[int]:
    """Record outcomes where the attempt is still the caller's; the ids of the rows that were changed."""
    if not finishes:
        return set()
    rows: list[tuple[int, list[Any]]] = []
    ours: list[Any] = []
    again: list[int] = []
    for item in sorted(finishes, key=lambda item: item.begun.run_id):
        begun, outcome = item.begun, item.outcome
        retrying = item.state is State.RETRYING
        values = [
            item.state.value,
            None if retrying else item.finished_at,
            # While it runs nobody else moves it.
            item.due_at or begun.due_at,
            outcome.result,
            outcome.error,
            outcome.fingerprint,
            item.reason_code,
            item.reason,
        ]
        rows.append((begun.run_id, values))
        ours += [begun.run_id, begun.token, begun.attempt]
        again += [begun.run_id] if retrying else []
    condition = " OR ".join(["(id = %s AND token = %s AND attempt = %s)"] * len(rows))
    sql, parameters = assignments(connection, FINISHED, rows)
    if again:
        marks = ", ".join(["%s"] * len(again))
        sql += f", promotion = promotion + CASE WHEN id IN ({marks}) THEN 1 ELSE 0 END"
        parameters += again
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {TABLE} SET {sql} WHERE state = 'running' AND ({condition})",  # noqa: S608 - own names
            [*parameters, *ours],
        )
    return recorded(connection.alias, finishes)


def recorded(alias: str, finishes: Sequence[Finish]) -> set[int]:
    """Which of these outcomes the rows hold: also those that an earlier call wrote whose answer was lost."""
    wanted = {
        (item.begun.run_id, item.begun.token, item.begun.attempt, item.state.value)
        for item in finishes
    }
    runs = Run.objects.using(alias).filter(pk__in=[row[0] for row in wanted])
    found = runs.values_list("pk", "token", "attempt", "state")
    return {row[0] for row in found if row in wanted}


def assignments(
    connection: BaseDatabaseWrapper,
    names: Sequence[str],
    rows: Sequence[tuple[int, Sequence[Any]]],
) -> tuple[str, list[Any]]:
    """The part after SET that gives each row (by primary key) values of its own, and its parameters."""
    parts = []
    parameters: list[Any] = []
    cases = " ".join(["WHEN %s THEN %s"] * len(rows))
    for position, name in enumerate(names):
        column: Any = Run._meta.get_field(name)
        case = f"CASE id {cases} END"
        if connection.features.requires_casted_case_in_updates:
            case = f"CAST({case} AS {column.cast_db_type(connection)})"
        parts.append(f"{name} = {case}")
        for pk, values in rows:
            parameters += [pk, column.get_db_prep_save(values[position], connection)]
    return ", ".join(parts), parameters
