"""Intervals: every so many units, counted from an anchor and never from the run before."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

from ..errors import InvalidRule
from .zones import DAY, era_at, first_shown, resolve_zone, to_instant, to_seconds

UNITS: Final = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
#: Units of real time.
_EXACT: Final = {"seconds": 1, "minutes": 60, "hours": 3600}
#: Units of the calendar, in the unit that dates are counted in.
_DAYS: Final = {"days": 1, "weeks": 7}
_MONTHS: Final = {"months": 1, "years": 12}
_MICROSECOND: Final = timedelta(microseconds=1)


class Units(TypedDict, total=False):
    """The units of :class:`Every`, of which exactly one is given."""

    seconds: int
    minutes: int
    hours: int
    days: int
    weeks: int
    months: int
    years: int


@dataclass(frozen=True, slots=True, init=False)
class Every:
    """Every so many units from an anchor, which is occurrence 0. Raises ``InvalidRule`` (field ``interval``).

    Seconds, minutes and hours are real time; days, weeks, months and years follow the calendar of the zone and keep
    the anchor's reading of the clock. ``until`` is the last allowed instant, inclusive. Without an anchor the rule
    cannot answer (``ValueError``): a row gets its creation instant, see :meth:`anchored`.
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
        **every: Unpack[Units],
    ) -> None:
        resolve_zone(tz)
        unit, number = _one_unit({**every})
        values = {
            "number": number,
            "unit": unit,
            "tz": tz,
            "anchor": _bound("anchor", anchor),
            "until": _bound("until", until),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._refuse_beyond_calendar()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made, and checked, anew."""
        return _rebuild, (self.unit, self.number, self.tz, self.anchor, self.until)

    def anchored(self, anchor: datetime) -> Every:
        """The same rule, counted from this instant."""
        return _rebuild(self.unit, self.number, self.tz, anchor, self.until)

    @property
    def is_interval(self) -> bool:
        """Whether the rule keeps real time through a change of the clock."""
        return self.unit in _EXACT

    @property
    def shortest_step(self) -> timedelta:
        """The shortest time between two occurrences, apart from changes of the clock, which can bring two nearer."""
        if self.unit in _EXACT:
            return timedelta(seconds=self.number * _EXACT[self.unit])
        if self.unit in _DAYS:
            return timedelta(days=self.number * _DAYS[self.unit])
        years, months = divmod(self.number * _MONTHS[self.unit], 12)
        # One of the months can be February; the others have at least 30 days.
        return timedelta(days=365 * years + (30 * months - 2 if months else 0))

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly later than an aware ``instant``; None past ``until`` or the year 9999.

        Raises ``ValueError`` for a naive instant, or where the rule has no anchor.
        """
        found = self._at(self._index(instant) + 1)
        if found is None or (self.until is not None and found > self.until):
            return None
        return found

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than an aware ``instant``; None before the anchor.

        Raises ``ValueError`` for a naive instant, or where the rule has no anchor.
        """
        index = self._index(self._within(instant))
        return self._at(index) if index >= 0 else None

    def count_between(self, start: datetime, end: datetime) -> int:
        """How many occurrences are later than ``start`` and not later than ``end``, both aware. By division.

        Raises ``ValueError`` for a naive instant, or where the rule has no anchor.
        """
        first, last = self._index(start), self._index(self._within(end))
        return max(last - first - self._doubled(first, last), 0)

    def _refuse_beyond_calendar(self) -> None:
        try:
            step = self.shortest_step
            beyond = step > date.max - date.min if self.anchor is None else self._at(1) is None
        except OverflowError:
            beyond = True
        if beyond:
            raise InvalidRule(
                f"interval: {self.number} {self.unit} are too many; "
                "the second run would lie beyond the year 9999",
                field="interval",
            )

    def _within(self, instant: datetime) -> datetime:
        to_seconds(instant)
        return instant if self.until is None else min(instant, self.until)

    def _index(self, instant: datetime) -> int:
        """The number of the last occurrence not later than ``instant``; -1 where it is before the anchor."""
        anchor, now = self._anchored(), to_seconds(instant)
        if instant < anchor:
            return -1
        if self.unit in _EXACT:
            return (instant - anchor) // timedelta(seconds=self.number * _EXACT[self.unit])
        index = max(self._guess(anchor, now), 0)
        while (following := self._at(index + 1)) is not None and following <= instant:
            index += 1
        return index

    def _guess(self, anchor: datetime, now: int) -> int:
        """The number of an occurrence shortly before ``now``, from the distance of the dates."""
        first = self._reading(anchor) // DAY
        # Whatever the clock does, a reading of yesterday has been shown, or skipped, by now.
        last = min((now + era_at(self.tz, now).offset) // DAY - 1, date.max.toordinal())
        if last <= first:
            return 0
        if self.unit in _DAYS:
            return (last - first) // (self.number * _DAYS[self.unit])
        start, here = date.fromordinal(first), date.fromordinal(last)
        months = (here.year - start.year) * 12 + here.month - start.month
        return months // (self.number * _MONTHS[self.unit]) - 1

    def _at(self, index: int) -> datetime | None:
        """Occurrence number ``index``; None beyond the calendar."""
        anchor = self._anchored()
        if index == 0:
            return anchor
        try:
            if self.unit in _EXACT:
                return anchor + timedelta(seconds=index * self.number * _EXACT[self.unit])
            reading = self._shifted(self._reading(anchor), index)
        except (OverflowError, ValueError):
            return None
        if reading is None:
            return None
        found = first_shown(self.tz, reading)
        instant = to_instant(found)
        # What has moved to the end of a gap is there on the second, whatever the anchor's microseconds.
        shown = found + era_at(self.tz, found).offset == reading
        return instant + anchor.microsecond * _MICROSECOND if instant and shown else instant

    def _reading(self, anchor: datetime) -> int:
        """What the zone's clock shows at the anchor, in seconds."""
        since = to_seconds(anchor)
        return since + era_at(self.tz, since).offset

    def _shifted(self, reading: int, index: int) -> int | None:
        """The anchor's reading so many units on, the day clipped to the month; None beyond the calendar."""
        day, second = divmod(reading, DAY)
        if self.unit in _DAYS:
            day += index * self.number * _DAYS[self.unit]
            return day * DAY + second if day <= date.max.toordinal() else None
        start = date.fromordinal(day)
        months = start.year * 12 + start.month - 1 + index * self.number * _MONTHS[self.unit]
        year, month = months // 12, months % 12 + 1
        if year > date.max.year:
            return None
        clipped = min(start.day, monthrange(year, month)[1])
        return date(year, month, clipped).toordinal() * DAY + second

    def _doubled(self, first: int, last: int) -> int:
        """How many of the occurrences later than ``first``, up to ``last``, are the same instant as the one before.

        Only where the clock jumped over a whole date, as Samoa's did: a daily reading then moves to the end of the gap,
        where the next one may be, too.
        """
        early, late = self._at(max(first, 0)), self._at(last)
        if self.unit != "days" or self.number > 1 or early is None or late is None:
            return 0
        reading = self._reading(self._anchored())
        found, end = 0, to_seconds(late)
        era = era_at(self.tz, to_seconds(early))
        while era.end <= end:
            era = era_at(self.tz, era.end)
            if era.gap >= DAY:
                behind = era.start + era.offset - reading
                # The numbers whose readings lie from the beginning of the gap up to its end, less one.
                found += behind // DAY - max(-((era.gap - behind) // DAY), 0)
        return found

    def _anchored(self) -> datetime:
        if self.anchor is None:
            raise InvalidRule(
                f"every {self.number} {self.unit} has no anchor to count from; give anchor=",
                field="interval",
            )
        return self.anchor


def _rebuild(
    unit: str, number: int, tz: str, anchor: datetime | None, until: datetime | None
) -> Every:
    units: Any = {unit: number}
    return Every(tz=tz, anchor=anchor, until=until, **units)


def _one_unit(every: dict[str, Any]) -> tuple[str, int]:
    unknown = [name for name in every if name not in UNITS]
    if unknown or len(every) != 1:
        told = f"{unknown[0]!r} is no unit" if unknown else f"{len(every)} units are given"
        raise InvalidRule(
            f"interval: {told}; give exactly one of {', '.join(UNITS)}", field="interval"
        )
    ((unit, number),) = every.items()
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidRule(
            f"interval: {unit} is {number!r}; it must be a whole number from 1", field="interval"
        )
    return unit, number


def _bound(name: str, instant: datetime | None) -> datetime | None:
    """An anchor or an end in UTC. Raises ``InvalidRule`` for a naive one."""
    if instant is None:
        return None
    try:
        to_seconds(instant)
        return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRule(
            f"interval: {name} is {instant!r}; it must be an aware datetime of the years 1 to 9999",
            field="interval",
        ) from None
