"""What a schedule's row says about itself: rule, state and pending fire, also where the row is broken."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.utils.translation import gettext

from .. import api
from ..errors import SmallageError
from ..models import Schedule, ScheduleKind, ScheduleState, Unit
from . import formatting, salvage

#: What a rule raises that was written past every check.
BROKEN: Final = (SmallageError, TypeError, ValueError, OverflowError)


def rule_text(schedule: Schedule) -> str:
    """The rule as it is written: the expression, or the interval."""
    if schedule.kind == ScheduleKind.CRON:
        return schedule.expression
    if schedule.kind != ScheduleKind.INTERVAL:
        return f"{schedule.kind} {schedule.trigger}".strip()
    unit = dict(Unit.choices).get(schedule.unit, schedule.unit or "?")
    return gettext("every %(number)s %(unit)s") % {
        "number": schedule.every if schedule.every is not None else "?",
        "unit": unit,
    }


def pending_fire(schedule: Schedule, now: datetime) -> tuple[datetime | None, str]:
    """The next fire, or why there is none: what the scheduler planned, else what it will plan."""
    if salvage.unreadable(schedule):
        return None, unreadable_words(schedule)
    if not schedule.enabled:
        return None, _with_reason(gettext("paused"), schedule.pause_reason)
    if schedule.paused_until is not None and schedule.paused_until > now:
        until = formatting.plain(schedule.paused_until, schedule.timezone)
        return None, gettext("paused until %(until)s") % {"until": until}
    if not schedule.is_stale:
        if schedule.next_due_at is not None:
            return schedule.next_due_at, ""
        if schedule.state != ScheduleState.ACTIVE:
            label = str(dict(ScheduleState.choices).get(schedule.state, schedule.state))
            return None, _with_reason(label, schedule.state_reason)
    return computed_fire(schedule, now)


def computed_fire(schedule: Schedule, now: datetime) -> tuple[datetime | None, str]:
    """The next fire strictly after ``now`` by the rule alone, or why there is none."""
    try:
        found = api.next_occurrences(schedule, now, 1)
    except BROKEN as error:
        return None, gettext("broken: %(reason)s") % {"reason": error}
    return (found[0], "") if found else (None, gettext("never again"))


def unreadable_words(schedule: Schedule) -> str:
    """Which columns of a row could not be read."""
    broken = salvage.unreadable(schedule)
    told = ", ".join(f"{salvage.labels(Schedule, [name])} {raw!r}" for name, raw in broken.items())
    return gettext("broken: cannot be read: %(what)s") % {"what": told}


def shown_state(schedule: Schedule, now: datetime) -> tuple[str, str]:
    """The state as people mean it, with its reason: a disabled schedule is paused, an unreadable one broken."""
    if salvage.unreadable(schedule):
        return ScheduleState.BROKEN, unreadable_words(schedule)
    if not schedule.enabled and schedule.state != ScheduleState.BROKEN:
        return ScheduleState.PAUSED, schedule.pause_reason
    if schedule.paused_until is not None and schedule.paused_until > now:
        until = formatting.plain(schedule.paused_until, schedule.timezone)
        return ScheduleState.PAUSED, gettext("until %(until)s") % {"until": until}
    if schedule.is_stale:
        return _state_to_be(schedule, now)
    return schedule.state, schedule.state_reason


def _with_reason(label: str, reason: str) -> str:
    return f"{label}: {reason}" if reason else label


def _state_to_be(schedule: Schedule, now: datetime) -> tuple[str, str]:
    """The state of a row that was changed a moment ago: what the scheduler said of the old inputs is history."""
    try:
        api.next_occurrences(schedule, now, 1)
    except BROKEN as error:
        return ScheduleState.BROKEN, str(error)
    return ScheduleState.ACTIVE, ""


def fire_words(schedule: Schedule, at: datetime | None, why: str) -> str:
    """A pending fire, or why there is none, for a message."""
    return formatting.plain(at, schedule.timezone) if at is not None else why
