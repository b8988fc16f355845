"""One look at everything that waits: an idle pass of the scheduler asks nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from django.db import DataError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..fields import InstantField
from ..models import DelayedRun, Run, Schedule
from ..ports import Survey

_RUN = Run._meta.db_table
_SCHEDULE = Schedule._meta.db_table
_INSTANTS: Final = (
    f"SELECT MIN(next_due_at) FROM {_SCHEDULE}",  # noqa: S608 - names of our own tables
    f"SELECT MIN(run_at) FROM {DelayedRun._meta.db_table} WHERE state = 'waiting'",  # noqa: S608
    f"SELECT MIN(due_at) FROM {_RUN} WHERE state = 'pending'",  # noqa: S608
    f"SELECT MIN(due_at) FROM {_RUN} WHERE state = 'retrying'",  # noqa: S608
    f"SELECT MIN(claimed_at) FROM {_RUN} WHERE state = 'claimed'",  # noqa: S608
)
_INSTANT: Final = InstantField()
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def survey(alias: str) -> Survey:
    """The earliest instant of each kind of work (aware UTC)."""
    connection = connections[alias]
    try:
        with connection.cursor() as cursor:
            cursor.execute(_statement(connection.vendor))
            row = cursor.fetchone()
        instants = [_instant(value, connection) for value in row[:5]]
    except (DataError, ValueError, OverflowError):
        # Some row holds an instant that Python cannot read: look at everything, and the bad row is found and marked.
        return Survey(_LONG_AGO, _LONG_AGO, _LONG_AGO, _LONG_AGO, stale=True)
    schedule, delayed, pending, retrying, claimed = instants
    if row[6]:
        claimed = _LONG_AGO
    due = min((at for at in (pending, retrying) if at is not None), default=None)
    return Survey(schedule, delayed, due, claimed, bool(row[5]))


@lru_cache(maxsize=4)
def _statement(vendor: str) -> str:
    """One SELECT; each part of it is answered by an index alone."""
    # MySQL's driver reads its zero date as None: as text it is told apart from nothing.
    part = "CAST(({}) AS CHAR)" if vendor == "mysql" else "({})"
    parts = [part.format(sql) for sql in _INSTANTS]
    parts.append(f"EXISTS(SELECT 1 FROM {_SCHEDULE} WHERE is_stale)")  # noqa: S608
    # MIN leaves out a claim without an instant; recovery must not.
    parts.append(f"EXISTS(SELECT 1 FROM {_RUN} WHERE state = 'claimed' AND claimed_at IS NULL)")  # noqa: S608
    return f"SELECT {', '.join(parts)}"


def _instant(value: Any, connection: BaseDatabaseWrapper) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return _INSTANT.from_db_value(value, None, connection)
