# ruff: noqa: S608 - statements are put together from names and constants of ours; every value is a parameter
"""The rows that an application makes: a run to start at once, many of them, or a delayed run.

Everything here is written in the caller's transaction, so that it is there exactly if the caller's own rows are. Runs
are inserted as claimed with fence 0: the process that inserts them is the one that hands them to the stream.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..arguments import payload_of
from ..conf import config
from ..domain import identity
from ..domain.envelope import Envelope
from ..domain.lifecycle import Kind, State
from ..fields import DatabaseClock, InstantField
from ..models import DelayedRun, DelayedState, Run
from ..ports import Order
from .guard import guarded

#: Rows of one statement, where the database's limit on parameters does not say less.
CHUNK: Final = 1000
#: SQLite allows 500 terms in one compound SELECT.
CHUNK_OF_SELECTS: Final = 400
#: Taken from the database's clock by the statement itself, all three the same.
_CLOCKED: Final = ("scheduled_for", "due_at", "claimed_at")
#: Differ from row to row of one task.
_OWN: Final = ("fire_id", "args", "kwargs", "payload_ref")
#: The same for all rows of one task.
_SHARED: Final = ("task", "backend", "queue", "priority", "max_attempts", "timeout", "backoff")


@dataclass(frozen=True, slots=True)
class Work:
    """What is to run and under which terms: everything of a run but its arguments."""

    task: str
    backend: str
    queue: str
    priority: int
    max_attempts: int
    timeout: timedelta | None
    backoff: str


@dataclass(slots=True)
class NewRun:
    """One run on its way into the database."""

    args: list[Any]
    kwargs: dict[str, Any]
    fire_id: str = field(default_factory=lambda: identity.enqueued(new_uid()))
    payload: bytes = b""
    payload_ref: str = ""
    run_id: int = 0
    scheduled_for: datetime | None = None


class Enqueueing:
    """Inserts of one database alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @guarded
    def insert_run(self, work: Work, run: NewRun) -> Order:
        """Insert one claimed run with one statement; how to publish it."""
        connection = connections[self.alias]
        statement = _statement(self.alias, connection.vendor)
        _weigh(work, run, config().max_payload)
        parameters = _shared_values(connection, work) + _own_values(run)
        with connection.cursor() as cursor:
            if connection.features.can_return_columns_from_insert:
                cursor.execute(f"{statement.one} RETURNING id, scheduled_for", parameters)
                row = cursor.fetchone()
            else:
                cursor.execute(statement.one, parameters)
                row = _read_back(connection, cursor, [run.fire_id])[run.fire_id]
        run.run_id, run.scheduled_for = row[0], _instant(row[1], connection)
        return _order(work, run)

    def insert_runs(self, work: Work, runs: Sequence[NewRun]) -> list[Order]:
        """Insert claimed runs, all or none; how to publish them, in the order given."""
        with transaction.atomic(using=self.alias, savepoint=False):
            for chunk in _chunks(runs, self._chunk()):
                self._insert_chunk(work, chunk)
        return [_order(work, run) for run in runs]

    def insert_delayed(self, delayed: DelayedRun) -> DelayedRun:
        """Insert a delayed run without a key."""
        delayed.save(using=self.alias, force_insert=True)
        return delayed

    def insert_delayed_once(self, delayed: DelayedRun, replace: bool) -> tuple[DelayedRun, bool]:
        """Insert a delayed run unless its key is taken; the row that has the key, and whether it is the new one.

        With ``replace`` a row that still waits is given everything of the new one but its uid.
        """
        rows = DelayedRun.objects.using(self.alias)
        while True:
            rows.bulk_create([delayed], ignore_conflicts=True)
            if replace:
                rows.filter(key=delayed.key, state=DelayedState.WAITING).exclude(
                    uid=delayed.uid
                ).update(**_replacement(delayed))
            kept = rows.filter(key=delayed.key).select_related("run").first()
            if kept is not None:
                return kept, kept.uid == delayed.uid
            # The row that had the key was cancelled between the two statements, which freed it.

    def _chunk(self) -> int:
        features = connections[self.alias].features
        size = CHUNK if connections[self.alias].vendor == "postgresql" else CHUNK_OF_SELECTS
        most = features.max_query_params
        return min(size, (most - len(_SHARED)) // len(_OWN)) if most else size

    def _insert_chunk(self, work: Work, runs: Sequence[NewRun]) -> None:
        connection = connections[self.alias]
        statement = _statement(self.alias, connection.vendor)
        most = config().max_payload
        for run in runs:
            _weigh(work, run, most)
        shared = _shared_values(connection, work)
        columns = [_own_values(run) for run in runs]
        if connection.vendor == "postgresql":
            own: list[Any] = [list(column) for column in zip(*columns, strict=True)]
            sql = statement.unnest
        else:
            own = [value for row in columns for value in row]
            sql = statement.many(len(runs))
        returns = connection.features.can_return_rows_from_bulk_insert
        with connection.cursor() as cursor:
            if returns:
                cursor.execute(f"{sql} RETURNING fire_id, id, scheduled_for", shared + own)
                found = {row[0]: row[1:] for row in cursor.fetchall()}
            else:
                cursor.execute(sql, shared + own)
                found = _read_back(connection, cursor, [run.fire_id for run in runs])
        for run in runs:
            run_id, scheduled_for = found[run.fire_id]
            run.run_id, run.scheduled_for = run_id, _instant(scheduled_for, connection)


def new_uid() -> uuid.UUID:
    """A random uid whose first bits are the host's time, so that new rows lie together in the index (version 7)."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high, low = random >> 68, random & ((1 << 62) - 1)
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low)


class _Statement:
    """The INSERT of a run by plain SQL: the ORM needs longer to write it than the database to carry it out."""

    def __init__(self, alias: str) -> None:
        connection = connections[alias]
        quote = connection.ops.quote_name
        template = Run(kind=Kind.ENQUEUE.value, state=State.CLAIMED.value)
        named = {*_CLOCKED, *_OWN, *_SHARED}
        constant = [
            item
            for item in Run._meta.concrete_fields
            if item.name not in named and not item.primary_key and not item.generated
        ]
        fixed = [_literal(item.pre_save(template, add=True)) for item in constant]
        fixed += [_clock_of(connection)] * len(_CLOCKED)
        columns = [item.column or "" for item in constant]
        of_name = {item.name: item.column or "" for item in Run._meta.concrete_fields}
        columns += [of_name[name] for name in (*_CLOCKED, *_SHARED, *_OWN)]
        self._head = f"INSERT INTO {quote(Run._meta.db_table)} ({', '.join(map(quote, columns))})"
        self._values = ", ".join(fixed + ["%s"] * len(_SHARED))
        self.one = f"{self._head} VALUES ({self._values}, %s, %s, %s, %s)"
        self.unnest = (
            f"{self._head} SELECT {self._values}, own.fire_id, own.args::jsonb, own.kwargs::jsonb, "
            "own.payload_ref FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) "
            "AS own (fire_id, args, kwargs, payload_ref)"
        )

    def many(self, rows: int) -> str:
        """For any database: each row is one SELECT."""
        first = "SELECT %s AS fire_id, %s AS args, %s AS kwargs, %s AS payload_ref"
        rest = " UNION ALL SELECT %s, %s, %s, %s" * (rows - 1)
        return (
            f"{self._head} SELECT {self._values}, own.fire_id, own.args, own.kwargs, own.payload_ref "
            f"FROM ({first}{rest}) own"
        )


@lru_cache(maxsize=16)
def _statement(alias: str, vendor: str) -> _Statement:  # noqa: ARG001 - the vendor tells a reconfigured alias apart
    return _Statement(alias)


def _clock_of(connection: BaseDatabaseWrapper) -> str:
    clock = DatabaseClock()
    # On PostgreSQL the statement's clock, not the wall's, which would differ from column to column.
    own = (
        None
        if connection.vendor == "postgresql"
        else getattr(clock, f"as_{connection.vendor}", None)
    )
    sql: str = (own or clock.as_sql)(None, connection)[0]
    return sql


def _literal(value: Any) -> str:
    """A constant of ours as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and (value == "" or value.isidentifier()):
        return f"'{value}'"
    raise TypeError(f"{value!r} is no constant that can be written into a statement")


def _shared_values(connection: BaseDatabaseWrapper, work: Work) -> list[Any]:
    return [
        work.task,
        work.backend,
        work.queue,
        work.priority,
        work.max_attempts,
        Run._meta.get_field("timeout").get_db_prep_save(work.timeout, connection),
        work.backoff,
    ]


def _own_values(run: NewRun) -> list[Any]:
    return [run.fire_id, json.dumps(run.args), json.dumps(run.kwargs), run.payload_ref]


def _read_back(
    connection: BaseDatabaseWrapper, cursor: Any, fire_ids: Sequence[str]
) -> dict[str, tuple[int, Any]]:
    quote = connection.ops.quote_name
    holes = ", ".join(["%s"] * len(fire_ids))
    cursor.execute(
        f"SELECT fire_id, id, scheduled_for FROM {quote(Run._meta.db_table)} "
        f"WHERE fire_id IN ({holes})",
        list(fire_ids),
    )
    return {row[0]: row[1:] for row in cursor.fetchall()}


def _instant(value: Any, connection: BaseDatabaseWrapper) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return InstantField().from_db_value(value, None, connection)


def _weigh(work: Work, run: NewRun, most: int) -> None:
    """Write the payload; one above the limit stays in the row, and the entry says so."""
    run.payload = payload_of(work.task, run.args, run.kwargs)
    if len(run.payload) > most:
        run.payload, run.payload_ref = b"", f"row:{run.fire_id}"


def _order(work: Work, run: NewRun) -> Order:
    if run.scheduled_for is None:
        raise AssertionError(f"{run.fire_id} is not inserted yet")
    envelope = Envelope(
        id=run.fire_id,
        task=work.task,
        payload=run.payload,
        enqueued_at=identity.epoch_ms(run.scheduled_for),
        payload_ref=run.payload_ref,
    )
    return Order(run.run_id, 0, work.queue, work.priority, envelope)


def _replacement(delayed: DelayedRun) -> dict[str, Any]:
    kept = {"id", "uid", "key", "state", "reason", "run", "created_at"}
    return {
        item.name: getattr(delayed, item.name)
        for item in DelayedRun._meta.concrete_fields
        if item.name not in kept
    }


def _chunks(runs: Sequence[NewRun], size: int) -> Iterator[list[NewRun]]:
    remaining = iter(runs)
    while chunk := list(islice(remaining, size)):
        yield chunk
