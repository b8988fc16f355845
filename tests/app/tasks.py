"""Tasks that the tests enqueue and schedule, found like any app's by their module name."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from django.utils import timezone

from smallage_django.compat import task
from tests.app.models import Effect


class Boom(Exception):
    """What ``fail`` raises: an error of user code that nobody else raises."""


@task
def noop() -> None:
    """Do nothing, successfully."""


@task
def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


@task
async def async_add(a: int, b: int) -> int:
    """Return the sum from a coroutine that gives way once."""
    await asyncio.sleep(0)
    return a + b


@task
def fail(message: str = "boom") -> None:
    """Raise :class:`Boom`, always."""
    raise Boom(message)


@task
def slow(seconds: float) -> float:
    """Keep a thread busy for so many seconds."""
    time.sleep(seconds)
    return seconds


@task
async def async_slow(seconds: float) -> float:
    """Keep a coroutine waiting for so many seconds."""
    await asyncio.sleep(seconds)
    return seconds


@task(takes_context=True)
def record(context: Any, key: str) -> int:
    """Leave one :class:`Effect` row and return its primary key."""
    return _leave_effect(context, key)


@task(takes_context=True)
def record_and_hold(context: Any, key: str, path: str) -> int:
    """Leave an :class:`Effect`, then stay in user code until a file appears at ``path``."""
    effect = _leave_effect(context, key)
    _wait_for(Path(path))
    return effect


@task(takes_context=True)
def fail_first(context: Any, key: str, failures: int) -> int:
    """Leave an :class:`Effect` at each attempt and raise :class:`Boom` in the first ``failures`` of them."""
    _leave_effect(context, key)
    attempts = Effect.objects.filter(key=key, fire_id=context.task_result.id).count()
    if attempts <= failures:
        raise Boom(f"attempt {attempts} of {key}")
    return attempts


def _leave_effect(context: Any, key: str) -> int:
    # A task result's id is the fire id under our backend, and an id of its own under any other.
    effect = Effect.objects.create(fire_id=context.task_result.id, key=key, at=timezone.now())
    return effect.pk


def _wait_for(path: Path, *, at_most_s: float = 120.0) -> None:
    """Poll for a file; a bound keeps a forgotten test from holding a process for ever."""
    deadline = time.monotonic() + at_most_s
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
