"""From readings of a clock to instants: the walk over dates. Instants here are whole seconds since the epoch, UTC.

On an ordinary day the offset is constant, and a look-up and a bisection answer. A day with a change of clock is
enumerated: each reading that the rule names is compared with both of its possible offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Final

from .cron import Spec, days_of
from .zones import gap_end, ordinary_offset, resolve_zone, showings

#: A rule that has no occurrence within so many years has none: the longest possible wait is 40.
HORIZON_YEARS: Final = 50
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIRST: Final = date.min.toordinal()
_LAST: Final = date.max.toordinal()
_DAY_S: Final = 86400
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a rule is read: what it names, in which zone, and what it does about gaps and repeated stretches."""

    spec: Spec
    zone: str
    gap: str
    fold: str


def seconds(instant: datetime) -> int:
    """Whole seconds from the epoch to an aware instant, rounded down."""
    since = instant - _EPOCH
    return since.days * _DAY_S + since.seconds


def next_after(reading: Reading, after: int) -> int | None:
    """The first occurrence later than ``after``, within the horizon."""
    start = _local_ordinal(reading.zone, after)
    if start is None:
        return None
    while ordinary_offset(reading.zone, start) is None and start > _FIRST:
        start -= 1
    for ordinal in _dates(reading.spec, start, after):
        found = _occurrences(reading, ordinal)
        position = bisect_right(found, after)
        if position < len(found):
            return found[position]
    return None


def last_at_or_before(reading: Reading, instant: int) -> int | None:
    """The last occurrence not later than ``instant``, within the horizon."""
    start = _local_ordinal(reading.zone, instant)
    if start is None:
        return None
    while ordinary_offset(reading.zone, start) is None and start < _LAST:
        start += 1
    for ordinal in _dates_back(reading.spec, start):
        found = _occurrences(reading, ordinal)
        position = bisect_right(found, instant)
        if position:
            return found[position - 1]
    return None


def count_between(reading: Reading, start: int, end: int) -> int:
    """How many occurrences are later than ``start`` and not later than ``end``: a look-up a day."""
    first = _local_ordinal(reading.zone, start)
    last = _local_ordinal(reading.zone, end)
    if first is None or last is None or end <= start:
        return 0
    while ordinary_offset(reading.zone, first) is None and first > _FIRST:
        first -= 1
    while ordinary_offset(reading.zone, last) is None and last < _LAST:
        last += 1
    total, latest = 0, start
    for ordinal in _dates(reading.spec, first, end):
        if ordinal > last:
            break
        found = _occurrences(reading, ordinal)
        low, high = bisect_right(found, latest), bisect_right(found, end)
        total += max(high - low, 0)
        if high:
            # The end of a skipped midnight is the next midnight: the same instant counts once.
            latest = max(latest, found[high - 1])
    return total


def _local_ordinal(zone: str, instant: int) -> int | None:
    try:
        local = (_EPOCH + timedelta(seconds=instant)).astimezone(resolve_zone(zone))
    except (OverflowError, ValueError):
        return None
    return local.toordinal()


def _dates(spec: Spec, start: int, after: int) -> Iterator[int]:
    """The dates from ``start`` on that the rule names, up to the horizon."""
    day = date.fromordinal(start)
    year, month, first = day.year, day.month, day.day
    latest = min(max(year, 1970 + after // 31_556_952) + HORIZON_YEARS, date.max.year)
    while year <= latest:
        for number in days_of(spec, year, month):
            if number >= first:
                yield date(year, month, number).toordinal()
        first = 1
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)


def _dates_back(spec: Spec, start: int) -> Iterator[int]:
    day = date.fromordinal(start)
    year, month, last = day.year, day.month, day.day
    earliest = max(year - HORIZON_YEARS, date.min.year)
    while year >= earliest:
        for number in reversed(days_of(spec, year, month)):
            if number <= last:
                yield date(year, month, number).toordinal()
        last = 31
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)


def _occurrences(reading: Reading, ordinal: int) -> _Day | tuple[int, ...]:
    """The occurrences of a date that the rule names, sorted; of a changing day, those of its whole group."""
    offset = ordinary_offset(reading.zone, ordinal)
    if offset is None:
        return _changing(reading, _group_start(reading.zone, ordinal))
    midnight = (ordinal - _EPOCH_ORDINAL) * _DAY_S - (offset.days * _DAY_S + offset.seconds)
    return _Day(reading.spec.times, midnight)


class _Day:
    """The occurrences of an ordinary day as a sequence that costs nothing to make."""

    __slots__ = ("_midnight", "_times")

    def __init__(self, times: tuple[int, ...], midnight: int) -> None:
        self._times = times
        self._midnight = midnight

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, position: int) -> int:
        return self._midnight + self._times[position] * 60


def _group_start(zone: str, ordinal: int) -> int:
    """The first of the changing days in a row around ``ordinal``: a repeated stretch may cross midnight."""
    while ordinal > _FIRST and ordinary_offset(zone, ordinal - 1) is None:
        ordinal -= 1
    return ordinal


@lru_cache(maxsize=20_000)
def _changing(reading: Reading, start: int) -> tuple[int, ...]:
    """The occurrences of the changing days in a row that begin at ``start``."""
    zone = resolve_zone(reading.zone)
    found: set[int] = set()
    ordinal = start
    while ordinal <= _LAST and ordinary_offset(reading.zone, ordinal) is None:
        day = date.fromordinal(ordinal)
        if reading.spec.matches(day):
            midnight = datetime.fromordinal(ordinal)
            for minute in reading.spec.times:
                _add_showings(found, reading, midnight + minute * _MINUTE, zone)
        ordinal += 1
    return tuple(sorted(found))


def _add_showings(found: set[int], reading: Reading, shown: datetime, zone: tzinfo) -> None:
    first, second = showings(shown, zone)
    if first == second:
        found.add(_utc(shown - first))
    elif second < first:
        found.add(_utc(shown - first))
        if reading.fold == "both" or (reading.fold == "default" and reading.spec.interval):
            found.add(_utc(shown - second))
    elif reading.gap != "skip" and not _made_up_for(reading, shown, second - first):
        found.add(_utc(gap_end(shown, first, second, zone)))


def _made_up_for(reading: Reading, shown: datetime, length: timedelta) -> bool:
    """Whether a skipped reading of an interval rule takes place at its own instant, under the name it has now."""
    if reading.gap != "default" or not reading.spec.interval:
        return False
    now_called = shown + length
    minute = now_called.hour * 60 + now_called.minute
    return now_called.second == 0 and reading.spec.has(now_called.date(), minute)


def _utc(naive: datetime) -> int:
    return seconds(naive.replace(tzinfo=UTC))


def shortest_between(times: tuple[int, ...]) -> int:
    """The shortest distance, in minutes, between two times of day, midnight crossed included."""
    steps = [later - earlier for earlier, later in pairwise(times)]
    steps.append(times[0] + 1440 - times[-1])
    return min(steps)
