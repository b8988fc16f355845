"""A leader's term: how long it may trust its lease, by its own monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

#: The part of the lease that is not trusted: the reply's way back, a slow clock, a pause between check and act.
MARGIN: Final = 0.2


@dataclass(frozen=True, slots=True)
class Trust:
    """Proof of the lease. Monotonic seconds; measured from *before* the request that obtained it was sent.

    Without such proof nothing is promoted: a leader that cannot tell assumes that it lost.
    """

    epoch: int
    until: float

    @classmethod
    def granted(cls, epoch: int, asked_at: float, ttl: timedelta) -> Trust:
        """The trust that a lease of ``ttl``, asked for at ``asked_at``, is worth."""
        return cls(epoch, asked_at + ttl.total_seconds() * (1 - MARGIN))

    def holds(self, monotonic: float) -> bool:
        """Whether the lease may still be acted on."""
        return monotonic < self.until
