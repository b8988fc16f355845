"""What the leader does beside firing: hold SQL against Redis, mend what differs, tidy up.

Each step is bounded, idempotent and safe to stop half-way; the next round finds the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from .ports import Order, SchedulerBroker, SchedulerStore

logger = logging.getLogger(__name__)

#: Rows and entries of one page.
PAGE: Final = 500
#: How often the whole of it is done while nothing seems wrong.
EVERY: Final = timedelta(minutes=1)
#: A consumer that has asked for nothing for so long is gone.
IDLE_CONSUMER: Final = timedelta(minutes=10)


class Maintenance:
    """The leader's rounds. ``keep_lead`` raises ``LeaseLost`` where the caller leads no more."""

    def __init__(
        self,
        store: SchedulerStore,
        broker: SchedulerBroker,
        *,
        silent_after: timedelta,
    ) -> None:
        self._store = store
        self._broker = broker
        self._silent_after = silent_after

    def round(
        self,
        now: datetime,
        fence: int,
        hand_over: Callable[[Sequence[Order]], int],
        keep_lead: Callable[[], None],
    ) -> int:
        """Reconcile both ways, revive, cancel orphans, forget what is old; how many runs were handed over again."""
        handed = self.reconcile(now, fence, hand_over, keep_lead)
        self.delete_leftovers(keep_lead)
        self._store.revive_broken(now, PAGE)
        self._store.cancel_orphans(now, PAGE)
        self._broker.sweep_consumers(IDLE_CONSUMER)
        self._store.forget_old(now)
        return handed

    def reconcile(
        self,
        now: datetime,
        fence: int,
        hand_over: Callable[[Sequence[Order]], int],
        keep_lead: Callable[[], None],
    ) -> int:
        """Hand over again what SQL says is in a stream and is not; how many runs that were."""
        handed, after = 0, 0
        while page := self._store.presences(after, PAGE, now - self._silent_after):
            keep_lead()
            after = page[-1].run_id
            missing = self._broker.missing(page)
            if missing:
                handed += hand_over(self._store.reclaim_missing(missing, now, fence))
        if handed:
            logger.warning("reconciled: %d entries were gone from Redis and are back", handed)
        return handed

    def delete_leftovers(self, keep_lead: Callable[[], None]) -> int:
        """Delete entries whose run is over; one without a row is foreign, and left to the workers."""
        deleted = 0
        for stream in self._broker.streams():
            after = ""
            while page := self._broker.entries(stream, after, PAGE):
                keep_lead()
                after = page[-1][0]
                over = self._store.terminal_among([fire_id for _, fire_id in page])
                leftovers = [entry for entry, fire_id in page if fire_id in over]
                if leftovers:
                    deleted += self._broker.delete_entries(stream, leftovers)
        return deleted
