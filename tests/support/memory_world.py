"""Schedulers, rows, a transport and a worker in one process, under a clock that stands until it is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from smallage_django.domain.envelope import decode
from smallage_django.domain.identity import epoch_ms
from smallage_django.domain.lifecycle import TERMINAL, State
from smallage_django.ports import PassReport
from smallage_django.scheduler import Options, Scheduler
from tests.support.fate import Mortal
from tests.support.memory_store import MemoryStore
from tests.support.memory_transport import MemoryTransport

START = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)


@dataclass
class World:
    """``now`` is the agreed clock, and the server's and each process's own clocks move along with it.

    The store and the server may be real ones too: the clock that decides stands still all the same.
    """

    now: datetime = START
    store: MemoryStore = field(default_factory=MemoryStore)
    server: MemoryTransport = field(default_factory=MemoryTransport)
    #: What the schedulers' heartbeats tell.
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.server, MemoryTransport):
            # The server's clock does not run by itself either.
            self.server._now = self.monotonic  # type: ignore[method-assign]
            self.server.at_ms = lambda: epoch_ms(self.now)

    def monotonic(self) -> float:
        """Seconds of every process's own clock."""
        return 1000 + (self.now - START).total_seconds()

    def scheduler(self, name: str = "a", fate: Any = None, **options: Any) -> Scheduler:
        """A scheduler process; ``fate`` decides when it ends."""
        store: Any = self.store
        broker: Any = self.server.scheduler()
        if fate is not None:
            store, broker = Mortal(store, fate), Mortal(broker, fate)
        return Scheduler(
            store, broker, Clock(self), Options(name, facts=self.facts, **options), self.monotonic
        )

    def tick(self, scheduler: Scheduler, at: datetime) -> PassReport:
        """One pass at an instant, to which all clocks are set."""
        self.now = at
        return scheduler.tick(at)

    def tick_through(
        self, scheduler: Scheduler, until: datetime, step: timedelta = timedelta(seconds=1)
    ) -> None:
        """Pass after pass up to an instant, a step apart."""
        while self.now < until:
            self.tick(scheduler, min(self.now + step, until))

    def work_off(self, most: int = 1000) -> int:
        """What workers do with entries, as far as a scheduler can tell; how many runs ended."""
        ended = 0
        for entries in self.server.streams.values():
            for entry_id, entry in list(entries.items()):
                if ended == most:
                    return ended
                row = self.store.runs[decode(entry.fields).id]
                if row.state not in TERMINAL:
                    row.go(State.RUNNING)
                    self.store.effects[row.fire_id] += 1
                    row.go(State.SUCCEEDED)
                    ended += 1
                del entries[entry_id]
        return ended


@dataclass
class Clock:
    """``Clock`` port: the world's."""

    world: World

    def now(self) -> datetime:
        return self.world.now
