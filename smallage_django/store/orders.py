"""A claimed run as an order: what is written to its stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

from ..arguments import payload_of
from ..conf import config
from ..domain.envelope import Envelope
from ..domain.identity import epoch_ms
from ..ports import Order

#: The columns that an order is made of, besides the id.
ORDERED: Final = (
    "fire_id",
    "task",
    "args",
    "kwargs",
    "queue",
    "priority",
    "scheduled_for",
    "attempt",
    "promotion",
    "traceparent",
)


class Claimed(Protocol):
    """What an order needs of a run: a row or a draft."""

    fire_id: str
    task: str
    args: Any
    kwargs: Any
    queue: str
    priority: int
    scheduled_for: datetime
    traceparent: str


def order_of(
    run: Claimed, run_id: int, *, attempt: int = 0, promotion: int = 0, lost_entry: str = ""
) -> Order:
    """The order of a claimed run.

    A payload above ``MAX_PAYLOAD`` stays in the row, and the entry says so. Arguments of a shape that no entry can hold
    do too: it is the worker that tells what is wrong with them.
    """
    payload, reference = _payload(run), ""
    if payload is None or len(payload) > config().max_payload:
        payload, reference = b"", f"row:{run.fire_id}"
    envelope = Envelope(
        id=run.fire_id,
        task=run.task,
        payload=payload,
        enqueued_at=epoch_ms(run.scheduled_for),
        attempt=attempt,
        payload_ref=reference,
        traceparent=run.traceparent,
    )
    return Order(run_id, promotion, run.queue, run.priority, envelope, lost_entry)


def _payload(run: Claimed) -> bytes | None:
    try:
        return payload_of(run.task, run.args, run.kwargs)
    except (TypeError, ValueError, LookupError):
        return None
