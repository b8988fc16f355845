"""The cron dialect: a strict grammar of our own in front of ``croniter.expand``.

croniter tells which values a valid text names; this module decides what is valid, says which field is wrong and what
to write instead, and reads from the text what croniter's result no longer shows. croniter sees only what has passed
here, in a plain form, and its own messages never reach a user.
"""

from __future__ import annotations

import hashlib
import re
from calendar import monthrange
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from croniter import croniter

from ..errors import InvalidRule

LONGEST: Final = 255
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
    """One of the five fields: its name in words, its place, its range, its names, and what ``#`` alone stands for."""

    name: str
    place: int
    low: int
    high: int
    hashed: tuple[int, int]
    names: tuple[str, ...] = ()

    @property
    def span(self) -> str:
        """The accepted values in words."""
        words = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{words}"

    def refuse(self, text: str, why: str) -> InvalidRule:
        """The refusal of a text in this field."""
        return InvalidRule(f"{self.name} (field {self.place}): {text!r} {why}", field=self.name)


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MINUTE: Final = Field("minute", 1, 0, 59, (0, 59))
HOUR: Final = Field("hour", 2, 0, 23, (0, 23))
DAY_OF_MONTH: Final = Field("day of month", 3, 1, 31, (1, 28))
MONTH: Final = Field("month", 4, 1, 12, (1, 12), _MONTHS)
DAY_OF_WEEK: Final = Field("day of week", 5, 0, 7, (0, 6), _WEEKDAYS)
FIELDS: Final = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)

#: ``v``, ``a-b``, ``v/n``, ``a-b/n`` and ``*/n``; every other shape is a special day or refused.
_ELEMENT: Final = re.compile(
    r"(?:\*|(?P<low>[0-9]+|[A-Z]+)(?:-(?P<high>[0-9]+|[A-Z]+))?)(?:/(?P<step>[0-9]+))?"
)
_HASHED: Final = re.compile(r"#(?:\(([0-9]+)-([0-9]+)\))?")
_NTH: Final = re.compile(r"([0-9]+|[A-Z]+)#([0-9]+)")
_LAST: Final = re.compile(r"L([0-9]+)")
#: What other dialects write, and what to write here.
_FOREIGN: Final = (
    (re.compile(r"\?"), "is not part of this dialect; write * instead"),
    (re.compile(r"H(\(.*\))?(/.*)?"), "is not part of this dialect; write # for a hashed value"),
    (re.compile(r"R(\(.*\))?"), "would be drawn anew at each reading; write # for a hashed value"),
    (re.compile(r"\*[0-9*].*"), "is not a value; write * alone, or */n for every n-th"),
    (re.compile(r".*#.*"), "is not part of this dialect; # stands alone, as #(a-b), or in d#k"),
)
_FOREIGN_DAYS: Final = (
    (
        re.compile(r"L-.*|.*W.*"),
        "is not part of this dialect; of such days there is only L, the last",
    ),
)
_FOREIGN_WEEKDAYS: Final = (
    (re.compile(r"[0-7]L"), "is not part of this dialect; the last Friday of the month is L5"),
    (re.compile(r"L[A-Z]*"), "needs a digit; the last Friday of the month is L5"),
    (
        re.compile(r"(.*[-/*].*)#.*"),
        "is not a weekday of a month; write single ones, as in 1#2,3#2",
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """What a valid expression names, and how it is to be read. Numbers are sorted; Sunday is 0."""

    #: The five fields in a plain form: aliases and hashed fields resolved, names and odd spellings gone.
    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    #: (weekday, which one of the month); 0 is the last one.
    nth: frozenset[tuple[int, int]]
    #: Both day fields must match, since one of them begins with a star; otherwise either is enough.
    both: bool
    #: An interval rule keeps real time through a change of clock; a fixed rule keeps its reading.
    interval: bool

    @property
    def every_day(self) -> bool:
        """Whether the months and days are such that each date matches."""
        whole = (len(self.days) == 31, len(self.weekdays) == 7)
        return len(self.months) == 12 and (all(whole) if self.both else any(whole))

    def days_of(self, first: int, length: int) -> tuple[int, ...]:
        """The matching days of a month that begins with this weekday (Monday is 0) and has this length."""
        return tuple(
            day
            for day in range(1, length + 1)
            if self._matches(day, (first + day) % 7, day + 7 > length, day == length)
        )

    def _matches(self, day: int, weekday: int, in_last_week: bool, is_last: bool) -> bool:
        by_month = day in self.days or (is_last and self.last_day)
        by_week = (
            weekday in self.weekdays
            or (weekday, (day + 6) // 7) in self.nth
            or (in_last_week and (weekday, 0) in self.nth)
        )
        return (by_month and by_week) if self.both else (by_month or by_week)


def parse(expression: object, key: str | None) -> Spec:
    """The meaning of an expression; ``key`` resolves hashed fields. Raises ``InvalidRule`` naming the field."""
    fields = _resolved(as_text(expression), key)
    plain = [_plain(text, field) for text, field in zip(fields, FIELDS, strict=True)]
    # Both rules are about what was written; croniter's result does not show it any more.
    both = fields[2].startswith("*") or fields[4].startswith("*")
    return _spec(" ".join(plain), both, stepped="*" in fields[1] or "/" in fields[1])


def as_text(expression: object) -> str:
    """Refuse what is no text, or too long: whatever comes later takes time that grows with it."""
    if not isinstance(expression, str):
        raise _refuse(
            f"the cron expression is of type {type(expression).__name__}; "
            "it must be text such as '30 2 * * *'"
        )
    if len(expression) > LONGEST:
        raise _refuse(f"the cron expression has {len(expression)} characters, {LONGEST} allowed")
    return expression


def has_hashed_field(expression: str) -> bool:
    """Whether the meaning of an expression depends on a key."""
    return any(text.startswith("#") for text in expression.split())


def _resolved(expression: str, key: str | None) -> list[str]:
    """The five fields in upper case, aliases and hashed fields resolved."""
    for position, letter in enumerate(expression, start=1):
        if not (" " <= letter <= "~" or letter == "\t"):
            raise _refuse(
                f"the cron expression has the character {letter!r} at position {position}; "
                "only plain ASCII letters, digits, signs, spaces and tabs are allowed"
            )
    texts = _split(expression.strip(" \t"))
    if len(texts) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        number = {0: "no fields", 1: "1 field"}.get(len(texts), f"{len(texts)} fields")
        more = "; seconds and years are not part of this dialect" if len(texts) in (6, 7) else ""
        raise _refuse(f"the cron expression has {number}, 5 expected: {names}{more}")
    return [
        _pick(text, field, key) if text.startswith("#") else text
        for text, field in zip(texts, FIELDS, strict=True)
    ]


def _refuse(message: str) -> InvalidRule:
    return InvalidRule(message, field="expression")


def _split(text: str) -> list[str]:
    """The fields of a text in upper case; of an alias, those that it stands for."""
    lower = text.lower()
    if lower in ALIASES:
        return ALIASES[lower].split()
    if lower.startswith("@every"):
        raise _refuse(f"{text!r} is not a cron expression; make it an interval (Every) instead")
    if lower == "@reboot":
        raise _refuse(f"{text!r} names no time; a schedule fires at times alone")
    if text.startswith("@") or re.fullmatch(r"#[a-z]+", lower):
        raise _refuse(f"the alias {text!r} is unknown; known are {', '.join(ALIASES)}")
    if zone := re.match(r"(cron_)?tz=\S*", text, re.IGNORECASE):
        raise _refuse(f"{zone[0]!r} is not a field; the time zone is a value of its own")
    return text.upper().split()


def _pick(text: str, field: Field, key: str | None) -> str:
    """The value that a key picks for a hashed field: the same in every process, each field on its own."""
    match = _HASHED.fullmatch(text)
    if match is None:
        raise field.refuse(text, "is no hashed field: write # or #(a-b), without a list or a step")
    low, high = field.hashed
    if match[1] is not None:
        low, high = int(match[1]), int(match[2])
        # Sunday is 0 here: 7 would be the same day, picked twice as often.
        top = min(field.high, 6) if field is DAY_OF_WEEK else field.high
        if not field.low <= low < high <= top:
            raise field.refuse(
                text, f"must rise within {field.low}-{top}, as in #({field.low}-{top})"
            )
    if key is None:
        raise field.refuse(text, "is hashed and needs the key of a schedule to pick its value by")
    digest = hashlib.sha256(f"{key}\x1f{field.name}".encode()).digest()
    return str(low + int.from_bytes(digest[:8], "big") % (high - low + 1))


def _plain(text: str, field: Field) -> str:
    """A field checked against the grammar, in a plain form. Raises ``InvalidRule``."""
    if text == "*":
        return text
    elements = text.split(",")
    if "" in elements:
        raise field.refuse(text, "has an empty element in its list")
    if "*" in elements:
        raise field.refuse(text, "has * inside a list; * alone says as much")
    special = [_special(element, field) for element in elements]
    if field is DAY_OF_WEEK and any(special) and not all(special):
        raise field.refuse(text, "mixes plain days with d#k or Ld; make two schedules of it")
    return ",".join(
        known or _element(element, field) for known, element in zip(special, elements, strict=True)
    )


def _special(element: str, field: Field) -> str | None:
    """``L``, ``d#k`` and ``Ld`` in a plain form; None for what is not special."""
    if field is DAY_OF_MONTH:
        return element if element == "L" else None
    if field is not DAY_OF_WEEK:
        return None
    if last := _LAST.fullmatch(element):
        return f"L{_value(last[1], field) % 7}"
    if nth := _NTH.fullmatch(element):
        weekday, which = _value(nth[1], field) % 7, nth[2].lstrip("0")
        if which not in ("1", "2", "3", "4", "5"):
            raise field.refuse(element, "names a week that no month has: k in d#k is 1-5")
        return f"{weekday}#{which}"
    return None


def _element(element: str, field: Field) -> str:
    """A value, a range or a step in a plain form. Raises ``InvalidRule``."""
    match = _ELEMENT.fullmatch(element)
    if match is None or element == "*":
        raise _foreign(element, field)
    step = _step(match["step"], element, field)
    if match["low"] is None:
        return element if step is None else f"*/{step}"
    low = _value(match["low"], field, element)
    if match["high"] is None:
        return _value_with_step(low, step, element, field)
    high = _value(match["high"], field, element)
    if low == high or (field is DAY_OF_WEEK and (low, high) == (7, 0)):
        raise field.refuse(element, f"is a range of one value; write {match['low']} alone")
    if low > high and step is not None:
        raise field.refuse(element, "has a step on a range that wraps; list the values instead")
    return f"{low}-{high}" if step is None else f"{low}-{high}/{step}"


def _value_with_step(low: int, step: int | None, element: str, field: Field) -> str:
    if step is None:
        return str(low)
    if field is DAY_OF_WEEK:
        raise field.refuse(element, "has a step on one day; write a range, as in 1-5/2, or a list")
    # croniter reads a range of one value as the whole field.
    return str(low) if low == field.high else f"{low}-{field.high}/{step}"


def _step(text: str | None, element: str, field: Field) -> int | None:
    if text is None:
        return None
    step = int(text)
    if not 1 <= step <= field.high:
        raise field.refuse(element, f"has the step {step}, which must be within 1-{field.high}")
    return step


def _value(text: str, field: Field, element: str | None = None) -> int:
    """A number or a name as a number. Raises ``InvalidRule``."""
    if text in field.names:
        return field.names.index(text) + (field is MONTH)
    if not text.isdigit():
        raise _foreign(element or text, field)
    if not field.low <= int(text) <= field.high:
        place = f" in {element!r}" if element not in (None, text) else ""
        raise field.refuse(text, f"is outside {field.span}{place}")
    return int(text)


def _foreign(element: str, field: Field) -> InvalidRule:
    """The refusal of what is no element of this dialect, with what to write instead where that is known."""
    own = {DAY_OF_MONTH: _FOREIGN_DAYS, DAY_OF_WEEK: _FOREIGN_WEEKDAYS}.get(field, ())
    for pattern, why in (*own, *_FOREIGN):
        if pattern.fullmatch(element):
            return field.refuse(element, why)
    if field.names and element[:3] in field.names and element.isalpha():
        return field.refuse(element, f"is not a name of this field; write {element[:3]}")
    return field.refuse(element, f"is not a value, a range or a step of {field.span}")


def _spec(plain: str, both: bool, *, stepped: bool) -> Spec:
    """What croniter reads from a text that the grammar let pass."""
    try:
        expanded, special = croniter.expand(plain)[:2]
    except (ValueError, LookupError, TypeError, AttributeError):
        # Its message can be a traceback with the paths of files.
        raise _refuse(f"the cron expression {plain!r} cannot be read") from None
    minutes, hours, days, months, weekdays = (
        _numbers(found, field) for found, field in zip(expanded, FIELDS, strict=True)
    )
    spec = Spec(
        text=plain,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        last_day="l" in expanded[2],
        months=months,
        weekdays=frozenset() if special else frozenset(day % 7 for day in weekdays),
        nth=frozenset(
            (day % 7, 0 if which == "l" else int(which))
            for day, several in special.items()
            for which in several
        ),
        both=both,
        interval=stepped or len(hours) == 24,
    )
    _refuse_if_never(spec)
    return spec


def _numbers(found: list[int | str], field: Field) -> frozenset[int]:
    if "*" in found:
        return frozenset(range(field.low, field.high + 1))
    return frozenset(number for number in found if isinstance(number, int))


@lru_cache(maxsize=1)
def _kinds_of_month() -> dict[int, frozenset[tuple[int, int]]]:
    """For each month, the weekdays that it can begin with and its lengths: 2000 to 2060 hold every kind of year."""
    return {
        month: frozenset(monthrange(year, month) for year in range(2000, 2061))
        for month in range(1, 13)
    }


def _refuse_if_never(spec: Spec) -> None:
    kinds = _kinds_of_month()
    if not any(spec.days_of(*kind) for month in spec.months for kind in kinds[month]):
        day, month, weekday = spec.text.split()[2:]
        on = "" if weekday == "*" else f" on day of week {weekday}"
        raise _refuse(f"no date matches: there is never a day of month {day} in month {month}{on}")
