"""Rules: when a schedule fires. Immutable values that answer with aware UTC instants, strictly later than asked.

A rule is read in its own IANA zone. Around a change of clock a *fixed* rule keeps its reading (moved to the end of a
gap, and only the first showing of a repeated one), an *interval* rule keeps real time.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Protocol

from ..errors import InvalidRule
from .cron import Spec, parse
from .walk import (
    Reading,
    count_between,
    last_at_or_before,
    next_after,
    seconds,
    shortest_between,
)
from .zones import (
    ClockChange,
    clock_changes,
    gap_end,
    resolve_zone,
    showings,
    zone_data_version,
    zone_names,
)

__all__ = [
    "ClockChange",
    "Cron",
    "Every",
    "InvalidRule",
    "Rule",
    "clock_changes",
    "next_occurrences",
    "resolve_zone",
    "zone_data_version",
    "zone_names",
]

UNITS: Final = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
GAPS: Final = ("default", "next_valid", "skip")
FOLDS: Final = ("default", "first", "both")
_EXACT: Final = {
    "seconds": timedelta(seconds=1),
    "minutes": timedelta(minutes=1),
    "hours": timedelta(hours=1),
}
#: The least that a calendar unit can last, for refusing what would lead beyond the calendar.
_LEAST_DAYS: Final = {"days": 1, "weeks": 7, "months": 28, "years": 365}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO: Final = timedelta(0)
_MOST_DAYS: Final = date.max.toordinal()


class Rule(Protocol):
    """What planning and previews ask of a rule. Instants are aware; answers are in UTC."""

    def next_after(self, instant: datetime) -> datetime | None: ...

    def last_at_or_before(self, instant: datetime) -> datetime | None: ...

    def count_between(self, start: datetime, end: datetime) -> int: ...


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields, read in a zone. Raises ``InvalidRule`` naming the field that cannot be.

    ``key`` resolves hashed fields (``#``). ``gap`` says what becomes of skipped readings: ``default``,
    ``next_valid`` (always moved to the end of the gap) or ``skip``; ``fold`` what of repeated ones: ``default``,
    ``first`` or ``both``.
    """

    expression: str
    tz: str = "UTC"
    key: str | None = None
    gap: str = "default"
    fold: str = "default"
    _reading: Reading = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        resolve_zone(self.tz)
        for name, value, known in (("gap", self.gap, GAPS), ("fold", self.fold, FOLDS)):
            if value not in known:
                raise InvalidRule(
                    f"{name} policy is {value!r}; it must be one of {', '.join(known)}",
                    field="expression",
                )
        spec = parse(self.expression, self.key)
        object.__setattr__(self, "_reading", Reading(spec, self.tz, self.gap, self.fold))

    @property
    def spec(self) -> Spec:
        """What the expression names, aliases and hashed fields resolved."""
        return self._reading.spec

    @property
    def is_interval(self) -> bool:
        """Whether the rule keeps real time through a change of clock."""
        return self.spec.interval

    @property
    def shortest_step(self) -> timedelta:
        """The shortest distance between two occurrences on an unchanged clock."""
        return timedelta(minutes=shortest_between(self.spec.times))

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly later than an aware ``instant``; None within 50 years there is none."""
        _aware(instant)
        return _instant(next_after(self._reading, seconds(instant)))

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than an aware ``instant``."""
        _aware(instant)
        return _instant(last_at_or_before(self._reading, seconds(instant)))

    def count_between(self, start: datetime, end: datetime) -> int:
        """How many occurrences are later than ``start`` and not later than ``end``."""
        _aware(start)
        _aware(end)
        return count_between(self._reading, seconds(start), seconds(end))


@dataclass(frozen=True, slots=True, init=False)
class Every:
    """Every so many units from an anchor, which is occurrence 0. Raises ``InvalidRule`` (field ``interval``).

    Seconds, minutes and hours are real time; days, weeks, months and years follow the calendar of the zone. ``until``
    is the last allowed instant, inclusive. Without an anchor the rule cannot answer: a row gets its creation instant.
    """

    number: int
    unit: str
    tz: str
    anchor: datetime | None
    until: datetime | None

    def __init__(
        self,
        *,
        tz: str = "UTC",
        anchor: datetime | None = None,
        until: datetime | None = None,
        **every: int,
    ) -> None:
        resolve_zone(tz)
        unit, number = _one_unit(every)
        for name, value in (("anchor", anchor), ("until", until)):
            if value is not None:
                _aware(value, name)
        _refuse_beyond_calendar(number, unit, anchor or _EPOCH)
        for name, kept in (
            ("number", number),
            ("unit", unit),
            ("tz", tz),
            ("anchor", None if anchor is None else anchor.astimezone(UTC)),
            ("until", None if until is None else until.astimezone(UTC)),
        ):
            object.__setattr__(self, name, kept)

    @property
    def is_interval(self) -> bool:
        """Whether the rule keeps real time through a change of clock."""
        return self.unit in _EXACT

    @property
    def shortest_step(self) -> timedelta:
        """The shortest distance between two occurrences on an unchanged clock."""
        if self.unit in _EXACT:
            return self.number * _EXACT[self.unit]
        return timedelta(days=min(self.number * _LEAST_DAYS[self.unit], _MOST_DAYS))

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly later than an aware ``instant``. Raises ``InvalidRule`` without an anchor."""
        _aware(instant)
        found = self._at(max(self._index_at(instant) + 1, 0))
        while found is not None and found <= instant:
            # Two readings can be one instant (Apia skipped a whole day): the next one is later.
            found = self._at(self._index_at(found) + 1)
        return found if found is not None and self._allowed(found) else None

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than an aware ``instant``."""
        _aware(instant)
        if self.until is not None:
            instant = min(instant, self.until)
        index = self._index_at(instant)
        return self._at(index) if index >= 0 else None

    def count_between(self, start: datetime, end: datetime) -> int:
        """How many occurrences are later than ``start`` and not later than ``end``."""
        _aware(start)
        _aware(end)
        if self.until is not None:
            end = min(end, self.until)
        if end <= start:
            return 0
        first, last = self._index_at(start), self._index_at(end)
        count = max(last, -1) - max(first, -1)
        return count - self._doubled(max(first, 0), last) if count else 0

    def _doubled(self, first: int, last: int) -> int:
        """How many of these occurrences are the same instant as the one before: only where a whole day was skipped."""
        if self.unit in _EXACT or last <= first:
            return 0
        zone = resolve_zone(self.tz)
        ends = [self._at(index) for index in (first, last)]
        offsets = [end.astimezone(zone).utcoffset() for end in ends if end is not None]
        if len(offsets) < 2 or abs((offsets[1] or _ZERO) - (offsets[0] or _ZERO)) < timedelta(
            hours=20
        ):
            return 0
        return sum(self._at(index) == self._at(index + 1) for index in range(first, last))

    def _allowed(self, instant: datetime) -> bool:
        return self.until is None or instant <= self.until

    def _index_at(self, instant: datetime) -> int:
        """The number of the last occurrence at or before ``instant``; -1 where it is before the anchor."""
        anchor = self._anchor()
        if instant < anchor:
            return -1
        if self.unit in _EXACT:
            return (instant - anchor) // (self.number * _EXACT[self.unit])
        index = self._guess(instant, anchor)
        while (following := self._at(index + 1)) is not None and following <= instant:
            index += 1
        while index > 0 and ((here := self._at(index)) is None or here > instant):
            index -= 1
        return index

    def _guess(self, instant: datetime, anchor: datetime) -> int:
        """An index near the one of ``instant``, from the distance of the dates."""
        zone = resolve_zone(self.tz)
        start = anchor.astimezone(zone).date()
        try:
            here = instant.astimezone(zone).date()
        except OverflowError:
            here = date.max
        if self.unit in ("days", "weeks"):
            days = self.number * _LEAST_DAYS[self.unit]
            return max((here - start).days // days - 1, 0)
        months = (here.year - start.year) * 12 + here.month - start.month
        return max(months // (self.number * (12 if self.unit == "years" else 1)) - 1, 0)

    def _at(self, index: int) -> datetime | None:
        """Occurrence number ``index``; None beyond the calendar."""
        anchor = self._anchor()
        try:
            if self.unit in _EXACT or index == 0:
                return anchor + index * self.number * _EXACT.get(self.unit, _ZERO)
            return self._calendar(anchor, index * self.number)
        except (OverflowError, ValueError):
            return None

    def _calendar(self, anchor: datetime, amount: int) -> datetime:
        """The anchor's reading so many units on, the day clipped to the month, as a fixed rule reads it."""
        zone = resolve_zone(self.tz)
        shown = anchor.astimezone(zone).replace(tzinfo=None, fold=0)
        if self.unit in ("days", "weeks"):
            shown += timedelta(days=amount * _LEAST_DAYS[self.unit])
        else:
            months = shown.month - 1 + amount * (12 if self.unit == "years" else 1)
            year, month = shown.year + months // 12, months % 12 + 1
            day = min(shown.day, calendar.monthrange(year, month)[1])
            shown = shown.replace(year=year, month=month, day=day)
        first, second = showings(shown, zone)
        naive = gap_end(shown, first, second, zone) if second > first else shown - first
        return naive.replace(tzinfo=UTC)

    def _anchor(self) -> datetime:
        if self.anchor is None:
            raise InvalidRule(
                f"every {self.number} {self.unit} has no anchor to count from; give anchor=",
                field="interval",
            )
        return self.anchor


def next_occurrences(rule: Rule, after: datetime, count: int) -> list[datetime]:
    """The next ``count`` occurrences strictly later than an aware ``after``; fewer where the rule ends."""
    found: list[datetime] = []
    following = rule.next_after(after)
    while following is not None and len(found) < count:
        found.append(following)
        following = rule.next_after(following)
    return found


def _aware(instant: Any, name: str = "the instant") -> None:
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise ValueError(f"{name} is {instant!r}; it must be an aware datetime")


def _instant(since: int | None) -> datetime | None:
    if since is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=since)
    except OverflowError:
        return None


def _one_unit(every: dict[str, Any]) -> tuple[str, int]:
    unknown = [name for name in every if name not in UNITS]
    if unknown or len(every) != 1:
        told = f"unknown unit {unknown[0]!r}" if unknown else f"{len(every)} units were given"
        raise InvalidRule(
            f"interval: {told}; give exactly one of {', '.join(UNITS)}", field="interval"
        )
    ((unit, number),) = every.items()
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidRule(
            f"interval: {unit} is {number!r}; it must be a whole number from 1", field="interval"
        )
    return unit, number


def _refuse_beyond_calendar(number: int, unit: str, anchor: datetime) -> None:
    days = _LEAST_DAYS.get(unit)
    try:
        anchor + (number * _EXACT[unit] if days is None else timedelta(days=number * days))
    except OverflowError:
        raise InvalidRule(
            f"interval: {number} {unit} lead beyond the year 9999; give fewer", field="interval"
        ) from None
