"""The wire format, version 1 of smallage's envelope: stream fields to a value and back, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import MalformedEntry

VERSION: Final = b"1"
#: The first and the last millisecond that a date can say.
_FIRST_INSTANT_MS: Final = -62_135_596_800_000
_LAST_INSTANT_MS: Final = 253_402_300_799_999
_MOST_ATTEMPTS: Final = 2**31 - 1


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


def encode(envelope: Envelope) -> list[str | bytes | int]:
    """The fields and values of an entry, one after the other."""
    fields: list[str | bytes | int] = [
        "v",
        VERSION,
        "id",
        envelope.id,
        "task",
        envelope.task,
        "payload",
        envelope.payload,
        "enqueued_at",
        envelope.enqueued_at,
        "attempt",
        envelope.attempt,
    ]
    for name, value in (
        ("payload_ref", envelope.payload_ref),
        ("traceparent", envelope.traceparent),
        ("tracestate", envelope.tracestate),
    ):
        if value:
            fields += (name, value)
    return fields


def decode(fields: Mapping[bytes, bytes]) -> Envelope:
    """The envelope of an entry; fields it does not know are ignored. Raises ``MalformedEntry`` naming the field."""
    version = fields.get(b"v")
    if version != VERSION:
        raise MalformedEntry(f"v is {version!r}; only version 1 is known", field="v")
    payload = fields.get(b"payload")
    if payload is None:
        raise MalformedEntry("payload is missing", field="payload")
    if not payload and not fields.get(b"payload_ref"):
        raise MalformedEntry("payload is empty, and payload_ref names no file", field="payload")
    envelope = Envelope(
        id=_text(fields, "id"),
        task=_text(fields, "task"),
        payload=payload,
        enqueued_at=_number(fields, "enqueued_at", _FIRST_INSTANT_MS, _LAST_INSTANT_MS),
        attempt=_number(fields, "attempt", 0, _MOST_ATTEMPTS),
        payload_ref=_text(fields, "payload_ref", optional=True),
        traceparent=_text(fields, "traceparent", optional=True),
        tracestate=_text(fields, "tracestate", optional=True),
    )
    if not envelope.id or not envelope.task:
        name = "task" if envelope.id else "id"
        raise MalformedEntry(f"{name} is empty", field=name)
    return envelope


def _text(fields: Mapping[bytes, bytes], name: str, *, optional: bool = False) -> str:
    value = fields.get(name.encode())
    if value is None:
        if optional:
            return ""
        raise MalformedEntry(f"{name} is missing", field=name)
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedEntry(f"{name} is no UTF-8: {value[:40]!r}", field=name) from error
    if "\0" in text:
        raise MalformedEntry(f"{name} holds a NUL: {text[:40]!r}", field=name)
    return text


def _number(fields: Mapping[bytes, bytes], name: str, least: int, most: int) -> int:
    text = _text(fields, name)
    # Decimal digits alone, after a minus: int() would also take spaces, pluses, underscores and other scripts' digits.
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 18
    if not plain or not least <= int(text) <= most:
        raise MalformedEntry(
            f"{name} is {text[:40]!r}; it must be a whole number from {least} to {most}", field=name
        )
    return int(text)
