"""IANA zones from the ``tzdata`` package's own files, so that every host computes with the same data.

``zoneinfo`` prefers the system's database; two hosts with different ones would make two runs out of one occurrence.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import tzdata

from ..errors import InvalidRule

#: Listed, but they mean something else on every machine.
_NOT_ZONES: Final = frozenset({"localtime", "Factory"})
_LONGEST_NAME: Final = 64
_DAY: Final = timedelta(days=1)
_ZERO: Final = timedelta(0)
_SECOND: Final = timedelta(seconds=1)
#: How far ahead the next clock change is looked for.
_HORIZON_DAYS: Final = 366 * 5


class ClockChange(NamedTuple):
    """An instant (aware UTC) at which a zone's offset from UTC changes."""

    at: datetime
    before: timedelta
    after: timedelta


def zone_data_version() -> str:
    """The IANA release of the zone data in use, such as ``2026f``."""
    return str(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every zone name that is accepted."""
    listed = (files("tzdata") / "zones").read_text(encoding="ascii").split()
    return frozenset(listed) - _NOT_ZONES


def resolve_zone(name: object) -> tzinfo:
    """The zone of an IANA name. Raises ``InvalidRule`` (field ``timezone``) for anything that is none."""
    if not isinstance(name, str):
        raise InvalidRule(
            f"timezone is {name!r}; it must be an IANA name such as Europe/Berlin", field="timezone"
        )
    if len(name) > _LONGEST_NAME or name not in zone_names():
        raise InvalidRule(_unknown(name[:_LONGEST_NAME]), field="timezone")
    return _load(name)


@lru_cache(maxsize=700)
def _load(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    resource = files("tzdata.zoneinfo").joinpath(*name.split("/"))
    with resource.open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def _unknown(name: str) -> str:
    """The refusal of a name, with the zone that may have been meant."""
    wanted = name.strip().lower()
    by_end = [zone for zone in zone_names() if zone.lower().rpartition("/")[2] == wanted]
    whole = [zone for zone in zone_names() if zone.lower() == wanted]
    close = whole or sorted(by_end) or get_close_matches(name, sorted(zone_names()), 1)
    hint = f"; did you mean {close[0]}?" if close else "; write an IANA name such as Europe/Berlin"
    return f"timezone {name!r} is unknown{hint}"


@lru_cache(maxsize=200_000)
def ordinary_offset(name: str, ordinal: int) -> timedelta | None:
    """The offset that holds from 00:00 to 24:00 of a date; None on a day with a clock change."""
    zone = _load(name)
    day = datetime.fromordinal(ordinal)
    start = day.replace(tzinfo=zone).utcoffset()
    try:
        end = (day + _DAY).replace(tzinfo=zone, fold=1).utcoffset()
    except OverflowError:
        end = start
    return start if start == end else None


def showings(reading: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """The offsets of a naive reading's first and second showing; equal where it is shown once.

    The second is smaller where the reading is shown twice, and larger where it is skipped.
    """
    first = reading.replace(tzinfo=zone, fold=0).utcoffset()
    second = reading.replace(tzinfo=zone, fold=1).utcoffset()
    return first or _ZERO, second or _ZERO


def gap_end(reading: datetime, before: timedelta, after: timedelta, zone: tzinfo) -> datetime:
    """The instant (naive UTC) at which the gap that swallows ``reading`` ends: the moment of the change."""
    early, late = reading - after, reading - before
    while late - early > _SECOND:
        middle = early + (late - early) // 2
        middle = middle.replace(microsecond=0)
        if middle <= early:
            break
        if _offset_at(middle, zone) == before:
            early = middle
        else:
            late = middle
    return late


def clock_changes(name: str, after: datetime, count: int) -> list[ClockChange]:
    """The next ``count`` changes of the zone's clock after an aware instant, at most five years ahead."""
    zone = resolve_zone(name)
    found: list[ClockChange] = []
    for ordinal in _ordinals(after.astimezone(zone).date()):
        if ordinary_offset(name, ordinal) is not None:
            continue
        change = _change_on(ordinal, zone)
        if change is not None and change.at > after and (not found or change != found[-1]):
            found.append(change)
            if len(found) == count:
                break
    return found


def _ordinals(start: date) -> Iterator[int]:
    first = max(start.toordinal() - 1, 1)
    return iter(range(first, min(first + _HORIZON_DAYS, date.max.toordinal())))


def _change_on(ordinal: int, zone: tzinfo) -> ClockChange | None:
    """The change on a local day, found by bisection between the instants at which the day begins and ends."""
    day = datetime.fromordinal(ordinal)
    before = day.replace(tzinfo=zone).utcoffset() or _ZERO
    after = (day + _DAY).replace(tzinfo=zone, fold=1).utcoffset() or _ZERO
    early, late = day - before - _SECOND, day + _DAY - min(before, after) + _SECOND
    if _offset_at(early, zone) == _offset_at(late, zone):
        return None
    start = _offset_at(early, zone)
    while late - early > _SECOND:
        middle = (early + (late - early) // 2).replace(microsecond=0)
        if middle <= early:
            break
        if _offset_at(middle, zone) == start:
            early = middle
        else:
            late = middle
    return ClockChange(late.replace(tzinfo=UTC), start, _offset_at(late, zone))


def _offset_at(instant: datetime, zone: tzinfo) -> timedelta:
    """The offset at a naive UTC instant."""
    return instant.replace(tzinfo=UTC).astimezone(zone).utcoffset() or _ZERO
