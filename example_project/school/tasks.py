"""What the platform does in the background."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from django.utils import timezone

from example_project.school.models import Booking, Lesson, Letter, Upload
from smallage_django import backoff, current_run, policy
from smallage_django.compat import task


class PaymentServiceBusy(Exception):
    """The payment service answered 503."""


def send(recipient: str, subject: str) -> bool:
    """Send one letter, once for this fire: the fire id is the same in every attempt."""
    key = f"{current_run().fire_id}/{recipient}"[-80:]
    _, sent = Letter.objects.get_or_create(
        key=key, defaults={"recipient": recipient, "subject": subject}
    )
    return sent


@task(queue_name="mail")
def remind(booking_id: int) -> str:
    """Remind a learner of a class, a day before it starts."""
    booking = Booking.objects.select_related("lesson").filter(pk=booking_id).first()
    if booking is None:
        return "the booking was cancelled"
    send(booking.email, f"Tomorrow: {booking.lesson.title}")
    return f"reminded {booking.email}"


@task(queue_name="reports")
def report_to_instructors(days: int = 1) -> int:
    """Tell each instructor who comes to the classes of the next days."""
    until = timezone.now() + timedelta(days=days)
    lessons = Lesson.objects.filter(starts_at__lte=until, starts_at__gte=timezone.now())
    for lesson in lessons:
        send(lesson.instructor, f"{lesson.booking_set.count()} learners in {lesson.title}")
    return len(lessons)


@task
def clean_up_uploads(older_than_minutes: int = 60) -> int:
    """Delete uploads that nobody attached to anything."""
    before = timezone.now() - timedelta(minutes=older_than_minutes)
    deleted, _ = Upload.objects.filter(uploaded_at__lt=before).delete()
    return deleted


@task
@policy(max_attempts=5, backoff=backoff.exponential(1, cap=30))
def collect_payments() -> str:
    """Ask a payment service that is often busy: fails about every second time, and is tried again."""
    if random.random() < 0.5:
        raise PaymentServiceBusy("503 Service Unavailable: try again in a moment")
    return "collected"


@task
async def refresh_rates(currencies: list[str]) -> dict[str, float]:
    """Fetch several exchange rates at the same time."""

    async def fetch(currency: str) -> tuple[str, float]:
        await asyncio.sleep(0.05)
        return currency, round(random.uniform(0.5, 2.0), 4)

    return dict(await asyncio.gather(*(fetch(currency) for currency in currencies)))


@task
def count_visitors() -> int:
    """Something that happens every few seconds."""
    return random.randint(1, 100)
