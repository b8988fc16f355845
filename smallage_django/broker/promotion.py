"""Due runs into streams: the promote script, and the questions of reconciling."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from ..domain.envelope import encode
from ..errors import UsageError
from ..ports import Order, Presence, Receipt
from .client import Client, script
from .keys import Keys, checked

#: Rows of one script call: it holds the server for a few milliseconds.
ROWS: Final = 300
#: Entries that one call of any other script looks at, below Lua's limit on arguments.
PAGE: Final = 1000


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
        batch = _Batch(self._keys)
        answers = [batch.add(order) for order in orders]
        if batch.markers:
            replies = self._client.run(
                script("promote"), batch.key_names(), batch.arguments(fence, self._marker_ms)
            )
            for at, stream, reply in zip(batch.places, batch.names, replies, strict=True):
                answers[at] = _receipt(orders[at], stream, reply.decode("utf-8", "replace"))
        return [answer for answer in answers if answer is not None]

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
        """Those whose entry is not in its stream, or is in one that no worker reads (any more)."""
        there: set[int] = set()
        known = [p for p in presences if p.entry_id and self._keys.is_read(p.stream)]
        for start in range(0, len(known), PAGE):
            part = known[start : start + PAGE]
            streams: dict[str, int] = {}
            pairs: list[Any] = []
            for item in part:
                pairs += (streams.setdefault(item.stream, len(streams) + 1), item.entry_id)
            found = self._client.run(script("present"), list(streams), pairs)
            there.update(item.run_id for item, yes in zip(part, found, strict=True) if yes)
        return [presence for presence in presences if presence.run_id not in there]

    def entries(self, stream: str, after: str, limit: int) -> Sequence[tuple[str, str]]:
        """A page of (entry id, fire id) of a stream, after an entry id ("" for its beginning)."""
        start = f"({after}" if after else "-"
        page = self._client.run(script("names"), [stream], [start, limit])
        texts = [part.decode("utf-8", "replace") for part in page]
        return list(zip(texts[::2], texts[1::2], strict=True))

    def streams(self) -> Sequence[str]:
        """Every stream that was written or read under this namespace."""
        found = self._client.call("SMEMBERS", self._keys.all_streams)
        return sorted(name.decode() for name in found)

    def delete_entries(self, stream: str, entry_ids: Sequence[str]) -> int:
        """Acknowledge and delete entries that nothing will run; how many were there to delete."""
        deleted = 0
        for start in range(0, len(entry_ids), PAGE):
            part = entry_ids[start : start + PAGE]
            arguments = [word for e in part for word in (1, e, self._keys.alive(stream, e))]
            deleted += int(self._client.run(script("ack"), [stream], arguments))
        return deleted

    def backlog(self, queues: Iterable[str]) -> dict[str, int]:
        """Entries in each queue, all its streams together, those in workers' hands included."""
        names = sorted(queues)
        places = streams_of(self._client, self._keys, names)
        lengths = self._client.pipeline([("XLEN", stream) for _, _, stream in places])
        waiting = dict.fromkeys(names, 0)
        for (queue, _, _), length in zip(places, lengths, strict=True):
            waiting[queue] += length if isinstance(length, int) else 0
        return waiting

    def sweep_consumers(self, idle: timedelta) -> int:
        """Remove consumers that hold nothing and were idle for longer; how many."""
        streams = self.streams()
        if not streams:
            return 0
        milliseconds = idle // timedelta(milliseconds=1)
        return int(self._client.run(script("sweep"), streams, [milliseconds]))


def streams_of(client: Client, keys: Keys, queues: Sequence[str]) -> list[tuple[str, int, str]]:
    """Queue, priority and name of every stream of some queues, highest priority first."""
    used = client.pipeline([("SMEMBERS", keys.priorities(checked("queue", q))) for q in queues])
    found = [
        (queue, priority, keys.shard(queue, priority, number))
        for queue, answer in zip(queues, used, strict=True)
        for priority in {0, *_numbers(answer)}
        for number in range(keys.shards)
    ]
    return sorted(found, key=lambda place: -place[1])


def _numbers(answer: object) -> list[int]:
    """The priorities of a set; none where somebody else's key is in its place."""
    if not isinstance(answer, list | set):
        return []
    return [int(value) for value in answer if value.lstrip(b"-").isdigit()]


class _Batch:
    """The keys and arguments of one call of the promote script."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._streams: dict[str, int] = {}
        self._wake_of: list[int] = []
        self._wakes: dict[str, int] = {}
        self._priorities: dict[tuple[str, int], None] = {}
        self._rows: list[Any] = []
        self.markers: list[str] = []
        #: Of each row of the script, the place of its order and the name of its stream.
        self.places: list[int] = []
        self.names: list[str] = []
        self._count = 0

    def add(self, order: Order) -> Receipt | None:
        """Take in an order; a receipt at once where it cannot be put into words that Redis takes."""
        place, self._count = self._count, self._count + 1
        keys, envelope = self._keys, order.envelope
        try:
            stream = keys.stream(order.queue, order.priority, envelope.id)
        except (UsageError, UnicodeError) as error:
            return Receipt(order.run_id, envelope.id, error=str(error))
        number = self._streams.get(stream)
        if number is None:
            number = self._streams[stream] = len(self._streams) + 1
            wake = keys.queue_wake(order.queue)
            self._wake_of.append(self._wakes.setdefault(wake, len(self._wakes) + 1))
            if order.priority:
                self._priorities[keys.priorities(order.queue), order.priority] = None
        fields = encode(envelope)
        self._rows += (number, order.lost_entry, len(fields))
        self._rows += fields
        self.markers.append(keys.marker(envelope.id, order.promotion))
        self.places.append(place)
        self.names.append(stream)
        return None

    def key_names(self) -> list[str]:
        """As the script's header lists them."""
        keys = [self._keys.fence, self._keys.all_streams, *self.markers, *self._streams]
        return [*keys, *self._wakes, *(key for key, _ in self._priorities)]

    def arguments(self, fence: int, marker_ms: int) -> list[Any]:
        """As the script's header lists them."""
        counts = (len(self.markers), len(self._streams), len(self._wakes))
        priorities = [priority for _, priority in self._priorities]
        return [fence, marker_ms, *counts, *self._wake_of, *priorities, *self._rows]


def _receipt(order: Order, stream: str, reply: str) -> Receipt:
    if reply.startswith("!"):
        return Receipt(order.run_id, order.envelope.id, error=reply[1:])
    known, separator, entry_id = reply.rpartition("|")
    if separator:
        return Receipt(order.run_id, order.envelope.id, known, entry_id)
    return Receipt(order.run_id, order.envelope.id, stream, reply)
