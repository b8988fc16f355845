"""Durable promises about future work for Django."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import (
        backoff,
        cancel,
        current_run,
        delay,
        enqueue_many,
        next_occurrences,
        policy,
        reschedule,
    )

__version__ = "0.1.0"

__all__ = [
    "backoff",
    "cancel",
    "current_run",
    "delay",
    "enqueue_many",
    "next_occurrences",
    "policy",
    "reschedule",
]


def __getattr__(name: str) -> Any:
    """Find the public names late: the rules in ``domain`` are to be had without Django."""
    if name in __all__:
        return getattr(import_module("smallage_django.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
