"""IANA zones from the ``tzdata`` package's own files, and the eras of their clocks.

``zoneinfo`` prefers the system's database; two hosts with different ones would make two runs out of one occurrence.

Time is counted here in whole seconds on a scale on which ``seconds // 86400`` is the ordinal of the date, once for
instants (UTC) and once for readings (what the wall clock of a zone shows): reading = instant + offset. Plain numbers
never overflow at the ends of the calendar, and comparing them knows nothing of ``fold``.
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

DAY: Final = 86400
#: The first and the last second that a ``datetime`` can hold.
FIRST: Final = DAY
LAST: Final = (date.max.toordinal() + 1) * DAY - 1
#: How far ahead a next occurrence or a next change of the clock is looked for, in seconds: 50 years.
HORIZON: Final = 50 * 366 * DAY

#: Listed, but they mean something else on every machine.
_NOT_ZONES: Final = frozenset({"localtime", "Factory"})
_LONGEST_NAME: Final = 64
_ORIGIN: Final = datetime.min.replace(tzinfo=UTC)
#: Eras are looked for, and remembered, for so many seconds at a time.
_BLOCK: Final = 400 * DAY
#: How often the offset is looked at for that: since 1970 no zone has changed it twice within three days.
_GLANCE: Final = 2 * DAY


class ClockChange(NamedTuple):
    """An instant (aware UTC) at which a zone's offset from UTC changes."""

    at: datetime
    before: timedelta
    after: timedelta


class Era(NamedTuple):
    """A stretch of time, from ``start`` up to but not including ``end`` (UTC), in which a zone's offset stays the same.

    ``gap`` is the number of seconds that the clock jumped over at the start. Readings below ``fresh`` have been shown
    before, in an earlier era. Where nothing happened at the start, ``gap`` is 0 and ``fresh`` the first reading.
    """

    start: int
    end: int
    offset: int
    gap: int
    fresh: int


def to_seconds(instant: datetime) -> int:
    """An aware instant, rounded down to whole seconds. Raises ``ValueError`` for anything else.

    One that lies outside the years 1 to 9999 in UTC is read as the second before or the last second of them.
    """
    try:
        since = instant - _ORIGIN
    except TypeError:
        raise ValueError(
            f"{instant!r} is no instant: an aware datetime is needed, one with a time zone"
        ) from None
    return min(max((since.days + 1) * DAY + since.seconds, FIRST - 1), LAST)


def to_instant(seconds: int) -> datetime | None:
    """An aware UTC datetime; None beyond the years 1 to 9999."""
    if FIRST <= seconds <= LAST:
        return _ORIGIN + timedelta(seconds=seconds - FIRST)
    return None


def zone_data_version() -> str:
    """The IANA release of the zone data in use, such as ``2026f``."""
    return str(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every zone name that is accepted."""
    listed = (files("tzdata") / "zones").read_text(encoding="ascii").split()
    return frozenset(listed) - _NOT_ZONES


def resolve_zone(name: object) -> tzinfo:
    """The zone of an IANA name. Raises ``InvalidRule`` (field ``timezone``) for anything that is none.

    Rules and rows keep the name: a zone made from a file can be neither pickled nor copied.
    """
    if not isinstance(name, str):
        raise InvalidRule(
            f"timezone is {name!r}; it must be an IANA name such as Europe/Berlin", field="timezone"
        )
    if name not in zone_names():
        raise InvalidRule(_unknown(name), field="timezone")
    return _load(name)


@lru_cache(maxsize=1000)
def _load(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


def _unknown(name: str) -> str:
    """The refusal of a name, with the zone that may have been meant."""
    if len(name) > _LONGEST_NAME:
        return (
            f"timezone {name[:_LONGEST_NAME]!r}... has {len(name)} characters; no zone is that long"
        )
    wanted = name.strip().replace(" ", "_").lower()
    known = sorted(zone_names())
    whole = [zone for zone in known if zone.lower() == wanted]
    # Without the slash a legacy link such as Turkey or a place that lies in a folder, Berlin.
    by_place = [zone for zone in known if zone.lower().endswith("/" + wanted)]
    close = whole or by_place or get_close_matches(name, known, 1, 0.75)
    hint = f"did you mean {close[0]}?" if close else "write an IANA name such as Europe/Berlin"
    return f"timezone {name!r} is unknown; {hint}"


def era_at(name: str, instant: int) -> Era:
    """The era of a zone's clock that an instant (seconds, UTC) lies in. The name must be one that is accepted."""
    for era in _eras(name, instant // _BLOCK):
        if instant < era.end:
            return era
    raise AssertionError("the eras of a block cover it")  # pragma: no cover


def first_shown(name: str, reading: int) -> int:
    """The instant at which a zone's clock shows a reading for the first time; the end of the gap that swallows it."""
    # No offset has ever reached 16 hours, so the clock has not come to the reading yet.
    era = era_at(name, reading - 16 * 3600)
    while era.end + era.offset <= reading:
        era = era_at(name, era.end)
    return max(era.start, reading - era.offset)


def clock_changes(name: str, after: datetime, count: int) -> list[ClockChange]:
    """The next ``count`` changes of a zone's clock later than an aware instant, at most 50 years ahead.

    Raises ``InvalidRule`` for a name that is no zone.
    """
    resolve_zone(name)
    start = to_seconds(after)
    era = era_at(name, start)
    found: list[ClockChange] = []
    while len(found) < count and era.end <= min(start + HORIZON, LAST):
        following = era_at(name, era.end)
        at = to_instant(following.start)
        if at is not None and following.offset != era.offset:
            before, since = timedelta(seconds=era.offset), timedelta(seconds=following.offset)
            found.append(ClockChange(at, before, since))
        era = following
    return found


@lru_cache(maxsize=20_000)
def _eras(name: str, block: int) -> tuple[Era, ...]:
    """The eras of one block of time, in order. A block's border ends an era too, but then nothing happens at it."""
    zone = _load(name)
    start, end = block * _BLOCK, (block + 1) * _BLOCK
    # A change shortly before the block may repeat readings inside it.
    early = start - _GLANCE
    offset, shown = _offset_at(zone, early), 0
    found: list[Era] = []
    gap = 0
    for change in _changes(zone, early, end):
        if change > start:
            found.append(Era(start, change, offset, gap, max(start + offset, shown)))
            start = change
        shown = max(shown, change + offset)
        after = _offset_at(zone, change)
        gap = max(after - offset, 0) if change == start else 0
        offset = after
    found.append(Era(start, end, offset, gap, max(start + offset, shown)))
    return tuple(found)


def _changes(zone: tzinfo, start: int, end: int) -> Iterator[int]:
    """The instants later than ``start`` and before ``end`` at which the offset changes."""
    before = _offset_at(zone, start)
    for early in range(start, end, _GLANCE):
        late = min(early + _GLANCE, end - 1)
        after = _offset_at(zone, late)
        if after != before:
            yield _first_with(zone, after, early, late)
        before = after


def _first_with(zone: tzinfo, offset: int, early: int, late: int) -> int:
    """The first instant with an offset that ``late`` has and ``early`` has not, by bisection."""
    while late - early > 1:
        middle = (early + late) // 2
        if _offset_at(zone, middle) == offset:
            late = middle
        else:
            early = middle
    return late


def _offset_at(zone: tzinfo, instant: int) -> int:
    """The offset in seconds. At the ends of the calendar, where local time cannot be told, that of the day inside."""
    inside = min(max(instant, FIRST + DAY), LAST - DAY)
    offset = (_ORIGIN + timedelta(seconds=inside - FIRST)).astimezone(zone).utcoffset()
    return 0 if offset is None else offset.days * DAY + offset.seconds
