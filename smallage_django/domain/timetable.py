"""A timetable: the readings of a wall clock that an expression names. It knows dates and minutes, and no zone.

Readings are whole seconds on the scale of :mod:`.zones`: ``reading // 86400`` is the ordinal of the date.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from datetime import date, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final

from .cron import Spec, as_text, has_hashed_field, parse
from .zones import DAY

#: A timetable without a reading for so many years has none: the longest possible wait, a leap day on a given weekday
#: across 2100, is 40.
_HORIZON_YEARS: Final = 50
_FIRST: Final = date.min.toordinal()
_LAST: Final = date.max.toordinal()
#: Years of every kind, for what is true of the calendar as a whole.
_SAMPLE: Final = range(date(2000, 1, 1).toordinal(), date(2061, 1, 1).toordinal())


def timetable(expression: object, key: str | None) -> Timetable:
    """The timetable of an expression; ``key`` resolves hashed fields. Raises ``InvalidRule`` naming the field.

    Timetables are shared, so the key is left out where it makes no difference.
    """
    text = as_text(expression)
    return _timetable(text, key if has_hashed_field(text) else None)


@lru_cache(maxsize=20_000)
def _timetable(expression: str, key: str | None) -> Timetable:
    return Timetable(parse(expression, key))


class Timetable:
    """The readings that a parsed expression names, in order."""

    __slots__ = ("_days", "_every_day", "_first", "_hours", "_last", "_minutes", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._minutes = spec.minutes
        self._hours = spec.hours
        self._first = (spec.hours[0] * 60 + spec.minutes[0]) * 60
        self._last = (spec.hours[-1] * 60 + spec.minutes[-1]) * 60
        self._every_day = spec.every_day
        # A month's days follow from its length and the weekday that it begins with: 28 kinds, found when first met.
        self._days: dict[tuple[int, int], tuple[int, ...]] = {}

    def matches(self, reading: int) -> bool:
        """Whether the timetable names this very reading."""
        return self.after(reading - 1) == reading

    def after(self, reading: int) -> int | None:
        """The first reading later than this one; None within 50 years there is none."""
        day, second = divmod(reading, DAY)
        if second < self._last and self._names(day):
            return day * DAY + self._next_time(second)
        following = self._date_after(day)
        return None if following is None else following * DAY + self._first

    def at_or_before(self, reading: int) -> int | None:
        """The last reading not later than this one; None within 50 years there is none."""
        day, second = divmod(reading, DAY)
        if second >= self._first and self._names(day):
            return day * DAY + self._previous_time(second)
        earlier = self._date_before(day)
        return None if earlier is None else earlier * DAY + self._last

    def count(self, after: int, last: int) -> int:
        """How many readings are later than ``after`` and not later than ``last``."""
        (start, early), (end, late) = divmod(after, DAY), divmod(last, DAY)
        found = self._dates_between(start, end) * len(self._hours) * len(self._minutes)
        if self._names(start):
            found -= self._times_through(early)
        if self._names(end):
            found += self._times_through(late)
        return found

    def shortest_step(self) -> timedelta:
        """The shortest distance between two readings."""
        times = [hour * 60 + minute for hour in self._hours for minute in self._minutes]
        steps = [later - earlier for earlier, later in pairwise(times)]
        # From the last of a day to the first of the next one that is named.
        steps.append(self._shortest_distance() * 1440 + times[0] - times[-1])
        return timedelta(minutes=min(steps))

    def _next_time(self, second: int) -> int:
        """The first time of day later than this one, in seconds. There is one."""
        hour, minute = second // 3600, second // 60 % 60
        position = bisect_left(self._hours, hour)
        if self._hours[position] == hour:
            later = bisect_right(self._minutes, minute)
            if later < len(self._minutes):
                return hour * 3600 + self._minutes[later] * 60
            position += 1
        return self._hours[position] * 3600 + self._minutes[0] * 60

    def _previous_time(self, second: int) -> int:
        """The last time of day not later than this one, in seconds. There is one."""
        hour, minute = second // 3600, second // 60 % 60
        position = bisect_right(self._hours, hour) - 1
        if self._hours[position] == hour:
            later = bisect_right(self._minutes, minute)
            if later:
                return hour * 3600 + self._minutes[later - 1] * 60
            position -= 1
        return self._hours[position] * 3600 + self._minutes[-1] * 60

    def _times_through(self, second: int) -> int:
        """How many times of day are not later than this one."""
        hour, minute = second // 3600, second // 60 % 60
        position = bisect_left(self._hours, hour)
        found = position * len(self._minutes)
        if position < len(self._hours) and self._hours[position] == hour:
            found += bisect_right(self._minutes, minute)
        return found

    def _names(self, day: int) -> bool:
        """Whether the timetable names this date."""
        if not _FIRST <= day <= _LAST:
            return False
        if self._every_day:
            return True
        shown = date.fromordinal(day)
        return shown.day in self._days_of(shown.year, shown.month)

    def _date_after(self, day: int) -> int | None:
        """The first named date later than this one."""
        day = max(day + 1, _FIRST)
        if day > _LAST:
            return None
        if self._every_day:
            return day
        start = date.fromordinal(day)
        year, month, first = start.year, start.month, start.day
        while year <= min(start.year + _HORIZON_YEARS, date.max.year):
            days = self._days_of(year, month)
            position = bisect_left(days, first)
            if position < len(days):
                return date(year, month, days[position]).toordinal()
            year, month, first = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
        return None

    def _date_before(self, day: int) -> int | None:
        """The last named date earlier than this one."""
        day = min(day - 1, _LAST)
        if day < _FIRST:
            return None
        if self._every_day:
            return day
        start = date.fromordinal(day)
        year, month, last = start.year, start.month, start.day
        while year >= max(start.year - _HORIZON_YEARS, date.min.year):
            days = self._days_of(year, month)
            position = bisect_right(days, last)
            if position:
                return date(year, month, days[position - 1]).toordinal()
            year, month, last = (year, month - 1, 31) if month > 1 else (year - 1, 12, 31)
        return None

    def _dates_between(self, start: int, end: int) -> int:
        """How many named dates lie from ``start`` on, up to but not including ``end``: a look-up a month."""
        start, end = max(start, _FIRST), min(end, _LAST + 1)
        if self._every_day:
            return max(end - start, 0)
        found = 0
        while start < end:
            shown = date.fromordinal(start)
            days = self._days_of(shown.year, shown.month)
            last_of_month = start - shown.day + monthrange(shown.year, shown.month)[1]
            until = min(end, last_of_month + 1) - start + shown.day
            found += bisect_left(days, until) - bisect_left(days, shown.day)
            start = last_of_month + 1
        return found

    def _shortest_distance(self) -> int:
        """The fewest days from a named date to the next, in years of every kind."""
        shortest = _HORIZON_YEARS * 366
        day = self._date_after(_SAMPLE.start)
        while day is not None and day < _SAMPLE.stop and shortest > 1:
            following = self._date_after(day)
            if following is not None:
                shortest = min(shortest, following - day)
            day = following
        return shortest

    def _days_of(self, year: int, month: int) -> tuple[int, ...]:
        """The named days of a month, in order."""
        if month not in self.spec.months:
            return ()
        kind = monthrange(year, month)
        days = self._days.get(kind)
        if days is None:
            days = self._days[kind] = self.spec.days_of(*kind)
        return days
