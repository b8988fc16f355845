"""How instants, durations, states and ids look on every page: one formatter each, so that lists and pages agree.

A time is never printed without its zone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from django.utils import dateformat, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..conf import config
from ..domain.lifecycle import State
from ..errors import InvalidRule, SmallageError
from ..models import STATE_LABELS, DelayedState, ScheduleState

EMPTY: Final = "–"
MASK: Final = "••••"

#: Glyphs beside the words, so that no state is told by colour alone.
_GLYPHS: Final[dict[str, str]] = {
    State.SUCCEEDED: "✓",
    State.RUNNING: "▶",
    State.RETRYING: "✕",
    State.FAILED: "◆",
    State.MISSED: "○",
    State.SKIPPED: "–",
    State.EXPIRED: "–",
    State.CANCELLED: "–",
}
_WAITING: Final = "▯"
_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def zone(name: str) -> tuple[tzinfo, str]:
    """The zone of that name and the name to print; UTC, saying so, where there is no such zone."""
    from ..domain.recurrence import resolve_zone

    try:
        return resolve_zone(name), name
    except InvalidRule:
        unknown = gettext("UTC; zone %(name)r is unknown") % {"name": name[:64]}
        return UTC, unknown


def zones_to_show(name: str) -> list[str]:
    """The zone of the row, and a second one: the viewer's where it differs, else UTC."""
    names = [name or "UTC", timezone.get_current_timezone_name(), "UTC"]
    return list(dict.fromkeys(names))[:2]


def instant(at: datetime | None, zone_name: str) -> SafeString | str:
    """A date and time in a zone, with its abbreviation and offset: ``Sat 28 Mar 2027 03:00 CEST (+02:00)``."""
    if at is None:
        return EMPTY
    return format_html(
        '<time class="smallage-time" datetime="{}">{}</time>', _iso(at), plain(at, zone_name)
    )


def plain(at: datetime, zone_name: str) -> str:
    """The text of :func:`instant`, for messages."""
    info, name = zone(zone_name)
    try:
        local = at.astimezone(info)
    except OverflowError:
        # Within a day of the first or the last instant that Python knows.
        local, name = at.astimezone(UTC), "UTC"
    date = dateformat.format(local, "D j M Y H:i:s" if local.second else "D j M Y H:i")
    return f"{date} {_zone_words(local, name)}"


def relative(at: datetime | None, now: datetime) -> str:
    """How far away: ``in 3 h 12 min``, ``5 min ago``."""
    if at is None:
        return ""
    away = at - now
    if abs(away) < timedelta(seconds=1):
        return gettext("now")
    words = duration(abs(away))
    if away > timedelta(0):
        return gettext("in %(duration)s") % {"duration": words}
    return gettext("%(duration)s ago") % {"duration": words}


def moment(at: datetime | None, zone_name: str, now: datetime) -> SafeString | str:
    """Relative above, absolute with its zone below."""
    if at is None:
        return EMPTY
    return format_html(
        '<span class="smallage-relative">{}</span><br>{}', relative(at, now), instant(at, zone_name)
    )


def both_zones(at: datetime | None, zone_name: str) -> SafeString | str:
    """An instant in the row's zone and in the viewer's."""
    if at is None:
        return EMPTY
    shown = [instant(at, name) for name in zones_to_show(zone_name)]
    return format_html("{}" + "<br>{}" * (len(shown) - 1), *shown)


def duration(length: timedelta) -> str:
    """A duration by its two largest units; below ten seconds with a decimal, below a second in milliseconds."""
    seconds = length.total_seconds()
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{sign}{round(seconds * 1000)} ms" if seconds else "0 s"
    if seconds < 10 and not seconds.is_integer():
        return f"{sign}{seconds:.1f} s"
    left, parts = int(seconds), []
    for name, size in _UNITS:
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount} {name}")
    return sign + " ".join(parts[:2])


def exact_duration(length: timedelta | None) -> str:
    """A duration to edit: every unit that it has, so that reading it again gives the same."""
    if length is None:
        return ""
    total = length // timedelta(microseconds=1)
    seconds, micro = divmod(abs(total), 1_000_000)
    parts = []
    for name, size in _UNITS[:-1]:
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {name}")
    if seconds or micro or not parts:
        fraction = f".{micro:06d}".rstrip("0") if micro else ""
        parts.append(f"{seconds}{fraction} s")
    return ("-" if total < 0 else "") + " ".join(parts)


def lag(milliseconds: int | None) -> str:
    """A lag column: ``+0.7 s``."""
    if milliseconds is None:
        return EMPTY
    return ("" if milliseconds < 0 else "+") + duration(timedelta(milliseconds=milliseconds))


def state_badge(state: str, *, late: bool = False) -> SafeString:
    """A run's state as glyph and text, with the flag of a run that started too late."""
    try:
        label: Any = STATE_LABELS[State(state)]
    except ValueError:
        label = state
    badge = format_html(
        '<span class="smallage-state smallage-state-{}"><span aria-hidden="true">{}</span> {}</span>',
        state,
        _GLYPHS.get(state, _WAITING),
        label,
    )
    return format_html("{} {}", badge, _late_flag()) if late else badge


def schedule_badge(state: str) -> SafeString:
    """A schedule's state as a badge."""
    known = dict(ScheduleState.choices)
    return format_html(
        '<span class="smallage-badge smallage-schedule-{}">{}</span>',
        state,
        known.get(state, state),
    )


def delayed_badge(state: str) -> SafeString:
    """A delayed run's state, in the look of the run states it resembles."""
    looks = {DelayedState.WAITING: State.PENDING, DelayedState.FIRED: State.SUCCEEDED}
    look = looks.get(state, state)  # type: ignore[call-overload]
    known = dict(DelayedState.choices)
    return format_html(
        '<span class="smallage-state smallage-state-{}"><span aria-hidden="true">{}</span> {}</span>',
        look,
        _GLYPHS.get(look, _WAITING),
        known.get(state, state),
    )


def badge(text: Any, kind: str = "warning") -> SafeString:
    """A word that asks for attention."""
    return format_html('<span class="smallage-badge smallage-{}">{}</span>', kind, text)


def fire_id(text: str) -> SafeString:
    """A fire id, shortened in the middle; whole in its title."""
    shown = text if len(text) <= 17 else f"{text[:10]}…{text[-6:]}"
    return format_html('<bdi dir="ltr" class="smallage-id" title="{}">{}</bdi>', text, shown)


def one_line(text: str, limit: int = 80) -> str:
    """The last line of a text that says something, at most ``limit`` characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return last if len(last) <= limit else f"{last[: limit - 1]}…"


def pretty_json(value: Any) -> str:
    """JSON for people, with the values of redacted keys masked."""
    return json.dumps(redacted(value), indent=2, ensure_ascii=False, default=str)


def redacted(value: Any, hidden: Sequence[str] | None = None) -> Any:
    """The same structure with a mask in place of every value whose key has a word of ``SMALLAGE["REDACT"]``."""
    if hidden is None:
        hidden = _hidden_words()
    if isinstance(value, dict):
        return {
            key: MASK
            if any(word in str(key).lower() for word in hidden)
            else redacted(inner, hidden)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [redacted(inner, hidden) for inner in value]
    return value


def _hidden_words() -> tuple[str, ...]:
    try:
        words = config().redact
    except SmallageError:
        # Settings that cannot be read must not uncover anything: fall back to what is hidden by default.
        from ..conf import Config

        words = Config().redact
    return tuple(word.lower() for word in words)


def _late_flag() -> SafeString:
    return format_html(
        '<span class="smallage-state smallage-late"><span aria-hidden="true">◢</span> {}</span>',
        _("late"),
    )


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _zone_words(local: datetime, name: str) -> str:
    offset = local.isoformat()[-6:] if local.utcoffset() else "+00:00"
    abbreviation = local.tzname() or name
    if name == "UTC":
        return "UTC"
    if abbreviation[:1] in "+-" or " " in name:
        # Zones without an abbreviation of their own are told by their name.
        abbreviation = name
    return f"{abbreviation} ({offset})"
