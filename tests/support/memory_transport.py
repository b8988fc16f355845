"""The transport in memory with both of its sides: what ``MemoryBroker`` is for workers, and a scheduler's side.

It keeps the promises of the scripts: lease by compare-and-set, fence, markers, compare-and-set on a lost entry.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from smallage_django.domain.envelope import decode, encode
from smallage_django.errors import BrokerUnavailable, LeaseLost
from smallage_django.ports import Order, Presence, Receipt
from tests.support.memory_broker import MemoryBroker

#: What is lost with the data of a server.
_DATA = ("streams", "alive", "markers", "lease", "fence", "mark_of_life")


@dataclass
class MemoryTransport(MemoryBroker):
    """One server's data, and by itself the worker's side of it."""

    markers: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    #: Who leads, and until when by this server's clock.
    lease: tuple[str, float] | None = None
    fence: int = 0
    mark_of_life: str = ""
    #: How often an entry was written, by fire id, over all lives of the server.
    added: Counter[str] = field(default_factory=Counter)
    #: Fire ids whose stream refuses them.
    refused: set[str] = field(default_factory=set)
    at_ms: Callable[[], int] = lambda: 1
    lives: int = 0

    def scheduler(self) -> SchedulerSide:
        """The side of a scheduler."""
        return SchedulerSide(self)

    def save(self) -> dict[str, Any]:
        """A snapshot."""
        return {name: copy.deepcopy(getattr(self, name)) for name in _DATA}

    def load(self, snapshot: dict[str, Any]) -> None:
        """Come back with the data of a snapshot."""
        for name, value in snapshot.items():
            setattr(self, name, copy.deepcopy(value))

    def flush(self) -> None:
        """FLUSHALL."""
        self.load(MemoryTransport().save())

    def drop_entries(self) -> None:
        """XDEL by a careless hand: the entries are gone, their markers stay."""
        self.streams.clear()

    @property
    def order(self) -> list[str]:
        """The fire ids of all entries, in the order of the streams."""
        found = [
            (_place(entry_id), decode(entry.fields).id)
            for entries in self.streams.values()
            for entry_id, entry in entries.items()
        ]
        return [fire_id for _, fire_id in sorted(found)]


class SchedulerSide:
    """``SchedulerBroker`` over a server in memory."""

    def __init__(self, server: MemoryTransport) -> None:
        self.server = server
        #: The sleeps that were asked for: as a leader or as a standby, and how many seconds.
        self.slept: list[tuple[str, float]] = []

    # -- leading ----------------------------------------------------------------------------------------------------

    def acquire(self, token: str, ttl: timedelta) -> bool:
        server = self._reach("acquire")
        holder, until = server.lease or ("", 0.0)
        if holder not in ("", token) and until > server._now():
            return False
        server.lease = (token, server._now() + ttl.total_seconds())
        return True

    def release(self, token: str) -> bool:
        server = self._reach("release")
        mine = server.lease is not None and server.lease[0] == token
        if mine:
            server.lease = None
        return mine

    def highest_fence(self) -> int:
        return self._reach("highest_fence").fence

    def incarnation(self) -> str:
        server = self._reach("incarnation")
        if not server.mark_of_life:
            server.lives += 1
            server.mark_of_life = f"life {server.lives}"
        return server.mark_of_life

    def wait(self, seconds: float) -> bool:
        self._reach("wait")
        self.slept.append(("leader", seconds))
        return True

    def interrupt(self) -> None:
        """Nothing sleeps here."""

    def wait_for_lease(self, seconds: float) -> bool:
        self._reach("wait_for_lease")
        self.slept.append(("standby", seconds))
        return True

    # -- entries ----------------------------------------------------------------------------------------------------

    def promote(self, fence: int, orders: Sequence[Order]) -> list[Receipt]:
        server = self._reach("promote")
        if 0 < fence < server.fence:
            raise LeaseLost(f"fenced by {server.fence}")
        server.fence = max(fence, server.fence)
        return [self._promote(order) for order in orders]

    def missing(self, presences: Sequence[Presence]) -> list[Presence]:
        streams = self._reach("missing").streams
        return [item for item in presences if item.entry_id not in streams.get(item.stream, {})]

    def entries(self, stream: str, after: str, limit: int) -> list[tuple[str, str]]:
        entries = self._reach("entries").streams.get(stream, {})
        found = [
            (entry_id, decode(entry.fields).id)
            for entry_id, entry in entries.items()
            if not after or _place(entry_id) > _place(after)
        ]
        return found[:limit]

    def streams(self) -> list[str]:
        return sorted(self._reach("streams").streams)

    def delete_entries(self, stream: str, entry_ids: Sequence[str]) -> int:
        entries = self._reach("delete_entries").streams.get(stream, {})
        return sum(entries.pop(entry_id, None) is not None for entry_id in entry_ids)

    def backlog(self, queues: Iterable[str]) -> dict[str, int]:
        streams = self._reach("backlog").streams
        return {queue: len(streams.get(f"ns:q:{queue}:0", {})) for queue in queues}

    def sweep_consumers(self, idle: timedelta) -> int:
        self._reach("sweep_consumers")
        return 0

    def _promote(self, order: Order) -> Receipt:
        server, fire_id = self.server, order.envelope.id
        marker = (fire_id, order.promotion)
        known = server.markers.get(marker)
        if known is not None and (not order.lost_entry or known[1] != order.lost_entry):
            return Receipt(order.run_id, fire_id, *known)
        if fire_id in server.refused:
            return Receipt(order.run_id, fire_id, error="WRONGTYPE it is no stream")
        flat = [
            part if isinstance(part, bytes) else str(part).encode()
            for part in encode(order.envelope)
        ]
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        entry = server.add(fields, order.queue, server.at_ms())
        server.added[fire_id] += 1
        server.markers[marker] = (entry.stream, entry.entry_id)
        return Receipt(order.run_id, fire_id, entry.stream, entry.entry_id)

    def _reach(self, name: str) -> MemoryTransport:
        if self.server.on_call is not None:
            self.server.on_call(name)
        if self.server.away:
            raise BrokerUnavailable("Redis is away")
        return self.server


def _place(entry_id: str) -> tuple[int, int]:
    at, _, number = entry_id.partition("-")
    return int(at), int(number)
