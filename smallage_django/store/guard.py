"""Turns the database's bad moments into :class:`StoreUnavailable`, and repeats what may be repeated.

Deadlocks, serialization failures and SQLite's busy file end a transaction without a trace of it, so outside a
caller's transaction the whole step is tried again, three times. Everything else that the driver reports as an
operational error means that the database is away: the connection is dropped, and the loop backs off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    connections,
)

from ..errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

#: How often a step that lost a race inside the database is tried in all.
TRIES: Final = 3
_PAUSE_S: Final = 0.05
#: SQLSTATEs of PostgreSQL and error numbers of MariaDB/MySQL: deadlock, serialization failure, lock wait.
_LOST_RACE_STATES: Final = frozenset({"40001", "40P01", "55P03"})
_LOST_RACE_NUMBERS: Final = frozenset({1205, 1213, 1020})


class HasAlias(Protocol):
    alias: str


S = TypeVar("S", bound=HasAlias)


def guarded(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T]:
    """Wrap a store method, which must be one transaction that may be repeated. Raises ``StoreUnavailable``."""

    @wraps(method)
    def step(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        connection = connections[self.alias]
        inside = connection.in_atomic_block
        for attempt in range(1, TRIES + 1):
            try:
                return method(self, *args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if inside:
                    raise
                if lost_race(error) and attempt < TRIES:
                    time.sleep(_PAUSE_S * attempt)
                    continue
                connection.close()
                raise StoreUnavailable(f"database {self.alias!r}: {error}") from error
            except DatabaseError as error:
                if not inside and not connection.is_usable():
                    connection.close()
                    raise StoreUnavailable(f"database {self.alias!r}: {error}") from error
                raise
        raise AssertionError("unreachable")  # pragma: no cover

    # functools.wraps types its result as a wrapper object that is no plain method.
    return cast("Callable[Concatenate[S, P], T]", step)


def lost_race(error: BaseException) -> bool:
    """Whether the database ended the transaction in favour of another one, so that repeating it is right."""
    cause = error.__cause__ or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state in _LOST_RACE_STATES:
        return True
    number: Any = cause.args[0] if cause.args else None
    if number in _LOST_RACE_NUMBERS:
        return True
    return "database is locked" in str(cause) or "database table is locked" in str(cause)
