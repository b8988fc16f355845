"""The wire format: what is written can be read, and what is no envelope is refused by the name of its bad field."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smallage_django.domain.envelope import Envelope, decode, encode
from smallage_django.errors import MalformedEntry

FIELDS = {
    b"v": b"1",
    b"id": b"sched:00:1790000000000",
    b"task": b"app.tasks.report",
    b"payload": b'{"month": "2026-11"}',
    b"enqueued_at": b"1790000000000",
    b"attempt": b"0",
}


def on_the_wire(envelope: Envelope) -> dict[bytes, bytes]:
    """As Redis hands it back: bytes to bytes."""
    flat = [p if isinstance(p, bytes) else str(p).encode() for p in encode(envelope)]
    return dict(zip(flat[::2], flat[1::2], strict=True))


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
envelopes = st.builds(
    Envelope,
    id=text,
    task=text,
    payload=st.binary(min_size=1),
    enqueued_at=st.integers(-62_135_596_800_000, 253_402_300_799_999),
    attempt=st.integers(0, 2**31 - 1),
    payload_ref=st.just("") | text,
    traceparent=st.just("") | text,
    tracestate=st.just("") | text,
)


@given(envelopes)
def test_what_was_written_is_read(envelope: Envelope) -> None:
    """R064: payloads are opaque."""
    assert decode(on_the_wire(envelope)) == envelope


def test_the_fields_are_those_of_the_contract() -> None:
    envelope = decode(FIELDS)

    assert on_the_wire(envelope) == FIELDS
    assert list(on_the_wire(envelope)) == list(FIELDS)
    assert envelope == Envelope(
        "sched:00:1790000000000", "app.tasks.report", b'{"month": "2026-11"}', 1790000000000, 0
    )


def test_optional_fields_are_written_only_where_they_say_something() -> None:
    full = replace(decode(FIELDS), payload_ref="file:///p", traceparent="00-1", tracestate="a=b")

    added = {k: v for k, v in on_the_wire(full).items() if k not in FIELDS}
    assert added == {
        b"payload_ref": b"file:///p",
        b"traceparent": b"00-1",
        b"tracestate": b"a=b",
    }


def test_fields_it_does_not_know_are_ignored() -> None:
    """R087."""
    strange = {b"dedup": b"\xff", b"result_ttl_ms": b"-5", b"history": b"", b"\xff\xfe": b"\0"}

    assert decode({**FIELDS, **strange}) == decode(FIELDS)


@pytest.mark.parametrize("instant", [-1, -62_135_596_800_000])
def test_an_instant_before_1970_is_read_as_it_was_written(instant: int) -> None:
    envelope = replace(decode(FIELDS), enqueued_at=instant)

    assert decode(on_the_wire(envelope)) == envelope


def test_an_empty_payload_needs_a_file() -> None:
    by_reference = {**FIELDS, b"payload": b"", b"payload_ref": b"file:///big"}

    assert decode(by_reference).payload == b""
    with pytest.raises(MalformedEntry) as refusal:
        decode({**FIELDS, b"payload": b""})
    assert refusal.value.field == "payload"


@pytest.mark.parametrize("name", ["v", "id", "task", "payload", "enqueued_at", "attempt"])
def test_a_missing_field_is_named(name: str) -> None:
    """R086."""
    with pytest.raises(MalformedEntry, match=name) as refusal:
        decode({k: v for k, v in FIELDS.items() if k != name.encode()})

    assert refusal.value.field == name


@pytest.mark.parametrize("version", [b"2", b"", b"01", b"1 ", b"one", b"\xff"])
def test_another_version_is_refused(version: bytes) -> None:
    """R086: only version 1 is known."""
    with pytest.raises(MalformedEntry) as refusal:
        decode({**FIELDS, b"v": version})

    assert refusal.value.field == "v"


@pytest.mark.parametrize("name", ["id", "task", "payload_ref", "traceparent", "tracestate"])
@pytest.mark.parametrize("value", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"a\0b"])
def test_text_that_no_column_could_hold_is_refused(name: str, value: bytes) -> None:
    """R086: bad UTF-8, halves of surrogate pairs, NUL."""
    with pytest.raises(MalformedEntry) as refusal:
        decode({**FIELDS, name.encode(): value})

    assert refusal.value.field == name


@pytest.mark.parametrize("name", ["id", "task"])
def test_nothing_is_nobodys_name(name: str) -> None:
    with pytest.raises(MalformedEntry) as refusal:
        decode({**FIELDS, name.encode(): b""})

    assert refusal.value.field == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attempt", b""),
        ("attempt", b"-1"),
        ("attempt", b"+1"),
        ("attempt", b"1.0"),
        ("attempt", b"1_0"),
        ("attempt", b" 1"),
        ("attempt", b"1e3"),
        ("attempt", b"0x1"),
        ("attempt", "٣".encode()),
        ("attempt", b"2147483648"),
        ("enqueued_at", b"soon"),
        ("enqueued_at", b"253402300800000"),
        ("enqueued_at", b"-62135596800001"),
        ("enqueued_at", b"--1"),
        ("enqueued_at", b"-"),
        ("enqueued_at", b"9" * 5000),
        ("enqueued_at", b"\xff"),
    ],
)
def test_a_bad_number_is_refused(name: str, value: bytes) -> None:
    """R086: every reader can make a date and a counter of what is let through."""
    with pytest.raises(MalformedEntry) as refusal:
        decode({**FIELDS, name.encode(): value})

    assert refusal.value.field == name


@given(st.dictionaries(st.sampled_from([*FIELDS, b"payload_ref"]), st.binary(max_size=30)))
def test_whatever_comes_is_read_or_refused(fields: dict[bytes, bytes]) -> None:
    """No other error may reach a worker's loop."""
    read, refused = None, ""
    try:
        read = decode({**FIELDS, **fields})
    except MalformedEntry as refusal:
        refused = refusal.field

    assert (read is None) is (refused in {name.decode() for name in [*FIELDS, b"payload_ref"]})
