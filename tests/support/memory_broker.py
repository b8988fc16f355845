"""The transport of a worker, in memory: streams, pending entries and liveness keys with the same promises as Redis.

It can be told to be away, or to die at a chosen call. ``passed`` moves its clock instead of waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from smallage_django.errors import BrokerUnavailable
from smallage_django.ports import Delivery


@dataclass
class Entry:
    """One stream entry and who has it."""

    fields: dict[bytes, bytes]
    consumer: str = ""
    deliveries: int = 0
    since: float = 0.0


@dataclass
class MemoryBroker:
    """``WorkerBroker`` for one process with any number of consumers. Times are seconds."""

    alive_ttl: float = 6.0
    grace: float = 5.0
    streams: dict[str, dict[str, Entry]] = field(default_factory=dict)
    alive: dict[tuple[str, str], float] = field(default_factory=dict)
    buried: list[tuple[Delivery, str]] = field(default_factory=list)
    away: bool = False
    on_call: Callable[[str], None] | None = None
    #: How far its clock is ahead of the real one.
    passed: float = 0.0

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._number = 0

    def add(self, fields: dict[bytes, bytes], queue: str = "default", at_ms: int = 1) -> Delivery:
        """XADD."""
        with self._lock:
            self._number += 1
            stream = f"ns:q:{queue}:0"
            entry_id = f"{at_ms}-{self._number}"
            self.streams.setdefault(stream, {})[entry_id] = Entry(fields)
            return Delivery(stream, entry_id, fields)

    def waiting(self) -> int:
        """Entries that no consumer has."""
        return sum(not e.consumer for entries in self.streams.values() for e in entries.values())

    def pending(self) -> int:
        """Entries that a consumer has and has not acknowledged."""
        return sum(bool(e.consumer) for entries in self.streams.values() for e in entries.values())

    def take(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        self._called("take")
        fresh = [(s, i, e) for s, i, e in self._entries(queues) if not e.consumer]
        return [self._hand_over(*item, consumer) for item in fresh[:free]]

    def wait(self, queues: Sequence[str], seconds: float) -> bool:
        self._called("wait")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if any(not entry.consumer for _, _, entry in self._entries(queues)):
                return True
            time.sleep(0.002)
        return False

    def interrupt(self) -> None:
        """Nothing sleeps long here."""

    def refresh(self, deliveries: Sequence[Delivery]) -> None:
        self._called("refresh")
        with self._lock:
            for item in deliveries:
                if item.entry_id in self.streams.get(item.stream, {}):
                    self.alive[item.stream, item.entry_id] = self._now() + self.alive_ttl

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._called("ack")
        with self._lock:
            for item in deliveries:
                self.streams.get(item.stream, {}).pop(item.entry_id, None)
                self.alive.pop((item.stream, item.entry_id), None)

    def let_go(self, deliveries: Sequence[Delivery]) -> None:
        self._called("let_go")
        with self._lock:
            for item in deliveries:
                self.alive.pop((item.stream, item.entry_id), None)
                entry = self.streams.get(item.stream, {}).get(item.entry_id)
                if entry is not None:
                    entry.since = float("-inf")

    def reclaim(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        self._called("reclaim")
        now = self._now()
        with self._lock:
            found = [
                (stream, entry_id, entry)
                for stream, entry_id, entry in self._entries(queues)
                if entry.consumer
                and now - entry.since >= self.grace
                and self.alive.get((stream, entry_id), 0.0) <= now
            ]
            return [self._hand_over(*item, consumer) for item in found[:free]]

    def bury(self, delivery: Delivery, reason: str, detail: str) -> None:
        self._called("bury")
        self.buried.append((delivery, reason))
        self.ack([delivery])

    def flush(self) -> None:
        """FLUSHALL."""
        with self._lock:
            self.streams.clear()
            self.alive.clear()

    def _entries(self, queues: Sequence[str]) -> list[tuple[str, str, Entry]]:
        with self._lock:
            return [
                (stream, entry_id, entry)
                for queue in queues
                for stream in [f"ns:q:{queue}:0"]
                for entry_id, entry in self.streams.get(stream, {}).items()
            ]

    def _hand_over(self, stream: str, entry_id: str, entry: Entry, consumer: str) -> Delivery:
        with self._lock:
            entry.consumer, entry.since = consumer, self._now()
            entry.deliveries += 1
            self.alive[stream, entry_id] = self._now() + self.alive_ttl
            return replace(Delivery(stream, entry_id, entry.fields), deliveries=entry.deliveries)

    def _now(self) -> float:
        return time.monotonic() + self.passed

    def _called(self, name: str) -> None:
        if self.on_call is not None:
            self.on_call(name)
        if self.away:
            raise BrokerUnavailable("Redis is away")
