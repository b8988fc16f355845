"""The wire format, version 1 of smallage's envelope: stream fields to a value and back, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import MalformedEntry

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


def decode(fields: Mapping[bytes, bytes]) -> Envelope:
    """The envelope in a stream entry's fields; unknown fields are ignored. Raises ``MalformedEntry``."""
    if fields.get(b"v") != VERSION:
        raise MalformedEntry(f"version {fields.get(b'v')!r} is not {VERSION!r}", field="v")
    return Envelope(
        id=_text(fields, "id", needed=True),
        task=_text(fields, "task", needed=True),
        payload=bytes(fields.get(b"payload", b"")),
        enqueued_at=_number(fields, "enqueued_at"),
        attempt=_number(fields, "attempt"),
        payload_ref=_text(fields, "payload_ref"),
        traceparent=_text(fields, "traceparent"),
        tracestate=_text(fields, "tracestate"),
    )


def _text(fields: Mapping[bytes, bytes], name: str, *, needed: bool = False) -> str:
    raw = fields.get(name.encode(), b"")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedEntry(f"{name} is no UTF-8: {raw[:64]!r}", field=name) from None
    if "\0" in text or (needed and not text):
        raise MalformedEntry(f"{name} is {text[:64]!r}", field=name)
    return text


def _number(fields: Mapping[bytes, bytes], name: str) -> int:
    raw = fields.get(name.encode(), b"")
    if not raw.isdigit() or len(raw) > 15:
        raise MalformedEntry(f"{name} is {raw[:64]!r}; it must be a whole number", field=name)
    return int(raw)
