"""Fire ids: the deterministic name of one act of firing, the same for every attempt and delivery.

An id never depends on anything that can be edited (a name, a rule's version) or drawn anew, so that deciding twice
gives the same id and the unique column lets only one row in.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from base64 import b32encode
from datetime import UTC, datetime, timedelta
from typing import Final

#: Column width of a fire id: Django's ``TaskResult.id`` must stay below 64 characters.
MAX_LENGTH: Final = 63

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SHAPE = re.compile(
    r"(?:sched:[0-9a-f]{32}:-?\d{1,15}(?:\.[a-z2-7]{7})?(?::b\d{1,4})?"
    r"|(?:once|task|manual|replay):[0-9a-f]{32})"
)


def epoch_ms(instant: datetime) -> int:
    """Whole milliseconds from the UNIX epoch to an aware ``instant``, rounded down."""
    return (instant - _EPOCH) // _MILLISECOND


def from_epoch_ms(milliseconds: int) -> datetime:
    """The aware UTC instant of so many milliseconds after the UNIX epoch."""
    return _EPOCH + milliseconds * _MILLISECOND


def scheduled(schedule: uuid.UUID, occurrence: datetime) -> str:
    """The fire id of one occurrence (an aware instant) of one schedule."""
    return f"sched:{schedule.hex}:{epoch_ms(occurrence)}"


def provided(fire_id: str, key: str) -> str:
    """The fire id of one of several argument sets of an occurrence, told apart by the provider's ``key``."""
    digest = hashlib.sha256(key.encode()).digest()
    return f"{fire_id}.{b32encode(digest).decode().lower()[:7]}"


def backfilled(fire_id: str, number: int) -> str:
    """The fire id of the ``number``-th backfill of an occurrence."""
    return f"{fire_id}:b{number}"


def once(uid: uuid.UUID) -> str:
    """The fire id of a delayed run."""
    return f"once:{uid.hex}"


def enqueued(uid: uuid.UUID) -> str:
    """The fire id of a task enqueued to run at once."""
    return f"task:{uid.hex}"


def manual(uid: uuid.UUID) -> str:
    """The fire id of a run that a person asked for."""
    return f"manual:{uid.hex}"


def replayed(uid: uuid.UUID) -> str:
    """The fire id of a new run with the arguments of an old one."""
    return f"replay:{uid.hex}"


def is_fire_id(text: str) -> bool:
    """Whether ``text`` has the shape of an id made here; a cheap guard before a database is asked."""
    return len(text) <= MAX_LENGTH and _SHAPE.fullmatch(text) is not None


def spread(fire_id: str, most: timedelta) -> timedelta:
    """The jitter of one fire: between zero and ``most`` (exclusive), in whole milliseconds, by a digest of its id.

    Being a function of the id it is the same in every process, in a preview and in a repeated decision.
    """
    steps = most // _MILLISECOND
    if steps <= 0:
        return timedelta(0)
    digest = hashlib.sha256(b"jitter\0" + fire_id.encode()).digest()
    return int.from_bytes(digest[:8]) % steps * _MILLISECOND
