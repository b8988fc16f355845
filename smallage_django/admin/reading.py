"""What people type, made values: durations with units, readings of a clock in a named zone, JSON with positions."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NoReturn

from django.core.exceptions import ValidationError
from django.utils.dateparse import parse_duration
from django.utils.translation import gettext

_PART: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|sec|min|m|h|d|w)\b", re.IGNORECASE)
_SIZES: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "sec": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_READING: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s*(Z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
#: Kept below what every database's interval column holds.
_LONGEST: Final = timedelta(days=3660)


def read_duration(text: str) -> timedelta:
    """A duration such as ``90``, ``5 min``, ``1 h 30 min`` or ``00:05:00``. Raises ``ValidationError``."""
    text = text.strip()
    length = _in_units(text)
    if length is None:
        # A bare number is seconds, and Django's own notation is understood.
        length = parse_duration(text)
    if length is None:
        raise ValidationError(
            gettext(
                "%(text)r is no duration; write a number with a unit, such as 90 s, 5 min, 1 h 30 min or 2 d."
            )
            % {"text": text[:64]},
            code="duration",
        )
    if abs(length) > _LONGEST:
        raise ValidationError(gettext("A duration may be at most ten years."), code="duration")
    return length


def _in_units(text: str) -> timedelta | None:
    total, at = timedelta(0), 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        total += float(match[1]) * _SIZES[match[2].lower()]
        at = match.end()
    return total if text else None


def read_instant(text: str, zone: tzinfo, zone_name: str) -> datetime:
    """The instant (aware UTC) that a clock in ``zone`` shows as ``text``. Raises ``ValidationError``.

    A reading that the zone's clock skips or shows twice is refused with the instants it could mean; an offset behind
    the time decides.
    """
    match = _READING.fullmatch(text.strip())
    if match is None:
        return _refuse(
            gettext("%(text)r is no date and time; write YYYY-MM-DD HH:MM."), text=text.strip()[:64]
        )
    try:
        reading = datetime.fromisoformat(f"{match[1]}T{match[2]}")
        if match[3]:
            return datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3].upper()}").astimezone(
                UTC
            )
        earlier = reading.replace(tzinfo=zone, fold=0).astimezone(UTC)
        later = reading.replace(tzinfo=zone, fold=1).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        return _refuse(gettext("%(text)r is no date and time: %(error)s."), text=text, error=error)
    if earlier == later:
        return earlier
    shown = sorted(at.astimezone(zone).isoformat(" ", "minutes") for at in (earlier, later))
    if later < earlier:
        return _refuse(
            gettext(
                "%(text)s does not exist in %(zone)s: the clock jumps over it. "
                "Write for instance %(before)s or %(after)s."
            ),
            text=text.strip(),
            zone=zone_name,
            before=shown[0],
            after=shown[1],
        )
    return _refuse(
        gettext(
            "%(text)s occurs twice in %(zone)s; write %(first)s or %(second)s, with the offset."
        ),
        text=text.strip(),
        zone=zone_name,
        first=earlier.astimezone(zone).isoformat(" ", "minutes"),
        second=later.astimezone(zone).isoformat(" ", "minutes"),
    )


def write_instant(at: datetime, zone: tzinfo) -> str:
    """The text that :func:`read_instant` reads as ``at`` again."""
    local = at.astimezone(zone)
    exact = "minutes" if not (local.second or local.microsecond) else "auto"
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return (local if twice else local.replace(tzinfo=None)).isoformat(" ", exact)


def read_json(text: str, kind: type, words: str) -> Any:
    """A JSON value of one type. Raises ``ValidationError`` with line and column of what is wrong."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _refuse(
            gettext("This is no JSON: line %(line)s column %(column)s: %(problem)s."),
            line=error.lineno,
            column=error.colno,
            problem=error.msg,
        )
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of levels.
        _refuse(gettext("This JSON cannot be read: %(problem)s."), problem=error)
    if not isinstance(value, kind):
        _refuse(
            gettext("This must be %(expected)s, not %(got)s."),
            expected=words,
            got=type(value).__name__,
        )
    return value


def _no_constant(name: str) -> NoReturn:
    _refuse(gettext("This is no JSON: JSON does not have %(name)s."), name=name)


def _refuse(message: str, **facts: Any) -> NoReturn:
    raise ValidationError(message % facts if facts else message, code="invalid")
