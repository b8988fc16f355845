"""Changes of a schedule by a person: conditional on what was seen, with a revision that says who, how and why.

Only inputs are written, never the scheduler's own columns: it sees by itself that a row has become stale. Each function
is one step of the caller's transaction.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F, Max

from ..models import Schedule, ScheduleRevision


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes something, by which way, and why."""

    who: str
    via: str
    why: str = ""


def revise(
    alias: str,
    before: Schedule,
    values: Mapping[str, Any],
    author: Author,
    **expected: Any,
) -> bool:
    """Set ``values`` where the row is still the version that ``before`` is; whether it was.

    ``expected`` are further conditions on the row.
    """
    rows = Schedule.objects.using(alias).filter(pk=before.pk, version=before.version, **expected)
    if rows.update(**values, version=F("version") + 1) != 1:
        return False
    changes = {
        name: [plain(getattr(before, name, None)), plain(value)] for name, value in values.items()
    }
    _record(alias, before.uid, before.pk, changes, author)
    return True


def record_creation(alias: str, schedule: Schedule, names: list[str], author: Author) -> None:
    """The first revision of a new schedule: its fields without old values."""
    changes = {name: [None, plain(getattr(schedule, name))] for name in names}
    _record(alias, schedule.uid, schedule.pk, changes, author)


def _record(alias: str, uid: uuid.UUID, pk: int, changes: dict[str, Any], author: Author) -> None:
    rows = ScheduleRevision.objects.using(alias)
    # The schedule's row is locked by the update before, so two revisions cannot draw one number.
    newest: int | None = rows.filter(schedule_uid=uid).aggregate(n=Max("number"))["n"]
    rows.create(
        schedule_id=pk,
        schedule_uid=uid,
        number=(newest or 0) + 1,
        who=author.who[:191],
        via=author.via,
        why=author.why,
        changes=changes,
    )


def plain(value: Any) -> Any:
    """A field's value as JSON has it: instants in UTC with ``Z``, durations in seconds."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return str(value)
