"""Streams as a worker reads them: take, keep alive, acknowledge, hand back, reclaim, bury."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from ..ports import Delivery
from .client import Client, Script, script
from .keys import Keys

#: Every so many reads the lowest priority comes first, so that it is never starved for ever.
LOW_FIRST_EVERY: Final = 16
#: Pending entries that reclaim looks at in one go.
PAGE: Final = 100
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
        self._consumer = ""

    def take(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Read at most ``free`` new entries and mark them alive. See the port."""
        if free < 1:
            return []
        self._consumer = consumer
        self._turn += 1
        low_first = int(self._turn % LOW_FIRST_EVERY == 0)
        rows = self._client.run(
            script("take"),
            [self._keys.priorities(queue) for queue in queues],
            [
                self._keys.prefix,
                self._keys.shards,
                consumer,
                free,
                self._alive_ms,
                low_first,
                self._turn,
                *queues,
            ],
        )
        return [_delivery(row) for row in rows]

    def reclaim(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Take over at most ``free`` entries whose owner went silent. See the port."""
        if free < 1:
            return []
        self._consumer = consumer
        rows = self._client.run(
            script("reclaim"),
            [self._keys.priorities(queue) for queue in queues],
            [
                self._keys.prefix,
                self._keys.shards,
                consumer,
                free,
                self._alive_ms,
                self._grace_ms,
                PAGE,
                *queues,
            ],
        )
        return [_delivery(row) for row in rows]

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
        kept += ["dlq_deliveries", delivery.deliveries, "dlq_at", time.time_ns() // 1_000_000]
        keys = self._keys
        self._client.run(
            script("bury"),
            [delivery.stream, keys.dead_letters, keys.alive(delivery.stream, delivery.entry_id)],
            [delivery.entry_id, *kept],
        )

    def _settle(self, chosen: Script, deliveries: Sequence[Delivery], *first: Any) -> None:
        if not deliveries:
            return
        streams: dict[str, int] = {}
        arguments: list[Any] = list(first)
        for delivery in deliveries:
            number = streams.setdefault(delivery.stream, len(streams) + 1)
            alive = self._keys.alive(delivery.stream, delivery.entry_id)
            arguments += (number, delivery.entry_id, alive)
        self._client.run(chosen, list(streams), arguments)


def _delivery(row: Sequence[Any]) -> Delivery:
    stream, entry_id, flat = row[:3]
    return Delivery(
        stream.decode(),
        entry_id.decode(),
        dict(zip(flat[::2], flat[1::2], strict=True)),
        int(row[3]) if len(row) > 3 else 1,
    )
