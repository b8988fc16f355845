"""The wire format, version 1 of smallage's envelope: stream fields to a value and back, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERSION: Final = b"1"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a stream entry says. ``payload`` is a JSON object of named arguments, opaque bytes here."""

    id: str
    task: str
    payload: bytes
    #: The occurrence, epoch milliseconds: the ideal instant, not the moment of promotion.
    enqueued_at: int
    attempt: int = 0
    payload_ref: str = ""
    traceparent: str = ""
    tracestate: str = ""
