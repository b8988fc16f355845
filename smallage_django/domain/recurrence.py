"""Rules: when a schedule fires. Immutable values that answer with aware UTC instants, strictly later than asked.

A rule is read in its own IANA zone. Around a change of the clock a *fixed* rule keeps its reading (moved to the end of
a gap, and only the first showing of a repeated one), an *interval* rule keeps real time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from ..errors import InvalidRule
from .intervals import Every
from .timetable import Timetable, timetable
from .walk import Walk
from .zones import (
    ClockChange,
    clock_changes,
    resolve_zone,
    to_instant,
    to_seconds,
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

GAPS: Final = ("default", "next_valid", "skip")
FOLDS: Final = ("default", "first", "both")


class Rule(Protocol):
    """What planning and previews ask of a rule. Instants are aware; answers are in UTC."""

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly later than ``instant``; None when there is no next one."""

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than ``instant``; None when there was none."""

    def count_between(self, start: datetime, end: datetime) -> int:
        """How many occurrences are later than ``start`` and not later than ``end``."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields, read in a zone. Raises ``InvalidRule`` naming the field that cannot be.

    ``key`` resolves hashed fields (``#``): the schedule's own, stable one. ``gap`` says what becomes of readings that
    the clock jumps over: by ``default`` they move to the end of the gap, except those of an interval rule that the
    clock makes up for; with ``next_valid`` all move; with ``skip`` nothing happens. ``fold`` says which showings of a
    repeated reading count: by ``default`` the first of a fixed rule and both of an interval rule; ``first``; ``both``.
    """

    expression: str
    tz: str = "UTC"
    key: str | None = None
    gap: str = "default"
    fold: str = "default"
    _timetable: Timetable = field(init=False, repr=False, compare=False)
    _walk: Walk = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.key is not None and not isinstance(self.key, str):
            raise InvalidRule(f"the key is {self.key!r}; it must be text", field="expression")
        found = timetable(self.expression, self.key)
        resolve_zone(self.tz)
        for name, value, known in (("gap", self.gap, GAPS), ("fold", self.fold, FOLDS)):
            if value not in known:
                raise InvalidRule(
                    f"the {name} policy is {value!r}; it must be one of {', '.join(known)}",
                    field="expression",
                )
        object.__setattr__(self, "_timetable", found)
        object.__setattr__(self, "_walk", Walk(found, self.tz, self.gap, self.fold))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles carry what was written, and find its meaning anew."""
        return Cron, (self.expression, self.tz, self.key, self.gap, self.fold)

    @property
    def resolved(self) -> str:
        """The five fields with aliases, names and hashed fields resolved, such as ``17 3 * * 1-5``."""
        return self._timetable.spec.text

    @property
    def is_interval(self) -> bool:
        """Whether the rule keeps real time through a change of the clock."""
        return self._timetable.spec.interval

    @property
    def shortest_step(self) -> timedelta:
        """The shortest time between two occurrences, apart from changes of the clock, which can bring two nearer."""
        return self._timetable.shortest_step()

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly later than an aware ``instant``; None when there is none within 50 years.

        Raises ``ValueError`` for a naive one.
        """
        found = self._walk.next_after(to_seconds(instant))
        return None if found is None else to_instant(found)

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than an aware ``instant``; None when there was none within 50 years.

        Raises ``ValueError`` for a naive one.
        """
        found = self._walk.last_at_or_before(to_seconds(instant))
        return None if found is None else to_instant(found)

    def count_between(self, start: datetime, end: datetime) -> int:
        """How many occurrences are later than ``start`` and not later than ``end``, both aware. A look-up a month.

        Raises ``ValueError`` for a naive one.
        """
        return self._walk.count_between(to_seconds(start), to_seconds(end))


def next_occurrences(rule: Rule, after: datetime, count: int) -> list[datetime]:
    """The next ``count`` occurrences strictly later than an aware ``after``; fewer where the rule ends."""
    found: list[datetime] = []
    while len(found) < count:
        following = rule.next_after(found[-1] if found else after)
        if following is None:
            break
        found.append(following)
    return found
