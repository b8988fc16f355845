"""Due runs into streams: the promote script, and the questions of reconciling."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from ..domain.envelope import encode
from ..ports import Order, Presence, Receipt
from .client import Client, script
from .keys import Keys

#: Rows of one script call: it holds the server for a few milliseconds.
ROWS: Final = 300
#: Idle workers that one script call wakes, at most, for each queue.
MOST_TOKENS: Final = 16


class Promotion:
    """Writes entries, and compares the streams with what SQL believes."""

    def __init__(self, client: Client, keys: Keys, marker_ttl: timedelta) -> None:
        self._client = client
        self._keys = keys
        self._marker_ms = marker_ttl // timedelta(milliseconds=1)

    def promote(self, fence: int, orders: Sequence[Order]) -> list[Receipt]:
        """Hand orders to their streams. Raises ``LeaseLost``, ``BrokerUnavailable``."""
        receipts: list[Receipt] = []
        for start in range(0, len(orders), ROWS):
            receipts += self._promote(fence, orders[start : start + ROWS])
        return receipts

    def _promote(self, fence: int, orders: Sequence[Order]) -> list[Receipt]:
        keys = self._keys
        streams: dict[str, int] = {}
        tokens: dict[str, int] = {}
        priorities: dict[str, list[int]] = {}
        rows: list[Any] = []
        names = [keys.stream(o.queue, o.priority, o.envelope.id) for o in orders]
        for order, name in zip(orders, names, strict=True):
            fields = encode(order.envelope)
            rows += (streams.setdefault(name, len(streams) + 1), order.lost_entry, len(fields))
            rows += fields
            wake = keys.queue_wake(order.queue)
            tokens[wake] = min(tokens.get(wake, 0) + 1, MOST_TOKENS)
            if order.priority:
                used = priorities.setdefault(keys.priorities(order.queue), [])
                if order.priority not in used:
                    used.append(order.priority)
        sets = [(key, priority) for key, used in priorities.items() for priority in used]
        replies = self._client.run(
            script("promote"),
            [
                keys.fence,
                *(keys.marker(o.envelope.id, o.promotion) for o in orders),
                *streams,
                *tokens,
                *(key for key, _ in sets),
            ],
            [
                fence,
                self._marker_ms,
                len(orders),
                len(streams),
                len(tokens),
                *tokens.values(),
                *(priority for _, priority in sets),
                *rows,
            ],
        )
        return [
            _receipt(order, name, reply.decode("utf-8", "replace"))
            for order, name, reply in zip(orders, names, replies, strict=True)
        ]

    def highest_fence(self) -> int:
        """The highest fence that the streams were written under; 0 where Redis has forgotten."""
        return int(self._client.call("GET", self._keys.fence) or 0)

    def incarnation(self) -> str:
        """A random value that lives as long as this Redis keeps its data."""
        value = self._client.call("GET", self._keys.incarnation)
        if value is None:
            self._client.call("SET", self._keys.incarnation, secrets.token_hex(16), "NX")
            value = self._client.call("GET", self._keys.incarnation)
        return value.decode() if value is not None else ""

    def missing(self, presences: Sequence[Presence]) -> list[Presence]:
        """Those whose entry is not in its stream."""
        known = [presence for presence in presences if presence.stream and presence.entry_id]
        answers = self._client.pipeline(
            [("XRANGE", p.stream, p.entry_id, p.entry_id, "COUNT", 1) for p in known]
        )
        there = {
            presence.run_id
            for presence, answer in zip(known, answers, strict=True)
            if isinstance(answer, list) and answer
        }
        return [presence for presence in presences if presence.run_id not in there]

    def entries(self, stream: str, after: str, limit: int) -> Sequence[tuple[str, str]]:
        """A page of (entry id, fire id) of a stream, after an entry id ("" for its beginning)."""
        start = f"({after}" if after else "-"
        page = self._client.call("XRANGE", stream, start, "+", "COUNT", limit)
        return [(entry_id.decode(), _id_of(fields)) for entry_id, fields in page]

    def streams(self) -> Sequence[str]:
        """Every stream of the namespace's queues."""
        with self._client.guarded() as client:
            found = client.scan_iter(match=f"{self._keys.prefix}q:*", count=1000, _type="stream")
            return sorted(name.decode() for name in found)

    def delete_entries(self, stream: str, entry_ids: Sequence[str]) -> int:
        """Acknowledge and delete entries that nothing will run; how many were deleted."""
        arguments = [part for e in entry_ids for part in (1, e, self._keys.alive(stream, e))]
        self._client.run(script("ack"), [stream], arguments)
        # One that was never delivered is not acknowledged, and deleted all the same.
        self._client.call("XDEL", stream, *entry_ids)
        return len(entry_ids)

    def backlog(self, queues: Iterable[str]) -> dict[str, int]:
        """Entries in each queue, all its streams together."""
        names = sorted(queues)
        used = self._client.pipeline([("SMEMBERS", self._keys.priorities(q)) for q in names])
        places = [
            (queue, self._keys.shard(queue, priority, number))
            for queue, answer in zip(names, used, strict=True)
            for priority in (0, *(int(value) for value in answer))
            for number in range(self._keys.shards)
        ]
        lengths = self._client.pipeline([("XLEN", stream) for _, stream in places])
        waiting = dict.fromkeys(names, 0)
        for (queue, _), length in zip(places, lengths, strict=True):
            waiting[queue] += length if isinstance(length, int) else 0
        return waiting

    def sweep_consumers(self, idle: timedelta) -> int:
        """Remove consumers that hold nothing and were idle for longer; how many."""
        streams = self.streams()
        if not streams:
            return 0
        milliseconds = idle // timedelta(milliseconds=1)
        return int(self._client.run(script("sweep"), streams, [milliseconds]))


def _receipt(order: Order, stream: str, reply: str) -> Receipt:
    if reply.startswith("!"):
        return Receipt(order.run_id, order.envelope.id, error=reply[1:])
    known, separator, entry_id = reply.rpartition("|")
    if separator:
        return Receipt(order.run_id, order.envelope.id, known, entry_id)
    return Receipt(order.run_id, order.envelope.id, stream, reply)


def _id_of(fields: Sequence[bytes]) -> str:
    pairs = dict(zip(fields[::2], fields[1::2], strict=False))
    return pairs.get(b"id", b"").decode("utf-8", "replace")
