"""What ``smallage_demo`` puts into the database: classes, bookings, and schedules of every kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from example_project.school.booking import book
from example_project.school.models import Lesson, Upload
from smallage_django.models import Schedule

TASKS = "example_project.school.tasks"
SCHEDULES: list[dict[str, Any]] = [
    {
        "name": "visitors",
        "kind": "interval",
        "every": 5,
        "unit": "seconds",
        "task": f"{TASKS}.count_visitors",
        "description": "Every few seconds, so that there is something to see.",
    },
    {
        "name": "exchange-rates",
        "kind": "interval",
        "every": 15,
        "unit": "seconds",
        "task": f"{TASKS}.refresh_rates",
        "kwargs": {"currencies": ["USD", "GBP", "CHF"]},
        "description": "A coroutine.",
    },
    {
        "name": "payments",
        "kind": "interval",
        "every": 20,
        "unit": "seconds",
        "task": f"{TASKS}.collect_payments",
        "overlap_policy": "allow",
        "description": "Fails about every second time and is tried again.",
    },
    {
        "name": "upload-clean-up",
        "expression": "*/10 * * * *",
        "task": f"{TASKS}.clean_up_uploads",
        "description": "May coalesce: after an outage one run does the work of all that were missed.",
    },
    {
        "name": "nightly-instructor-report",
        "expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "task": f"{TASKS}.report_to_instructors",
        "late_after": timedelta(minutes=5),
        "start_deadline": timedelta(hours=6),
        "description": "At 02:30 in Berlin, also in the nights when the clocks change.",
    },
]


def prepare() -> None:
    """Fill the database; what is there already stays as it is."""
    for wanted in SCHEDULES:
        if not Schedule.objects.filter(name=wanted["name"]).exists():
            schedule = Schedule(**wanted)
            schedule.full_clean()
            schedule.save()
    if not Lesson.objects.exists():
        _classes()


def _classes() -> None:
    now = timezone.now().replace(microsecond=0)
    tomorrow = Lesson.objects.create(
        title="Watercolour for beginners",
        instructor="ines@school.example",
        starts_at=now + timedelta(hours=24, seconds=15),
    )
    book(tomorrow, "ada@learners.example")
    next_week = Lesson.objects.create(
        title="Bread and its reasons",
        instructor="jon@school.example",
        starts_at=now + timedelta(days=7),
    )
    for name in ("ben", "cleo", "dara"):
        book(next_week, f"{name}@learners.example")
    Upload.objects.create(name="sketch-final-FINAL.png")
