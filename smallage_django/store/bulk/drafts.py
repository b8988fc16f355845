"""What is given to the bulk statements of promotion: rows to be inserted, advanced and marked, as values."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final


@dataclass(slots=True)
class RunDraft:
    """A run on its way into the table; every other column gets its default."""

    fire_id: str
    kind: str
    state: str
    task: str
    backend: str
    args: Any
    kwargs: Any
    queue: str
    priority: int
    scheduled_for: datetime
    due_at: datetime
    max_attempts: int
    timeout: timedelta | None
    backoff: str
    payload_ref: str = ""
    schedule_id: int | None = None
    schedule_uid: uuid.UUID | None = None
    schedule_name: str = ""
    revision_id: int | None = None
    merged_into_id: int | None = None
    blocked_by_id: int | None = None
    first_scheduled_for: datetime | None = None
    occurrence_count: int = 1
    reason_code: str = ""
    reason: str = ""
    start_deadline_at: datetime | None = None
    late_at: datetime | None = None
    fence: int = 0
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    traceparent: str = ""


#: The attributes of a draft, which are column names too.
DRAFTED: Final = tuple(item.name for item in fields(RunDraft))


@dataclass(frozen=True, slots=True)
class Advance:
    """Where a schedule stands after it was planned; applied only where it still stands at ``was_due_at``."""

    schedule_id: int
    was_due_at: datetime | None
    next_due_at: datetime | None
    accounted_until: datetime | None
    runs: int
    state: str
    state_reason: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The entry of a run that was handed over."""

    run_id: int
    stream: str
    entry_id: str
    enqueued_at: datetime
