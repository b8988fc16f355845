"""Backoff: waits that grow, are bounded, and read back from their text."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smallage_django.domain import retry
from smallage_django.domain.retry import Backoff
from smallage_django.errors import InvalidPolicy

KINDS = st.sampled_from(["constant", "linear", "exponential"])
SECONDS = st.integers(0, 600_000).map(lambda milli: milli / 1000)


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        # 1 s x 2^n, up to five minutes
        (retry.DEFAULT, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        (Backoff("exponential", 2, 10), [2, 4, 8, 10, 10]),
        (Backoff("linear", 10, 25), [10, 20, 25, 25]),
        (Backoff("constant", 30), [30, 30, 30]),
        (Backoff("constant", 600, 600), [600, 600]),
        (Backoff("exponential", 0), [0, 0, 0]),
    ],
)
def test_waits_grow_as_the_kind_says(backoff: Backoff, seconds: list[float]) -> None:
    waits = [backoff.delay(failures, 0.0) for failures in range(1, len(seconds) + 1)]

    assert waits == [timedelta(seconds=one) for one in seconds]


def test_the_draw_takes_away_up_to_a_fifth() -> None:
    assert retry.DEFAULT.delay(4, 0.0) == timedelta(seconds=8)
    assert retry.DEFAULT.delay(4, 0.5) == timedelta(seconds=7.2)
    assert retry.DEFAULT.delay(4, 1.0) == timedelta(seconds=6.4)


@given(KINDS, SECONDS, SECONDS, st.integers(1, 10_000), st.floats(0, 1))
def test_no_wait_is_negative_or_above_the_cap(
    kind: str, base: float, cap: float, failures: int, draw: float
) -> None:
    wait = Backoff(kind, base, cap).delay(failures, draw)

    assert timedelta(0) <= wait <= timedelta(seconds=cap)


@given(KINDS, SECONDS, SECONDS, st.integers(1, 1000))
def test_later_waits_are_never_shorter(kind: str, base: float, cap: float, failures: int) -> None:
    backoff = Backoff(kind, base, cap)

    assert backoff.delay(failures, 0.0) <= backoff.delay(failures + 1, 0.0)


@given(KINDS, SECONDS, SECONDS, st.integers(0, 100).map(lambda hundredth: hundredth / 100))
def test_the_text_reads_back(kind: str, base: float, cap: float, jitter: float) -> None:
    backoff = Backoff(kind, base, cap, jitter)

    again = retry.parse(str(backoff))

    assert again == backoff
    assert len(str(backoff)) <= 64


def test_no_text_is_the_default() -> None:
    assert retry.parse("") == retry.DEFAULT
    assert str(retry.DEFAULT) == "exponential(1,cap=300)"
    assert retry.parse("exponential(1)") == retry.DEFAULT
    assert retry.parse("linear( 5, cap=60, jitter=0 )") == Backoff("linear", 5, 60, 0)


@pytest.mark.parametrize(
    "text",
    [
        "often",
        "exponential",
        "exponential()",
        "exponential(-1)",
        "exponential(1e9)",
        "exponential(1,cap=)",
        "exponential(1,jitter=2)",
        "exponential(99999999)",
        "cubic(1)",
        "constant(1);constant(2)",
        "constant(१)",
        "constant(" + "9" * 10_000 + ")",
    ],
)
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        retry.parse(text)

    assert caught.value.field == "backoff"
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "values",
    [
        ("cubic", 1, 1, 0),
        ("linear", -1, 1, 0),
        ("linear", 1, float("inf"), 0),
        ("linear", float("nan"), 1, 0),
        ("linear", 1, 1, 1.1),
        ("linear", True, 1, 0),
        ("linear", "1", 1, 0),
    ],
)
def test_numbers_out_of_range_are_refused(values: Any) -> None:
    with pytest.raises(InvalidPolicy):
        Backoff(*values)
