"""Booking a place, and the promise that goes with it."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from example_project.school.models import Booking, Lesson
from example_project.school.tasks import remind
from smallage_django import delay

BEFORE = timedelta(hours=24)


def book(lesson: Lesson, email: str) -> Booking:
    """Book a place and promise a reminder 24 hours before the class, useful until it starts.

    Both are in one transaction: without the booking there is no reminder.
    """
    with transaction.atomic():
        booking = Booking.objects.create(lesson=lesson, email=email)
        reminder = delay(
            remind,
            run_at=lesson.starts_at - BEFORE,
            deadline=lesson.starts_at,
            kwargs={"booking_id": booking.pk},
            key=f"remind-{booking.pk}",
            origin=f"booking {booking.pk}",
        )
        booking.reminder = reminder.id
        booking.save(update_fields=["reminder"])
    return booking
