"""What the one search box of the runs understands: a fire id, the beginning of one, or a schedule and a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet

from ..domain import identity
from ..models import Schedule
from . import formatting
from .run_filters import runs_of

#: How a fire id may begin.
_KINDS: Final = ("sched:", "once:", "task:", "manual:", "replay:")
_DATED: Final = re.compile(r"(?P<name>.+?)\s+(?P<date>\d{4}-\d\d-\d\d)(?:[ T](?P<time>\d\d:\d\d))?")


def search(queryset: QuerySet[Any], text: str) -> QuerySet[Any] | None:
    """The runs that ``text`` asks for; None where it cannot be understood."""
    text = text.strip()
    exact = queryset.filter(fire_id=text)
    if identity.is_fire_id(text) and exact.exists():
        return exact
    if text.startswith(_KINDS) or re.fullmatch(r"[0-9a-f:.]{6,}", text):
        return queryset.filter(_begins_with(text))
    dated = _DATED.fullmatch(text)
    if dated is not None:
        return _on_day(queryset, dated)
    if Schedule.objects.using(queryset.db).filter(name=text).exists():
        return queryset.filter(runs_of(text, queryset.db))
    return None


def _begins_with(text: str) -> Q:
    """A range instead of LIKE: the unique index serves it on every database."""
    if not text.startswith(_KINDS):
        # A bare uid is most often a schedule's.
        text = f"sched:{text}"
    after = text[:-1] + chr(ord(text[-1]) + 1)
    return Q(fire_id__gte=text, fire_id__lt=after)


def _on_day(queryset: QuerySet[Any], dated: re.Match[str]) -> QuerySet[Any] | None:
    """The runs of a schedule on one day, or in one minute, of its own zone."""
    rows = Schedule.objects.using(queryset.db).filter(name=dated["name"])
    name = rows.values_list("timezone", flat=True).first()
    zone, _shown = formatting.zone(name) if name else (UTC, "UTC")
    try:
        first = datetime.fromisoformat(f"{dated['date']}T{dated['time'] or '00:00'}")
        last = first + (timedelta(minutes=1) if dated["time"] else timedelta(days=1))
        between = (at.replace(tzinfo=zone).astimezone(UTC) for at in (first, last))
        start, end = between
    except (ValueError, OverflowError):
        return None
    return queryset.filter(
        runs_of(dated["name"], queryset.db), scheduled_for__gte=start, scheduled_for__lt=end
    )
