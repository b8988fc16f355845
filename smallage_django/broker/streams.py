"""Streams as a worker reads them: take, keep alive, acknowledge, hand back, reclaim, bury."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from ..ports import Delivery
from .client import Client, Script, script
from .keys import Keys, checked
from .promotion import streams_of

logger = logging.getLogger(__name__)

#: While reads come back full, every so many of them begins with the lowest priority: nothing starves for ever.
LOW_FIRST_EVERY: Final = 16
#: Pending entries that reclaim looks at in one go.
PAGE: Final = 100
#: Entries that one script call settles.
MOST_SETTLED: Final = 1000
_HANDED_BACK_MS: Final = 86_400_000


class Streams:
    """The consumer's side of the streams, for one consumer: the one that ``take`` and ``reclaim`` name."""

    def __init__(
        self, client: Client, keys: Keys, alive_ttl: timedelta, reclaim_grace: timedelta
    ) -> None:
        self._client = client
        self._keys = keys
        self._alive_ms = alive_ttl // timedelta(milliseconds=1)
        self._grace_ms = reclaim_grace // timedelta(milliseconds=1)
        self._turn = 0
        self._full_reads = 0
        self._consumer = ""
        self._told: set[tuple[bytes, bytes]] = set()
        #: Liveness keys of what was read before the first reclaim, which asks for all else under our name; then None.
        self._read_before: set[str] | None = set()
        self._reading = threading.Lock()

    def take(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Read at most ``free`` new entries and mark them alive. See the port."""
        if free < 1 or not queues:
            return []
        names = [checked("queue", queue) for queue in queues]
        with self._reading:
            self._consumer = consumer
            self._turn += 1
            low_first = self._full_reads % LOW_FIRST_EVERY == LOW_FIRST_EVERY - 1
            rows, failures = self._client.run(
                script("take"),
                [self._keys.all_streams, *(self._keys.priorities(queue) for queue in names)],
                [
                    self._keys.prefix,
                    self._keys.shards,
                    consumer,
                    free,
                    self._alive_ms,
                    int(low_first),
                    self._turn,
                    *names,
                ],
            )
            taken = [_delivery(row) for row in rows]
            self._full_reads = self._full_reads + 1 if len(taken) >= free else 0
            if self._read_before is not None:
                self._read_before.update(map(self._alive_of, taken))
        for stream, error in failures:
            self._tell(stream, error)
        return taken

    def reclaim(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Take over at most ``free`` entries whose owner went silent. See the port."""
        if free < 1 or not queues:
            return []
        places = streams_of(self._client, self._keys, queues)
        with self._reading:
            self._consumer = consumer
            in_hand, own = self._read_before, self._read_before is not None
            rows = self._client.run(
                script("reclaim"),
                [stream for _, _, stream in places],
                [
                    self._keys.prefix,
                    consumer,
                    free,
                    self._alive_ms,
                    self._grace_ms,
                    PAGE,
                    int(own),
                    *(in_hand or ()),
                ],
            )
            found = [_delivery(row) for row in rows]
            if in_hand is not None:
                # With more of our own left than there was room for, the next call asks again.
                in_hand.update(map(self._alive_of, found))
                if len(found) < free:
                    self._read_before = None
        return found

    def refresh(self, deliveries: Sequence[Delivery]) -> None:
        """Keep the liveness keys of entries in hand; one that was acknowledged stays forgotten."""
        self._settle(script("refresh"), deliveries, self._consumer, self._alive_ms)

    def let_go(self, deliveries: Sequence[Delivery]) -> None:
        """Hand entries back so that another worker may reclaim them at once."""
        self._settle(script("let_go"), deliveries, self._consumer, _HANDED_BACK_MS)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge, delete and forget entries, atomically."""
        self._settle(script("ack"), deliveries)

    def bury(self, delivery: Delivery, reason: str, detail: str) -> None:
        """Copy an entry that can never be handled to the dead letters, then acknowledge it."""
        kept: list[Any] = [part for pair in delivery.fields.items() for part in pair]
        kept += ["dlq_reason", reason, "dlq_detail", detail, "dlq_source", delivery.stream]
        kept += ["dlq_deliveries", delivery.deliveries]
        self._client.run(
            script("bury"),
            [delivery.stream, self._keys.dead_letters, self._alive_of(delivery)],
            [delivery.entry_id, *kept],
        )

    def _settle(self, chosen: Script, deliveries: Sequence[Delivery], *first: Any) -> None:
        for start in range(0, len(deliveries), MOST_SETTLED):
            streams: dict[str, int] = {}
            arguments: list[Any] = list(first)
            for item in deliveries[start : start + MOST_SETTLED]:
                number = streams.setdefault(item.stream, len(streams) + 1)
                arguments += (number, item.entry_id, self._alive_of(item))
            self._client.run(chosen, list(streams), arguments)

    def _alive_of(self, delivery: Delivery) -> str:
        return self._keys.alive(delivery.stream, delivery.entry_id)

    def _tell(self, stream: bytes, error: bytes) -> None:
        """Say once that a stream cannot be read; the others go on."""
        if (stream, error) not in self._told:
            self._told.add((stream, error))
            logger.error("stream %s cannot be read: %s", stream.decode(), error.decode())


def _delivery(row: Sequence[Any]) -> Delivery:
    stream, entry_id, flat = row[:3]
    return Delivery(
        stream.decode(),
        entry_id.decode(),
        dict(zip(flat[::2], flat[1::2], strict=True)),
        int(row[3]) if len(row) > 3 else 1,
    )
