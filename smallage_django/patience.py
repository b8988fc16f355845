"""Calls of a loop into a dependency that may be away: pauses, and a log that tells an outage in three lines."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from .domain.trouble import Trouble
from .errors import Unavailable

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Patience:
    """Calls into one dependency: pauses and logs once per outage, not once per failure."""

    def __init__(
        self, what: str, pause: Callable[[float], object], *, give_up_after_s: float = math.inf
    ) -> None:
        self._what = what
        self._pause = pause
        self._give_up_after_s = give_up_after_s
        self._trouble = Trouble()

    def attempt(self, call: Callable[[], T]) -> T | None:
        """The answer of ``call``; None, after a pause, where its dependency is away.

        Raises ``Unavailable`` once it has been away for longer than this caller waits.
        """
        try:
            answer = call()
        except Unavailable as error:
            pause, say = self._trouble.failed(time.monotonic(), random.random())
            if say:
                self._say(error)
            if self._trouble.lasted(time.monotonic()) > self._give_up_after_s:
                raise
            self._pause(pause)
            return None
        lasted = self._trouble.recovered(time.monotonic())
        if lasted is not None:
            logger.info("%s: recovered after %.1f s", self._what, lasted)
        return answer

    def _say(self, error: Unavailable) -> None:
        if self._trouble.failures == 1:
            logger.warning("%s: %s; trying again", self._what, error)
        else:
            lasted = self._trouble.lasted(time.monotonic())
            count = self._trouble.failures
            logger.warning("%s: away for %.0f s (%d tries): %s", self._what, lasted, count, error)
