"""The agreed clock: the database's, or one that advances a recent reading of it by monotonic time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..errors import StoreUnavailable
from ..fields import DatabaseClock, InstantField
from .guard import guarded

#: How long a reading may be advanced by this host's monotonic clock before the database is asked again.
RECALIBRATE_AFTER_S: Final = 1.0


class DatabaseNow:
    """The database's statement clock as a ``Clock`` port. Raises ``StoreUnavailable``."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @guarded
    def now(self) -> datetime:
        connection = connections[self.alias]
        sql = _clock_sql(connection)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {sql}")
            row = cursor.fetchone()
        value = row[0]
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        now = InstantField().from_db_value(value, None, connection)
        if now is None:
            raise StoreUnavailable(f"database {self.alias!r} does not know the time")
        return now


class CalibratedClock:
    """Another clock, read at most once a second and advanced in between; never goes back. Safe for threads."""

    def __init__(
        self,
        source: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        every_s: float = RECALIBRATE_AFTER_S,
    ) -> None:
        self._source = source
        self._monotonic = monotonic
        self._every_s = every_s
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._reading = datetime.min.replace(tzinfo=UTC)
        self._latest = self._reading

    def now(self) -> datetime:
        with self._lock:
            at = self._monotonic()
            if self._read_at is None or at - self._read_at >= self._every_s:
                self._reading = self._source()
                self._read_at = at = self._monotonic()
            now = self._reading + timedelta(seconds=at - self._read_at)
            self._latest = max(self._latest, now)
            return self._latest


def _clock_sql(connection: BaseDatabaseWrapper) -> str:
    clock = DatabaseClock()
    render: Any = getattr(clock, f"as_{connection.vendor}", clock.as_sql)
    sql: str = render(None, connection)[0]
    # Without parameters the driver does not unescape the doubled percent signs.
    return sql.replace("%%", "%")
