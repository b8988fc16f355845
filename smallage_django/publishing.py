"""After the commit: hand new runs to their streams and wake the scheduler, without ever disturbing the request.

A publication that fails is logged once and left to the scheduler, which finds the claimed row and adds the entry; the
marker in Redis makes that safe even where the first attempt had arrived.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.signals import setting_changed
from django.db import connections, transaction
from django.dispatch import receiver

from .conf import config
from .errors import BrokerUnavailable
from .ports import Order

logger = logging.getLogger("smallage_django.publishing")

#: No request tries again for so long after a failure, seconds.
BREAK_S: Final = 5.0
#: A scheduler may have been started with a longer pause than the settings'; rows beyond are seen in time anyway.
SOON: Final = timedelta(minutes=1)


class Breaker:
    """Keeps a process from waiting for a broker that was away a moment ago. Safe for threads."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._until: float | None = None
        self._away = False

    def allows(self) -> bool:
        """Whether to try."""
        with self._lock:
            return self._until is None or self._monotonic() >= self._until

    def trip(self, error: Exception) -> None:
        """Note a failure; logs the first of a row."""
        with self._lock:
            self._until = self._monotonic() + BREAK_S
            first, self._away = not self._away, True
        if first:
            logger.warning(
                "Redis does not answer; the rows are safe and the scheduler will hand them over: %s",
                error,
            )

    def close(self) -> None:
        """Note a success; logs the end of an outage."""
        if not self._away:
            return
        with self._lock:
            self._until, again, self._away = None, self._away, False
        if again:
            logger.info("Redis answers again")


breaker = Breaker()


def publish_on_commit(orders: Sequence[Order], alias: str) -> None:
    """Publish runs once the transaction that inserted them on ``alias`` is committed."""
    # No partial: Django 5.2 asks a failing hook for its name, which a partial does not have.
    _on_commit(lambda: publish(orders), alias)


def wake_on_commit(run_at: datetime, now: datetime, alias: str) -> None:
    """Wake the scheduler for a row that is due before it would look by itself."""
    if run_at - now <= max(SOON, config().interval):
        wake_after_commit(alias)


def wake_after_commit(alias: str) -> None:
    """Make the scheduler look at the rows once the transaction on ``alias`` is committed."""
    _on_commit(wake, alias)


def publish(orders: Sequence[Order]) -> None:
    """Hand runs to their streams under fence 0, which leaves the rows as they are; ``begin`` finds them claimed."""

    def hand_over() -> None:
        for receipt in _broker().promote(0, orders):
            if receipt.error:
                logger.error("%s could not be published: %s", receipt.fire_id, receipt.error)

    _attempt(hand_over)


def wake() -> None:
    """Make the leading scheduler look at the rows at once."""
    _attempt(lambda: _broker().wake_scheduler())


def _broker() -> Any:
    from . import wiring

    return wiring.broker()


def _attempt(step: Callable[[], None]) -> None:
    if not breaker.allows():
        return
    try:
        step()
    except BrokerUnavailable as error:
        breaker.trip(error)
    else:
        breaker.close()


def _on_commit(hook: Callable[[], None], alias: str) -> None:
    connection = connections[alias]
    if not connection.in_atomic_block and not connection.get_autocommit():
        # Transactions managed by hand have no commit hook; the scheduler recovers the row.
        return
    transaction.on_commit(hook, using=alias, robust=True)


@receiver(setting_changed, dispatch_uid="smallage_django.publishing")
def _reset(*, setting: str, **_: Any) -> None:
    if setting == "SMALLAGE":
        breaker.close()
