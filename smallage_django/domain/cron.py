"""The cron dialect: a strict grammar of our own in front of ``croniter.expand``.

croniter decides what a valid text means; this module decides what is valid, says which field is wrong and how to mend
it, and reads from the text what croniter's result no longer shows. croniter's own messages never reach a user.
"""

from __future__ import annotations

import calendar
import hashlib
import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

from croniter import croniter

from ..errors import InvalidRule

LONGEST: Final = 255
_MONTHS: Final = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "#hourly": "# * * * *",
    "#daily": "# # * * *",
    "#midnight": "# #(0-2) * * *",
    "#weekly": "# # * * #",
    "#monthly": "# # # * *",
    "#yearly": "# # # # *",
    "#annually": "# # # # *",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields: its name in words, its range, its names, and what ``#`` alone stands for."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    hashed: tuple[int, int] = (0, 0)

    @property
    def span(self) -> str:
        """The accepted values in words."""
        words = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{words}"


FIELDS: Final = (
    Field("minute", 0, 59, hashed=(0, 59)),
    Field("hour", 0, 23, hashed=(0, 23)),
    Field("day of month", 1, 31, hashed=(1, 28)),
    Field("month", 1, 12, tuple(_MONTHS), (1, 12)),
    Field("day of week", 0, 7, tuple(_WEEKDAYS), (0, 6)),
)
_ELEMENT: Final = re.compile(r"(?P<a>\w+)(?:-(?P<b>\w+))?(?:/(?P<step>\d+))?")
_STAR: Final = re.compile(r"\*/(?P<step>\d+)")
_HASHED: Final = re.compile(r"#(?:\((\d+)-(\d+)\))?")
_NTH: Final = re.compile(r"(\w+)#(\w+)")
_LAST: Final = re.compile(r"L(\d+)")


@dataclass(frozen=True, slots=True)
class Spec:
    """What a valid expression names: times of day, months, days; and how they are to be read."""

    #: Minutes of the day, sorted.
    times: tuple[int, ...]
    months: frozenset[int]
    days: frozenset[int]
    last_day: bool
    weekdays: frozenset[int]
    #: (weekday, which one of the month); -1 is the last one.
    nth: frozenset[tuple[int, int]]
    #: Both day fields must match (one of them begins with a star); otherwise either is enough.
    both: bool
    #: An interval rule keeps real time through a change of clock; a fixed rule keeps its reading.
    interval: bool

    def matches(self, day: date) -> bool:
        """Whether the rule names this date."""
        return day.month in self.months and day.day in days_of(self, day.year, day.month)

    def has(self, day: date, minute: int) -> bool:
        """Whether the rule names this minute of this date."""
        position = bisect_left(self.times, minute)
        found = position < len(self.times) and self.times[position] == minute
        return found and self.matches(day)


@lru_cache(maxsize=50_000)
def days_of(spec: Spec, year: int, month: int) -> tuple[int, ...]:
    """The days of a month that the rule names, sorted; empty for a month that it does not name."""
    if month not in spec.months:
        return ()
    first, length = calendar.monthrange(year, month)
    found = []
    for day in range(1, length + 1):
        weekday = (first + day) % 7  # monthrange counts from Monday = 0, cron from Sunday = 0
        by_month = day in spec.days or (spec.last_day and day == length)
        by_week = (
            weekday in spec.weekdays
            or (weekday, (day + 6) // 7) in spec.nth
            or ((weekday, -1) in spec.nth and day + 7 > length)
        )
        if (by_month and by_week) if spec.both else (by_month or by_week):
            found.append(day)
    return tuple(found)


def parse(expression: object, key: str | None) -> Spec:
    """The meaning of an expression; ``key`` resolves hashed fields. Raises ``InvalidRule`` naming the field."""
    if not isinstance(expression, str):
        raise InvalidRule(
            f"the cron expression is {expression!r}; it must be text such as '30 2 * * *'",
            field="expression",
        )
    return _parse(expression, key)


@lru_cache(maxsize=20_000)
def _parse(expression: str, key: str | None) -> Spec:
    fields = _split(expression)
    resolved = [
        _resolve_hash(text, field, key) if text.startswith("#") else text
        for text, field in zip(fields, FIELDS, strict=True)
    ]
    for text, field in zip(resolved, FIELDS, strict=True):
        _check(text, field)
    return _spec(resolved)


def _split(expression: str) -> list[str]:
    """The five fields in upper case, aliases expanded."""
    if len(expression) > LONGEST:
        raise InvalidRule(
            f"the cron expression has {len(expression)} characters; {LONGEST} are allowed",
            field="expression",
        )
    if not all(" " <= char <= "~" or char == "\t" for char in expression):
        bad = next(char for char in expression if not (" " <= char <= "~" or char == "\t"))
        raise InvalidRule(
            f"the cron expression has the character {bad!r}; only plain ASCII and tabs are allowed",
            field="expression",
        )
    text = expression.strip(" \t")
    lower = text.lower()
    if lower in ALIASES:
        text = ALIASES[lower]
    elif text.startswith("@") or (text.startswith("#") and text[1:2].isalpha()):
        raise InvalidRule(
            f"{text!r} is no known alias; known are {', '.join(ALIASES)}", field="expression"
        )
    elif "=" in text:
        raise InvalidRule(
            f"{text.split()[0]!r} is no field; the time zone is set beside the expression",
            field="expression",
        )
    fields = text.upper().replace("\t", " ").split()
    if len(fields) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        raise InvalidRule(
            f"the cron expression {text!r} has {len(fields)} fields, {len(FIELDS)} expected: {names}",
            field="expression",
        )
    return fields


def _refuse(field: Field, text: str, why: str) -> InvalidRule:
    return InvalidRule(f"{field.name} {text!r}: {why}", field=field.name)


def _resolve_hash(text: str, field: Field, key: str | None) -> str:
    match = _HASHED.fullmatch(text)
    if match is None:
        raise _refuse(field, text, "a hashed field is # or #(a-b), alone and without a step")
    low, high = field.hashed
    if match[1] is not None:
        low, high = int(match[1]), int(match[2])
        if not field.low <= low < high <= field.high or (field.high == 7 and high == 7):
            top = 6 if field.high == 7 else field.high
            raise _refuse(field, text, f"the range must rise within {field.low}-{top}")
    if key is None:
        raise _refuse(field, text, "a hashed field needs the schedule's key to be resolved")
    digest = hashlib.sha256(f"{key}\0{field.name}".encode()).digest()
    return str(low + int.from_bytes(digest[:8]) % (high - low + 1))


def _check(text: str, field: Field) -> None:
    """Refuse whatever the dialect does not have. Raises ``InvalidRule``."""
    if text == "*":
        return
    elements = text.split(",")
    if "" in elements:
        raise _refuse(field, text, "an element of the list is empty")
    for element in elements:
        star = _STAR.fullmatch(element)
        if star is not None:
            _check_step(text, star["step"], field)
        elif "*" in element:
            raise _refuse(field, text, "a star stands alone, or with a step as */n")
        else:
            _check_element(element, field)
    special = [element for element in elements if "#" in element or _LAST.fullmatch(element)]
    if field.name == "day of week" and special and len(special) != len(elements):
        raise _refuse(field, text, "plain days cannot be mixed with d#k or Ld; use two schedules")


def _check_step(text: str, step: str | None, field: Field) -> None:
    if step is None:
        return
    if len(step) > 3 or not 1 <= int(step) <= field.high:
        raise _refuse(field, text, f"the step {step[:10]} must be within 1-{field.high}")


def _check_element(element: str, field: Field) -> None:
    if _check_special(element, field):
        return
    match = _ELEMENT.fullmatch(element)
    if match is None:
        raise _refuse(field, element, f"expected a value of {field.span}, a range a-b or a step")
    _check_step(element, match["step"], field)
    low = _value(match["a"], element, field)
    if match["b"] is None:
        if match["step"] is not None and field.name == "day of week":
            raise _refuse(field, element, "a step needs a range here; write a-b/n or list the days")
        return
    high = _value(match["b"], element, field)
    same = low == high or (field.name == "day of week" and low % 7 == high % 7 and high == 0)
    if same:
        raise _refuse(field, element, "a range of one value; write the value alone")
    if low > high and match["step"] is not None:
        raise _refuse(field, element, "a range that wraps cannot have a step; list the values")


def _check_special(element: str, field: Field) -> bool:
    """Whether the element is one of the special days; refuses those of other dialects."""
    if field.name == "day of month":
        if element == "L":
            return True
        if re.search(r"[LW?]", element):
            raise _refuse(field, element, "of the special days there is only L, the last day")
    if field.name == "day of week":
        last, nth = _LAST.fullmatch(element), _NTH.fullmatch(element)
        if last is not None:
            _value(last[1], element, field)
            return True
        if nth is not None:
            _value(nth[1], element, field)
            if nth[2] not in ("1", "2", "3", "4", "5"):
                raise _refuse(field, element, "the week of the month must be within 1-5")
            return True
    if element == "?":
        raise _refuse(field, element, "not part of this dialect; write *")
    if re.fullmatch(r"[HR](\(.*\))?(/\d+)?", element):
        raise _refuse(field, element, "not part of this dialect; a hashed value is written #")
    return False


def _value(text: str, element: str, field: Field) -> int:
    """A number or name of a field as a number. Raises ``InvalidRule``."""
    if text in field.names:
        return field.names.index(text) + (1 if field.name == "month" else 0)
    if text.isdigit() and len(text) <= 4 and field.low <= int(text) <= field.high:
        return int(text)
    shown = text if text == element else f"{element}: {text}"
    raise _refuse(field, shown, f"not within {field.span}")


def _spec(fields: list[str]) -> Spec:
    try:
        expanded, special = croniter.expand(" ".join(fields))[:2]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRule(
            f"the cron expression {' '.join(fields)!r} cannot be read", field="expression"
        ) from error
    minutes, hours, days, months, weekdays = (
        _values(values, field) for values, field in zip(expanded, FIELDS, strict=True)
    )
    nth = frozenset(
        (int(weekday) % 7, -1 if which == "l" else int(which))
        for weekday, all_of_them in special.items()
        for which in all_of_them
    )
    spec = Spec(
        times=tuple(sorted(hour * 60 + minute for hour in hours for minute in minutes)),
        months=months,
        days=days,
        last_day="l" in expanded[2],
        weekdays=frozenset() if nth else frozenset(day % 7 for day in weekdays),
        nth=nth,
        both=fields[2].startswith("*") or fields[4].startswith("*"),
        interval="*" in fields[1] or "/" in fields[1] or len(hours) == 24,
    )
    _refuse_never(spec, fields)
    return spec


def _values(values: list[int | str], field: Field) -> frozenset[int]:
    if "*" in values:
        return frozenset(range(field.low, field.high + 1))
    return frozenset(value for value in values if isinstance(value, int))


def _refuse_never(spec: Spec, fields: list[str]) -> None:
    """Refuse a rule that no date can match; 2000 to 2060 hold every kind of year."""
    for year in range(2000, 2061):
        for month in spec.months:
            if days_of(spec, year, month):
                return
    raise InvalidRule(
        f"no date matches day of month {fields[2]}, month {fields[3]}, day of week {fields[4]}: "
        "it would never fire",
        field="expression",
    )
