"""What follows from an attempt, and how patient a loop is. The arithmetic of waits has its tests in test_retry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from smallage_django.domain.lifecycle import REASONS, Ending, Reason, State, may
from smallage_django.domain.retry import DEFAULT, Backoff
from smallage_django.domain.texts import clean, shorten
from smallage_django.domain.trouble import Trouble
from smallage_django.domain.verdict import Ended, decide, stored_backoff

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("ended", "state", "reason_code"),
    [
        (Ended(Ending.SUCCEEDED, 1, 3), State.SUCCEEDED, ""),
        (Ended(Ending.SUCCEEDED, 3, 3), State.SUCCEEDED, ""),
        (Ended(Ending.FAILED, 1, 3), State.RETRYING, ""),
        (Ended(Ending.FAILED, 2, 3), State.RETRYING, ""),
        (Ended(Ending.FAILED, 3, 3), State.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (Ended(Ending.FAILED, 4, 3), State.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (Ended(Ending.FAILED, 1, 1), State.FAILED, Reason.ATTEMPTS_EXHAUSTED),
        (Ended(Ending.TIMED_OUT, 1, 2), State.RETRYING, ""),
        (Ended(Ending.TIMED_OUT, 2, 2), State.FAILED, Reason.TIMED_OUT),
        (Ended(Ending.LOST, 2, 2), State.FAILED, Reason.WORKER_LOST),
        (Ended(Ending.FAILED, 1, 3, give_up="not_retryable"), State.FAILED, Reason.NOT_RETRYABLE),
        (Ended(Ending.FAILED, 1, 3, give_up="unknown_task"), State.FAILED, Reason.UNKNOWN_TASK),
        (Ended(Ending.CANCELLED, 1, 3), State.CANCELLED, Reason.OPERATOR),
    ],
)
def test_what_follows_from_an_attempt(ended: Ended, state: State, reason_code: str) -> None:
    verdict = decide(ended, NOW, 0.5)

    assert (verdict.state, verdict.reason_code) == (state, reason_code)
    assert (verdict.due_at is not None) is (state is State.RETRYING)
    assert may(State.RUNNING, verdict.state)
    assert not reason_code or Reason(reason_code) in REASONS[state]


def test_a_retry_is_due_after_its_backoff() -> None:
    """R081: 2 s, then 4 s, up to a fifth sooner."""
    waits = Backoff("exponential", 2.0)

    first = decide(Ended(Ending.FAILED, 1, 3, waits), NOW, 0.0)
    second = decide(Ended(Ending.FAILED, 2, 3, waits), NOW, 1.0)

    assert first.due_at == NOW + timedelta(seconds=2)
    assert second.due_at == NOW + timedelta(seconds=4 * 0.8)


def test_the_tasks_own_wish_wins_over_the_preset_within_reason() -> None:
    def due(wish: timedelta) -> datetime | None:
        return decide(Ended(Ending.FAILED, 1, 3, retry_in=wish), NOW, 0.5).due_at

    assert due(MINUTE) == NOW + MINUTE
    assert due(-MINUTE) == NOW
    assert due(timedelta.max) == NOW + timedelta(days=365)


def test_the_reason_tells_the_attempt_and_the_error() -> None:
    verdict = decide(Ended(Ending.FAILED, 2, 3, error="Boom: no\0 way"), NOW, 0.0)

    assert verdict.reason == "attempt 2 of 3 failed: Boom: no way"
    long = decide(Ended(Ending.FAILED, 3, 3, error="x" * 10_000), NOW, 0.0)
    assert len(long.reason) == 500


def test_a_preset_broken_by_hand_counts_as_the_default() -> None:
    assert stored_backoff("") == stored_backoff("what?") == DEFAULT
    assert stored_backoff("constant(30)").delay(7, 0.0) == timedelta(seconds=30)


def test_an_outage_is_told_at_its_start_now_and_then_and_at_its_end() -> None:
    trouble = Trouble(summary_s=30)

    assert trouble.recovered(0.0) is None
    told = [second for second in range(100) if trouble.failed(float(second), 0.0)[1]]

    assert told == [0, 30, 60, 90]
    assert trouble.lasted(99.0) == 99.0
    assert trouble.recovered(100.0) == 100.0
    assert trouble.failed(200.0, 0.0) == (0.1, True)


def test_pauses_grow_to_a_limit() -> None:
    trouble = Trouble()

    pauses = [trouble.failed(0.0, 0.0)[0] for _ in range(40)]

    assert pauses[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert max(pauses) == 2.0
    assert trouble.failed(0.0, 1.0)[0] == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("text", "limit", "cleaned"),
    [
        ("plain", 10, "plain"),
        ("nul\0 and \ud800", 20, "nul and ?"),
        ("é€😀", 3, "é€😀"),
        ("0123456789" * 3, 20, "012345678901 … [cut]"),
        ("abc", 2, " …"),
    ],
)
def test_text_is_made_fit_for_a_column(text: str, limit: int, cleaned: str) -> None:
    assert clean(text, limit) == cleaned
    assert len(cleaned) <= limit


def test_of_a_long_traceback_both_ends_are_kept() -> None:
    text = shorten("first\n" + "x" * 1000 + "\nlast", 100)

    assert text.startswith("first")
    assert text.endswith("last")
    assert len(text) <= 100
