"""Waiting for something to become true, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T],
    timeout: float = 10.0,
    *,
    interval: float = 0.01,
    message: str | Callable[[], str] = "",
) -> T:
    """Ask until the answer is truthy, and return it. Times are seconds.

    Raises ``AssertionError`` at the deadline, with the last answer and with ``message`` (a callable is asked only
    then, which suits logs of child processes).
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            told = message() if callable(message) else message
            raise AssertionError(f"not within {timeout} s; last answer {answer!r}. {told}".strip())
        time.sleep(interval)


def stays(
    predicate: Callable[[], object], duration: float = 0.5, *, interval: float = 0.01
) -> None:
    """Hold that the answer stays truthy for so many seconds: for what must *not* happen.

    Raises ``AssertionError`` as soon as it is not.
    """
    deadline = time.monotonic() + duration
    while time.monotonic() < deadline:
        answer = predicate()
        if not answer:
            raise AssertionError(f"did not stay true; answer {answer!r}")
        time.sleep(interval)
