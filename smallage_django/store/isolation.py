"""One bad row does not stop the rest: a batch that the database refuses is repeated row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from django.db import DatabaseError, InterfaceError, OperationalError

from ..ports import Fired
from .reading import BROKEN

#: Longest reason that is kept of an error whose text is not ours.
_LONGEST: Final = 500


def row_by_row(
    whole: Callable[[], Fired],
    ids: Callable[[], Iterable[int]],
    one: Callable[[int], Fired],
    put_aside: Callable[[int, str], Fired],
) -> Fired:
    """What ``whole`` did; where its contents are refused, what ``one`` did with each row, the bad ones put aside.

    Each call is a transaction of its own. An outage of the database is no fault of a row and passes through.
    """
    try:
        return whole()
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, *BROKEN):
        parts = [_try(pk, one, put_aside) for pk in ids()]
    return Fired(
        orders=[order for part in parts for order in part.orders],
        inserted=sum(part.inserted for part in parts),
        expired=sum(part.expired for part in parts),
        examined=sum(part.examined for part in parts),
        broken=[told for part in parts for told in part.broken],
    )


def _try(pk: int, one: Callable[[int], Fired], put_aside: Callable[[int, str], Fired]) -> Fired:
    try:
        return one(pk)
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, *BROKEN) as error:
        return put_aside(pk, str(error).strip()[:_LONGEST] or type(error).__name__)
