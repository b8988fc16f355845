"""What the page of one run shows, gathered in a fixed number of queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..models import KIND_LABELS, Run, RunEvent, Schedule, ScheduleRevision
from . import formatting

#: Lines of a traceback that are shown; the middle of a longer one is left out.
_LINES: Final = 200
#: A payload longer than this is cut, characters.
_PAYLOAD: Final = 64 * 1024
_EVENTS: Final = 200
_ATTEMPTS: Final = 50

Pairs = list[tuple[Any, Any]]


def context(run: Run, now: datetime, *, may_see_payload: bool, late: bool) -> dict[str, Any]:
    """The template's context of one run."""
    schedule = (
        Schedule.objects.filter(pk=run.schedule_id).values("pk", "name", "timezone").first()
        if run.schedule_id is not None
        else None
    )
    zone = schedule["timezone"] if schedule else "UTC"
    labels = {kind.value: label for kind, label in KIND_LABELS.items()}
    return {
        "run": run,
        "badge": formatting.state_badge(run.state, late=late),
        "kind": labels.get(run.kind, run.kind),
        "schedule": schedule,
        "zones": formatting.zones_to_show(zone),
        "times": _times(run, zone, now),
        "reason": run.reason,
        "related": _related(run),
        "facts": _facts(run),
        "attempts": _attempts(run, zone),
        "events": _events(run, zone),
        "may_see_payload": may_see_payload,
        "payload": _payload(run) if may_see_payload else [],
    }


def query(**parameters: str) -> str:
    """A query string."""
    return urlencode(parameters)


def _times(run: Run, zone: str, now: datetime) -> Pairs:
    """Label and instant in two zones, then the figures that are differences of them."""
    both = formatting.both_zones
    rows: Pairs = [(_("Scheduled for"), both(run.scheduled_for, zone))]
    if run.first_scheduled_for is not None:
        rows.append((_("First of its occurrences"), both(run.first_scheduled_for, zone)))
    if run.occurrence_count > 1:
        rows.append((_("Occurrences"), run.occurrence_count))
    instants: Pairs = [
        (_("Due"), run.due_at if run.due_at != run.scheduled_for else None),
        (_("Claimed"), run.claimed_at),
        (_("Enqueued"), run.enqueued_at),
        (_("First started"), run.first_started_at),
        (_("Started"), run.started_at if run.started_at != run.first_started_at else None),
        (_("Finished"), run.finished_at),
        (_("Late from"), run.late_at),
        (_("Start deadline"), run.start_deadline_at),
    ]
    rows += [(label, both(at, zone)) for label, at in instants if at is not None]
    rows.append((_("Dispatch lag (enqueued after its time)"), formatting.lag(run.dispatch_lag_ms)))
    rows.append((_("Start lag (started after its time)"), formatting.lag(run.start_lag_ms)))
    if run.started_at is not None:
        end = run.finished_at or now
        rows.append((_("Duration"), formatting.duration(end - run.started_at)))
    return rows


def _facts(run: Run) -> Pairs:
    rows: Pairs = [
        (_("Task"), run.task),
        (_("Queue"), run.queue),
        (_("Priority"), run.priority),
        (_("Attempts"), f"{run.attempt}/{run.max_attempts}"),
        (_("Timeout"), formatting.exact_duration(run.timeout)),
        (_("Backoff"), run.backoff),
        (_("Worker"), run.worker),
        (_("Stream"), run.stream),
        (_("Entry"), run.entry_id),
        (_("Promotion"), run.promotion or ""),
        (_("Fence (the leader's epoch)"), run.fence or ""),
        (_("Trace"), run.traceparent),
    ]
    if run.revision_id is not None:
        number = (
            ScheduleRevision.objects.filter(pk=run.revision_id)
            .values_list("number", flat=True)
            .first()
        )
        rows.append(
            (_("Revision of the schedule"), number if number is not None else gettext("gone"))
        )
    if run.handled_at is not None:
        rows.append((_("Handled by"), f"{run.handled_by}: {run.handled_note}"))
    return [(label, value) for label, value in rows if value not in ("", None)]


def _related(run: Run) -> list[tuple[Any, int, Any]]:
    """Label, primary key and fire id of the runs that this one points at, in one query."""
    links = {
        run.merged_into_id: _("Stands for it"),
        run.blocked_by_id: _("Blocked by"),
        run.parent_id: _("Made from"),
    }
    links.pop(None, None)
    if not links:
        return []
    rows = Run.objects.filter(pk__in=list(links)).values_list("pk", "fire_id")
    return [(links[pk], pk, formatting.fire_id(fire_id)) for pk, fire_id in rows]


def _attempts(run: Run, zone: str) -> list[dict[str, Any]]:
    """Newest first; the newest traceback is open on the page."""
    rows = list(run.attempts.order_by("-number")[:_ATTEMPTS])
    return [
        {
            "number": row.number,
            "worker": row.worker,
            "started": formatting.instant(row.started_at, zone),
            "duration": formatting.duration(row.finished_at - row.started_at)
            if row.finished_at is not None and row.started_at is not None
            else formatting.EMPTY,
            "ending": row.ending.replace("_", " "),
            "error_class": row.error_class,
            "error": row.error,
            "traceback": _shortened(row.traceback),
            "open": at == 0,
        }
        for at, row in enumerate(rows)
    ]


def _events(run: Run, zone: str) -> list[dict[str, Any]]:
    rows: list[RunEvent] = list(run.events.order_by("at", "id")[:_EVENTS])
    return [
        {
            "at": formatting.instant(row.at, zone),
            "kind": row.kind.replace("_", " "),
            "actor": row.actor,
            "detail": row.detail,
        }
        for row in rows
    ]


def _payload(run: Run) -> list[tuple[Any, str, bool]]:
    """Label, text and whether it was cut."""
    parts: Pairs = [(_("Arguments"), run.kwargs)]
    if run.args:
        parts.append((_("Positional arguments"), run.args))
    if run.progress is not None:
        parts.append((_("Progress"), run.progress))
    if run.result is not None or run.state == "succeeded":
        parts.append((_("Result"), run.result))
    shown = []
    for label, value in parts:
        text = formatting.pretty_json(value)
        shown.append((label, text[:_PAYLOAD], len(text) > _PAYLOAD))
    return shown


def _shortened(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= _LINES:
        return text
    half = _LINES // 2
    left_out = gettext("… %(count)s lines left out …") % {"count": len(lines) - 2 * half}
    return "\n".join([*lines[:half], left_out, *lines[-half:]])
