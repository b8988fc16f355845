"""The columns that a begun run is read back with, the same for every database."""

from __future__ import annotations

from typing import Final

from ...models import Run

BEGUN: Final = (
    "id",
    "fire_id",
    "stream",
    "entry_id",
    "token",
    "worker",
    "attempt",
    "max_attempts",
    "task",
    "backend",
    "args",
    "kwargs",
    "backoff",
    "timeout",
    "scheduled_for",
    "due_at",
    "started_at",
    "queue",
    "priority",
    "schedule_name",
    "occurrence_count",
    "late_at",
    "kind",
    "traceparent",
)
TABLE: Final = Run._meta.db_table
