"""The names of everything in Redis. All share the tag ``{namespace}``: one slot, so that scripts work on a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from ..errors import InvalidConfiguration

GROUP: Final = "workers"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace. Raises ``InvalidConfiguration`` for a name that cannot be part of a key."""

    namespace: str
    shards: int = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.namespace):
            raise InvalidConfiguration(
                f"namespace {self.namespace!r}: letters, digits, '_', '.' and '-' are allowed"
            )
        if self.shards < 1:
            raise InvalidConfiguration(f"shards is {self.shards}; it must be 1 or more")

    @property
    def prefix(self) -> str:
        return f"{{{self.namespace}}}:"

    @property
    def lease(self) -> str:
        """Ours alone: ``leader`` belongs to stock smallage workers, whose holder has duties of its own."""
        return f"{self.prefix}scheduler"

    @property
    def fence(self) -> str:
        return f"{self.prefix}fence"

    @property
    def incarnation(self) -> str:
        return f"{self.prefix}incarnation"

    @property
    def wake(self) -> str:
        """The list that the leading scheduler blocks on."""
        return f"{self.prefix}wake"

    @property
    def standby(self) -> str:
        """The list that standing-by schedulers block on."""
        return f"{self.prefix}standby"

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix}dlq"

    def queue_wake(self, queue: str) -> str:
        """The list that idle workers of a queue block on."""
        return f"{self.prefix}wake:{queue}"

    def priorities(self, queue: str) -> str:
        """The set of priorities other than 0 that a queue has streams for."""
        return f"{self.prefix}prio:{queue}"

    def marker(self, fire_id: str, promotion: int) -> str:
        """What remembers the entry of one promotion of one fire."""
        return f"{self.prefix}fired:{fire_id}:{promotion}"

    def stream(self, queue: str, priority: int, entry: str) -> str:
        """The stream of an entry, by its id."""
        return self.shard(queue, priority, crc32(entry.encode()) % self.shards)

    def shard(self, queue: str, priority: int, number: int) -> str:
        """One stream of a queue."""
        place = f"{queue}@{priority}" if priority else queue
        return f"{self.prefix}q:{place}:{number}"

    def alive(self, stream: str, entry_id: str) -> str:
        """The liveness key of an entry."""
        return f"{self.prefix}alive:{stream.removeprefix(f'{self.prefix}q:')}:{entry_id}"
