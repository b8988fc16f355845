"""How loud and how patient a loop is about a dependency that is away."""

from __future__ import annotations

from typing import Final

#: The part of a pause that the draw may take away, so that processes do not all come back at once.
_JITTER: Final = 0.2


class Trouble:
    """The state of one dependency as a loop sees it: how long to wait, and when to say something.

    The first failure is worth its full text, later ones a summary every ``summary_s`` seconds, the end one line.
    Times are monotonic seconds.
    """

    def __init__(self, first_s: float = 0.1, most_s: float = 2.0, summary_s: float = 30.0) -> None:
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
        return pause * (1 - _JITTER * draw), say

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
