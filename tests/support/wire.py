"""Both sides of a broker on a real server, and orders to hand over."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from datetime import timedelta

import redis

from smallage_django.broker import RedisBroker, SchedulerSide, Times, WorkerSide
from smallage_django.domain.envelope import Envelope
from smallage_django.ports import Delivery, Order

_NUMBERS = itertools.count(1)


def order(
    fire_id: str = "",
    *,
    queue: str = "default",
    priority: int = 0,
    promotion: int = 0,
    lost_entry: str = "",
    payload: bytes = b"{}",
) -> Order:
    """A claimed run, with a fire id of its own unless it is told."""
    fire_id = fire_id or f"sched:{uuid.uuid4().hex}:1790000000000"
    envelope = Envelope(fire_id, "app.tasks.report", payload, 1_790_000_000_000)
    return Order(next(_NUMBERS), promotion, queue, priority, envelope, lost_entry)


@dataclass
class Wire:
    """One namespace on one server: its broker, and workers by consumer name. Short times, so that tests are short."""

    url: str
    namespace: str
    shards: int = 1
    times: Times = field(
        default_factory=lambda: Times(
            marker_ttl=timedelta(minutes=5),
            alive_ttl=timedelta(milliseconds=300),
            reclaim_grace=timedelta(milliseconds=100),
        )
    )

    def __post_init__(self) -> None:
        self.broker = RedisBroker(self.url, self.namespace, shards=self.shards, times=self.times)
        self.scheduler: SchedulerSide = self.broker.scheduler()
        self.worker: WorkerSide = self.broker.worker()
        self.prefix = f"{{{self.namespace}}}:"

    def close(self) -> None:
        """End its waiting connections."""
        self.scheduler.close()
        self.worker.close()

    def key(self, name: str) -> str:
        """The full name of a key."""
        return f"{self.prefix}{name}"

    def stream(self, queue: str = "default", shard: int = 0) -> str:
        return self.key(f"q:{queue}:{shard}")

    def taken(self, free: int = 10, *queues: str, consumer: str = "me") -> list[Delivery]:
        """What one read gives."""
        return self.worker.take(list(queues) or ["default"], consumer, free)

    def pending(self, client: redis.Redis, stream: str = "") -> int:
        """How many entries of a stream are in somebody's hands."""
        return int(client.xpending(stream or self.stream(), "workers")["pending"])


def ids(deliveries: list[Delivery]) -> list[str]:
    """The fire ids of entries, in their order."""
    return [delivery.fields[b"id"].decode() for delivery in deliveries]
