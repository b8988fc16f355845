"""The walk: from the readings of a timetable to instants, era by era of a zone's clock.

Within an era the offset is constant, so a reading is an instant by subtraction, and counting is multiplication. What is
special happens where an era begins: the clock may have jumped over readings, or may show some of them again.
Instants are whole seconds, UTC, on the scale of :mod:`.zones`.
"""

from __future__ import annotations

from functools import lru_cache

from .timetable import Timetable
from .zones import HORIZON, Era, era_at


class Walk:
    """The occurrences of a timetable in a zone.

    ``gap`` says what becomes of readings that the clock jumps over: ``next_valid``: they move to the end of the gap;
    ``skip``: nothing; ``default``: they move, but those of an interval rule only where the clock does not also name
    their own instant. ``fold`` says which showings of a repeated reading count: ``first``, ``both``, or by
    ``default`` both for an interval rule and the first for a fixed one.
    """

    __slots__ = ("_both", "_gap", "_timetable", "_zone")

    def __init__(self, timetable: Timetable, zone: str, gap: str, fold: str) -> None:
        interval = timetable.spec.interval
        self._timetable = timetable
        self._zone = zone
        self._gap = "cover" if gap == "default" and interval else gap
        self._both = fold == "both" or (fold == "default" and interval)

    def next_after(self, instant: int) -> int | None:
        """The first occurrence later than ``instant``; None within 50 years there is none."""
        era = era_at(self._zone, instant)
        passed = max(instant + era.offset, self._first_reading(era) - 1)
        reading = self._timetable.after(passed)
        while reading is not None and reading - era.offset >= era.end:
            era = era_at(self._zone, era.end)
            if era.start > instant + HORIZON:
                return None
            if era.gap and self._moved(era):
                return era.start
            # What was found stays the next one, unless the clock went back or has jumped over it.
            earlier, passed = passed, self._first_reading(era) - 1
            if passed < earlier or passed >= reading:
                reading = self._timetable.after(passed)
        return None if reading is None else reading - era.offset

    def last_at_or_before(self, instant: int) -> int | None:
        """The last occurrence not later than ``instant``; None within 50 years there is none."""
        era = era_at(self._zone, instant)
        latest = instant + era.offset
        reading = self._timetable.at_or_before(latest)
        while reading is not None and reading < self._first_reading(era):
            if era.gap and self._moved(era):
                return era.start
            if era.start < instant - HORIZON:
                return None
            era = era_at(self._zone, era.start - 1)
            later, latest = latest, era.end - 1 + era.offset
            if latest > later or latest < reading:
                reading = self._timetable.at_or_before(latest)
        return None if reading is None else reading - era.offset

    def count_between(self, start: int, end: int) -> int:
        """How many occurrences are later than ``start`` and not later than ``end``."""
        if end <= start:
            return 0
        era = era_at(self._zone, start)
        found, passed = 0, start + era.offset
        while True:
            passed = max(passed, self._first_reading(era) - 1)
            latest = min(end, era.end - 1) + era.offset
            if latest > passed:
                found += self._timetable.count(passed, latest)
            if era.end > end:
                return found
            era = era_at(self._zone, era.end)
            found += era.gap > 0 and self._moved(era)
            passed = era.start + era.offset - 1

    def _first_reading(self, era: Era) -> int:
        """The first reading of an era that counts."""
        return era.start + era.offset if self._both else era.fresh

    def _moved(self, era: Era) -> bool:
        """Whether readings from the gap take place at its end, and there is no reading at the end itself."""
        if self._gap == "skip":
            return False
        return _moved(self._timetable, era.start + era.offset, era.gap, self._gap == "cover")


@lru_cache(maxsize=10_000)
def _moved(timetable: Timetable, end: int, length: int, cover: bool) -> bool:
    """Whether a reading from the gap of this length moves to its ``end``.

    Where the rule may be covered, a reading does not move if the one a gap's length later is named too: that is the
    instant which it would have had on an unchanged clock.
    """
    if timetable.matches(end):
        return False
    reading = timetable.after(end - length - 1)
    while reading is not None and reading < end:
        if not (cover and timetable.matches(reading + length)):
            return True
        reading = timetable.after(reading)
    return False
