"""What the admin's tests share: people, rows, forms as a browser would post them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

from smallage_django.domain import identity
from smallage_django.models import Run, Schedule

BASE = datetime(2026, 3, 28, 2, 30, tzinfo=UTC)


def person(
    *permissions: str, name: str = "anna", staff: bool = True, superuser: bool = False
) -> User:
    """A user with exactly these permissions (codenames of our app)."""
    user = User.objects.create(username=name, is_staff=staff, is_superuser=superuser)
    user.user_permissions.set(
        Permission.objects.filter(
            content_type__app_label="smallage_django", codename__in=permissions
        )
    )
    return user


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def make_schedule(name: str = "nightly", **values: Any) -> Schedule:
    """A schedule as the scheduler has left it: planned, with a next occurrence in the year 2099."""
    values = {
        "kind": "cron",
        "expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "task": "tests.app.tasks.noop",
        **values,
    }
    row = Schedule.objects.create(name=name, **values)
    mark_planned(row, values.get("next_due_at", datetime(2099, 6, 1, 0, 30, tzinfo=UTC)))
    row.refresh_from_db()
    return row


def mark_planned(row: Schedule, next_due_at: datetime | None) -> None:
    """Set the scheduler's own columns, so that the row is not stale."""
    from smallage_django.querysets import PLANNING_INPUTS

    copies = {f"planned_{name}": getattr(row, name) for name in PLANNING_INPUTS}
    Schedule.objects.filter(pk=row.pk).update(next_due_at=next_due_at, **copies)


def make_run(at: datetime = BASE, schedule: Schedule | None = None, **values: Any) -> Run:
    return Run.objects.create(**run_values(at, schedule, **values))


def make_runs(instants: Iterable[datetime], **values: Any) -> None:
    Run.objects.bulk_create([Run(**run_values(at, **values)) for at in instants], batch_size=500)


def run_values(at: datetime, schedule: Schedule | None = None, **values: Any) -> dict[str, Any]:
    uid = uuid.uuid4()
    facts: dict[str, Any] = {
        "fire_id": identity.enqueued(uid),
        "kind": "enqueue",
        "task": "tests.app.tasks.noop",
        "scheduled_for": at,
        "due_at": at,
        "state": "succeeded",
        "attempt": 1,
        "first_started_at": at + timedelta(seconds=1),
        "started_at": at + timedelta(seconds=1),
        "finished_at": at + timedelta(seconds=3),
        "start_lag_ms": 1000,
        "dispatch_lag_ms": 300,
    }
    if schedule is not None:
        facts |= {
            "fire_id": identity.scheduled(schedule.uid, at),
            "kind": "schedule",
            "schedule": schedule,
            "schedule_uid": schedule.uid,
            "schedule_name": schedule.name,
        }
    return {**facts, **values}


class _Boxes(HTMLParser):
    """Collects what a browser would send: successful controls with their values."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Any] = {}
        self._select: str | None = None
        self._area: str | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = dict(attrs)
        name = at.get("name") or ""
        if tag == "input" and name:
            kind = at.get("type", "text")
            if kind in ("checkbox", "radio"):
                if "checked" in at:
                    self.data[name] = at.get("value") or "on"
            elif kind != "submit":
                self.data[name] = at.get("value") or ""
        elif tag == "select":
            self._select = name
            self.data.setdefault(name, "")
        elif tag == "option" and self._select and "selected" in at:
            self.data[self._select] = at.get("value") or ""
        elif tag == "textarea":
            self._area, self._text = name, []

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        elif tag == "textarea" and self._area:
            self.data[self._area] = "".join(self._text).removeprefix("\n")
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area:
            self._text.append(data)


def boxes(html: str, form_id: str | None = None) -> dict[str, Any]:
    """What a browser would post from a page's form."""
    if form_id is not None:
        match = re.search(rf'<form[^>]*id="{form_id}".*?</form>', html, re.DOTALL)
    else:
        match = re.search(r'<form[^>]*method="post" novalidate.*?</form>', html, re.DOTALL)
    assert match, "the page has no such form"
    parser = _Boxes()
    parser.feed(match[0])
    return parser.data


def errors_of(response: Any) -> dict[str, list[str]]:
    """The messages of a form that came back, by field."""
    assert response.status_code == 200, response
    form = response.context["adminform"].form
    return {name: [str(text) for text in found] for name, found in form.errors.items()}


def told(response: Any) -> list[str]:
    """The messages shown to the person."""
    return [str(message) for message in response.context["messages"]]
