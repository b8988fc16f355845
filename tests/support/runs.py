"""Rows, deliveries and finishes for tests of the working side."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from smallage_django.domain.envelope import Envelope
from smallage_django.domain.lifecycle import Ending, State
from smallage_django.models import Heartbeat, Run
from smallage_django.ports import Begun, Delivery, Finish, Outcome

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
STREAM = "ns:q:default:0"
_numbers = itertools.count(1)


def make_run(**values: Any) -> Run:
    """An enqueued run of ``tests.app.tasks.noop`` that was due at ``NOW``, with other ``values``."""
    defaults: dict[str, Any] = {
        "fire_id": f"task:{uuid.uuid4().hex}",
        "kind": "enqueue",
        "task": "tests.app.tasks.noop",
        "scheduled_for": NOW,
        "due_at": NOW,
        "state": State.CLAIMED.value,
        "claimed_at": NOW,
    }
    return Run.objects.create(**{**defaults, **values})


def delivery(
    *,
    entry_id: str | None = None,
    at: datetime = NOW,
    deliveries: int = 1,
    stream: str = STREAM,
) -> Delivery:
    """An entry added at ``at``, under an id of its own."""
    milliseconds = round(at.timestamp() * 1000)
    return Delivery(stream, entry_id or f"{milliseconds}-{next(_numbers)}", {}, deliveries)


def letter(fire_id: str, **values: Any) -> Envelope:
    """What the entry says."""
    defaults: dict[str, Any] = {
        "task": "tests.app.tasks.noop",
        "payload": b"{}",
        "enqueued_at": round(NOW.timestamp() * 1000),
    }
    return Envelope(id=fire_id, **{**defaults, **values})


def beat(name: str, at: datetime = NOW, **values: Any) -> Heartbeat:
    """A worker that showed itself at ``at``."""
    return Heartbeat.objects.create(
        name=name, role="worker", host="h", pid=1, version="0", started_at=at, beat_at=at, **values
    )


def finish(begun: Begun, state: State = State.SUCCEEDED, **values: Any) -> Finish:
    """An outcome that leads to ``state``; ``values`` are those of ``Outcome`` or of ``Finish``."""
    own = {"due_at", "reason_code", "reason", "finished_at"}
    ending = Ending.SUCCEEDED if state is State.SUCCEEDED else Ending.FAILED
    outcome = {key: value for key, value in values.items() if key not in own}
    rest = {key: value for key, value in values.items() if key in own}
    return Finish(
        begun,
        Outcome(**{"ending": ending, **outcome}),
        state,
        rest.pop("finished_at", NOW + timedelta(seconds=5)),
        **rest,
    )
