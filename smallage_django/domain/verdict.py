"""What follows from an attempt: success, another attempt at an instant, or an end with its reason.

The caller brings the clock and the dice: a decision is a value of its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from ..errors import InvalidPolicy
from . import retry
from .lifecycle import Ending, Reason, State
from .retry import Backoff
from .texts import clean

_REASON_LENGTH: Final = 500
#: A policy of user code may ask for any pause; further off, the run would only look forgotten.
_LONGEST: Final = timedelta(days=365)


@lru_cache(maxsize=256)
def stored_backoff(text: str) -> Backoff:
    """The preset of a row: the default where it names none, or where what it names was broken by hand."""
    try:
        return retry.parse(text)
    except InvalidPolicy:
        return retry.DEFAULT


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt that is over, with what the decision about another one needs."""

    ending: Ending
    attempt: int
    max_attempts: int
    backoff: Backoff = retry.DEFAULT
    #: What the task's own policy said; it wins over ``backoff``.
    retry_in: timedelta | None = None
    #: Why no other attempt is wanted, whatever the budget; empty where none was said.
    give_up: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the run goes after an attempt."""

    state: State
    due_at: datetime | None = None
    reason_code: str = ""
    reason: str = ""


def decide(ended: Ended, now: datetime, draw: float) -> Verdict:
    """What follows from an attempt: success, another attempt at an instant, or an end with its reason."""
    if ended.ending is Ending.SUCCEEDED:
        return Verdict(State.SUCCEEDED)
    if ended.ending is Ending.CANCELLED:
        return Verdict(
            State.CANCELLED, None, Reason.OPERATOR.value, clean(ended.error, _REASON_LENGTH)
        )
    reason = clean(
        f"attempt {ended.attempt} of {ended.max_attempts} {_VERBS[ended.ending]}: {ended.error}",
        _REASON_LENGTH,
    )
    if ended.give_up:
        return Verdict(State.FAILED, None, ended.give_up, reason)
    if ended.attempt >= ended.max_attempts:
        return Verdict(State.FAILED, None, _EXHAUSTED[ended.ending].value, reason)
    delay = ended.retry_in
    if delay is None:
        delay = ended.backoff.delay(ended.attempt, draw)
    return Verdict(State.RETRYING, now + min(max(delay, timedelta(0)), _LONGEST), "", reason)


_VERBS: Final = {
    Ending.FAILED: "failed",
    Ending.TIMED_OUT: "timed out",
    Ending.LOST: "was lost",
}
_EXHAUSTED: Final = {
    Ending.FAILED: Reason.ATTEMPTS_EXHAUSTED,
    Ending.TIMED_OUT: Reason.TIMED_OUT,
    Ending.LOST: Reason.WORKER_LOST,
}
