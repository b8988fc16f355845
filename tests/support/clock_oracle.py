"""What the rules of recurrence say around a change of the clock, found by looking at a clock minute by minute.

It shares nothing with the engine but the zone data: no eras, no arithmetic with offsets, no parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

MINUTE = timedelta(minutes=1)
Matches = Callable[[datetime], bool]


class Known(NamedTuple):
    """An expression, what it means in Python, and whether it is an interval rule."""

    expression: str
    matches: Matches
    interval: bool


class Clock:
    """Everything that a zone's clock shows in a window, and what it jumps over."""

    def __init__(self, zone: tzinfo, start: datetime, end: datetime) -> None:
        self.shown: list[tuple[datetime, datetime, bool]] = []  # instant, reading, shown before
        self.skipped: list[tuple[datetime, datetime, timedelta]] = []  # reading, end of gap, length
        seen: set[datetime] = set()
        last: datetime | None = None
        for instant in _minutes(start, end):
            reading = instant.astimezone(zone).replace(tzinfo=None, fold=0)
            if last is not None and reading > last + MINUTE:
                length = reading - last - MINUTE
                self.skipped += [
                    (missing, instant, length) for missing in _minutes(last + MINUTE, reading)
                ]
            self.shown.append((instant, reading, reading in seen))
            seen.add(reading)
            last = reading

    def occurrences(self, rule: Known, gap: str, fold: str) -> list[datetime]:
        """The occurrences of a rule in the window, by the letter of O3 to O6 and of the two policies."""
        both = fold == "both" or (fold == "default" and rule.interval)
        found = {
            instant
            for instant, reading, again in self.shown
            if rule.matches(reading) and (both or not again)
        }
        for reading, end, length in self.skipped:
            if gap == "skip" or not rule.matches(reading):
                continue
            if gap == "default" and rule.interval and rule.matches(reading + length):
                continue
            found.add(end)
        return sorted(found)


def changes(zone: tzinfo, start: datetime, days: int) -> list[datetime]:
    """The hours of a span in which the offset changes."""
    found = []
    before = start.astimezone(zone).utcoffset()
    for hour in range(1, days * 24):
        instant = start + timedelta(hours=hour)
        after = instant.astimezone(zone).utcoffset()
        if after != before:
            found.append(instant.astimezone(UTC))
        before = after
    return found


def _minutes(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += MINUTE
