"""Retries: how long to wait, whether to try again, and how loud to be about a dependency that is away.

The caller brings the clock and the dice: every function here is a value of its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from ..errors import InvalidPolicy
from .lifecycle import Ending, Reason, State
from .texts import clean

#: The part of a growing delay that the draw may take away.
JITTER: Final = 0.2
#: Beyond this the power would outgrow a float; every cap has long been reached.
_MOST_DOUBLINGS: Final = 60
_REASON_LENGTH: Final = 500
_LONGEST: Final = timedelta(days=365)


class Shape(StrEnum):
    """How the delay grows from attempt to attempt."""

    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Backoff:
    """A retry preset, stored in rows as text (``exponential:1:300``). Raises :class:`InvalidPolicy`."""

    shape: Shape
    base: timedelta
    cap: timedelta

    def __post_init__(self) -> None:
        for name, value in (("delay", self.base), ("cap", self.cap)):
            if not timedelta(0) <= value <= _LONGEST:
                raise InvalidPolicy(
                    f"the backoff's {name} is {value}; it must be between 0 s and 365 days",
                    field="backoff",
                )

    def delay(self, attempt: int, draw: float) -> timedelta:
        """The pause after the ``attempt``-th attempt (from 1). ``draw`` is in [0, 1).

        A growing delay loses up to a fifth to the draw, so that runs that failed together do not return together;
        it is never longer than the cap.
        """
        if self.shape is Shape.FIXED:
            return min(self.base, self.cap)
        if self.shape is Shape.LINEAR:
            factor = float(attempt)
        else:
            factor = 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)
        seconds = min(self.base.total_seconds() * factor, self.cap.total_seconds())
        return timedelta(seconds=seconds * (1 - JITTER * draw))

    def to_text(self) -> str:
        """The stored form."""
        if self.shape is Shape.FIXED:
            return f"{self.shape}:{_seconds(self.base)}"
        return f"{self.shape}:{_seconds(self.base)}:{_seconds(self.cap)}"

    @classmethod
    def from_text(cls, text: str) -> Backoff:
        """The inverse of :meth:`to_text`. Raises :class:`InvalidPolicy` for anything else."""
        shape, *numbers = text.split(":")
        try:
            seconds = [timedelta(seconds=float(number)) for number in numbers]
            if shape == Shape.FIXED and len(seconds) == 1:
                return fixed(seconds[0])
            if shape in (Shape.LINEAR, Shape.EXPONENTIAL) and len(seconds) in (1, 2):
                return cls(Shape(shape), seconds[0], seconds[1] if len(seconds) > 1 else CAP)
        except (ValueError, OverflowError) as error:
            raise InvalidPolicy(f"backoff {text!r}: {error}", field="backoff") from error
        raise InvalidPolicy(
            f"backoff {text!r} is none of fixed:<s>, linear:<s>:<cap s>, exponential:<s>:<cap s>",
            field="backoff",
        )


CAP: Final = timedelta(minutes=5)


def fixed(delay: float | timedelta) -> Backoff:
    """The same pause (seconds or timedelta) each time."""
    length = _length(delay)
    return Backoff(Shape.FIXED, length, length)


def linear(step: float | timedelta, cap: float | timedelta = CAP) -> Backoff:
    """``step`` times the number of attempts, at most ``cap``."""
    return Backoff(Shape.LINEAR, _length(step), _length(cap))


def exponential(base: float | timedelta = 1, cap: float | timedelta = CAP) -> Backoff:
    """``base``, then twice as long each time, at most ``cap``."""
    return Backoff(Shape.EXPONENTIAL, _length(base), _length(cap))


DEFAULT: Final = exponential()


@lru_cache(maxsize=256)
def stored(text: str) -> Backoff:
    """The preset of a row: the default where it names none, or where what it names was broken by hand."""
    if not text:
        return DEFAULT
    try:
        return Backoff.from_text(text)
    except InvalidPolicy:
        return DEFAULT


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt that is over, with what the decision about another one needs."""

    ending: Ending
    attempt: int
    max_attempts: int
    backoff: Backoff = DEFAULT
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
        return Verdict(State.CANCELLED, None, Reason.OPERATOR.value, clean(ended.error, _REASON_LENGTH))
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


class Trouble:
    """The state of one dependency as a loop sees it: how long to wait, and when to say something.

    The first failure is worth its full text, later ones a summary every ``summary_s`` seconds, the end one line.
    Times are monotonic seconds.
    """

    def __init__(
        self, first_s: float = 0.1, most_s: float = 2.0, summary_s: float = 30.0
    ) -> None:
        self.failures = 0
        self._first_s = first_s
        self._most_s = most_s
        self._summary_s = summary_s
        self._since = 0.0
        self._said_at = 0.0

    def failed(self, at: float, draw: float) -> tuple[float, bool]:
        """Note a failure; how many seconds to wait before the next try, and whether to log this one."""
        self.failures += 1
        if self.failures == 1:
            self._since = at
        say = self.failures == 1 or at - self._said_at >= self._summary_s
        if say:
            self._said_at = at
        pause = min(self._first_s * 2.0 ** min(self.failures - 1, 10), self._most_s)
        return pause * (1 - JITTER * draw), say

    def lasted(self, at: float) -> float:
        """For how many seconds it has been away."""
        return at - self._since if self.failures else 0.0

    def recovered(self, at: float) -> float | None:
        """Note a success; for how many seconds it had been away, None where nothing was wrong."""
        if not self.failures:
            return None
        lasted = self.lasted(at)
        self.failures = 0
        return lasted


def _length(value: float | timedelta) -> timedelta:
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        raise InvalidPolicy(f"the backoff has {value!r}: {error}", field="backoff") from error


def _seconds(value: timedelta) -> str:
    seconds = value.total_seconds()
    return str(int(seconds)) if seconds.is_integer() else repr(seconds)
