"""The names of everything in Redis. All share the tag ``{namespace}``: one slot, so that scripts work on a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

from ..errors import InvalidConfiguration

GROUP: Final = "workers"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@lru_cache(maxsize=256)
def checked(what: str, name: str) -> str:
    """``name`` itself. Raises ``InvalidConfiguration`` where it cannot be part of a key."""
    if not _NAME.fullmatch(name):
        raise InvalidConfiguration(
            f"{what} {name!r}: 1 to 64 letters, digits, '_', '.' and '-' are allowed"
        )
    return name


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace. Raises ``InvalidConfiguration`` for a name that cannot be part of a key."""

    namespace: str
    shards: int = 1

    def __post_init__(self) -> None:
        checked("namespace", self.namespace)
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
    def all_streams(self) -> str:
        """The set of all streams there are: looking through the keyspace would meet every marker on its way."""
        return f"{self.prefix}streams"

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
        """The stream of an entry, by its id. Raises ``InvalidConfiguration`` for a queue that cannot be a key."""
        checked("queue", queue)
        return self.shard(queue, priority, crc32(entry.encode()) % self.shards)

    def shard(self, queue: str, priority: int, number: int) -> str:
        """One stream of a queue."""
        place = f"{queue}@{priority}" if priority else queue
        return f"{self.prefix}q:{place}:{number}"

    def is_read(self, stream: str) -> bool:
        """Whether workers of this namespace and number of shards read a stream of this name."""
        shard = stream.rpartition(":")[2]
        known = stream.startswith(f"{self.prefix}q:") and shard.isdigit()
        return known and int(shard) < self.shards

    def alive(self, stream: str, entry_id: str) -> str:
        """The liveness key of an entry."""
        return f"{self.prefix}alive:{stream.removeprefix(f'{self.prefix}q:')}:{entry_id}"
