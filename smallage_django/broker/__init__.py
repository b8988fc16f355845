"""Redis as transport: keys, clients, lease, streams and scripts. Knows redis-py, and nothing of Django."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ..ports import Delivery
from .client import Client
from .keys import Keys
from .lease import Lease
from .promotion import Promotion
from .streams import Streams
from .wake import Waker

__all__ = ["RedisBroker", "SchedulerSide", "Times", "WorkerSide"]

#: A request that enqueues waits no longer than this for Redis, seconds: its row is safe without it.
PUBLISH_TIMEOUT_S: Final = 0.3
#: A loop waits longer, since a slow answer is no outage.
LOOP_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Times:
    """How long things live in Redis."""

    marker_ttl: timedelta = timedelta(days=7)
    alive_ttl: timedelta = timedelta(seconds=6)
    reclaim_grace: timedelta = timedelta(seconds=5)


class RedisBroker(Promotion):
    """One namespace on one server, as a process that enqueues uses it; loops take a side of their own."""

    def __init__(
        self, url: str, namespace: str, *, shards: int = 1, times: Times | None = None
    ) -> None:
        self._url = url
        self._names = Keys(namespace, shards)
        self._times = times or Times()
        super().__init__(Client(url, PUBLISH_TIMEOUT_S), self._names, self._times.marker_ttl)

    def wake_scheduler(self) -> None:
        """Make the leading scheduler look at the rows at once."""
        wake = self._names.wake
        self._client.pipeline([("LPUSH", wake, "1"), ("LTRIM", wake, 0, 3), ("EXPIRE", wake, 60)])

    def time(self) -> datetime:
        """Redis's clock, aware UTC."""
        seconds, microseconds = self._client.call("TIME")
        since = timedelta(seconds=int(seconds), microseconds=int(microseconds))
        return datetime(1970, 1, 1, tzinfo=UTC) + since

    def scheduler(self) -> SchedulerSide:
        """The side of a scheduler."""
        return SchedulerSide(Client(self._url, LOOP_TIMEOUT_S), self._names, self._times)

    def worker(self) -> WorkerSide:
        """The side of a worker."""
        return WorkerSide(Client(self._url, LOOP_TIMEOUT_S), self._names, self._times)


class SchedulerSide(Promotion, Lease):
    """``SchedulerBroker`` on Redis."""

    def __init__(self, client: Client, keys: Keys, times: Times) -> None:
        Promotion.__init__(self, client, keys, times.marker_ttl)
        self._waker = Waker(client, [keys.wake])
        self._standby = Waker(client, [keys.standby])

    def wait(self, seconds: float) -> bool:
        """Sleep as the leader; whether a new row ended it."""
        self._standby.withdraw()
        return self._waker.wait(seconds)

    def wait_for_lease(self, seconds: float) -> bool:
        """Sleep as a standby; whether the leader's hand-over ended it."""
        # A leader that was, and still listened as one, would take the wake-ups of the leader that is.
        self._waker.withdraw()
        return self._standby.wait(seconds)

    def interrupt(self) -> None:
        """End a wait at once, from a signal handler or another thread."""
        self._waker.interrupt()
        self._standby.interrupt()

    def close(self) -> None:
        """End the connections that wait; everything can be used again."""
        self._waker.close()
        self._standby.close()


class WorkerSide(Streams):
    """``WorkerBroker`` on Redis, for one consumer at a time."""

    def __init__(self, client: Client, keys: Keys, times: Times) -> None:
        super().__init__(client, keys, times.alive_ttl, times.reclaim_grace)
        self._wakers: dict[tuple[str, ...], Waker] = {}

    def take(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Read at most ``free`` new entries and mark them alive. See the port."""
        taken = super().take(queues, consumer, free)
        if len(taken) >= free:
            # With no room left, the next wake-up is for a worker that has some.
            for waker in self._wakers.values():
                waker.withdraw()
        return taken

    def wait(self, queues: Sequence[str], seconds: float) -> bool:
        """Sleep until one of the queues may have work; whether it has."""
        names = tuple(queues)
        waker = self._wakers.get(names)
        if waker is None:
            lists = [self._keys.queue_wake(queue) for queue in names]
            waker = self._wakers[names] = Waker(self._client, lists)
        return waker.wait(seconds)

    def interrupt(self) -> None:
        """End a wait at once, from a signal handler or another thread."""
        for waker in list(self._wakers.values()):
            waker.interrupt()

    def close(self) -> None:
        """End the connections that wait; everything can be used again."""
        for waker in self._wakers.values():
            waker.close()
