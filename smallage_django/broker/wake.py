"""Sleeping until somebody pushes to a list, with an end that is exact to the millisecond.

Redis looks at the time limits of blocked clients only a few times a second. So one BLPOP is kept outstanding on a
connection of its own, and its socket is waited for with our own time limit; the next wait finds it still outstanding,
and no push is lost in between.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from ..errors import BrokerUnavailable
from .client import Client

#: The server ends a BLPOP after so long, seconds; one that has not ended well after is on a dead connection.
BLOCK_S: Final = 5
_DEAD_S: Final = BLOCK_S + 3.0


class Waker:
    """Waits for pushes to some lists. One thread at a time may wait."""

    def __init__(self, client: Client, lists: Sequence[str]) -> None:
        self._client = client
        self._lists = tuple(lists)
        self._connection: Any = None
        self._asked_at: float | None = None

    def wait(self, seconds: float) -> bool:
        """Sleep for at most so many seconds; whether a push ended it. Raises ``BrokerUnavailable``."""
        end = time.monotonic() + seconds
        try:
            while True:
                if self._asked_at is None:
                    self._ask()
                left = end - time.monotonic()
                if self._connection.can_read(timeout=max(left, 0)):
                    self._asked_at = None
                    if self._connection.read_response() is not None:
                        return True
                elif time.monotonic() >= end:
                    self._drop_if_dead()
                    return False
        except (RedisError, OSError, ValueError) as error:
            self.close()
            raise BrokerUnavailable(f"Redis does not answer: {error}") from error

    def close(self) -> None:
        """End the connection; the next wait makes a new one."""
        connection, self._connection, self._asked_at = self._connection, None, None
        if connection is not None:
            connection.disconnect()

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = _own_connection(self._client.redis)
        self._connection.connect()
        self._connection.send_command("BLPOP", *self._lists, BLOCK_S)
        self._asked_at = time.monotonic()

    def _drop_if_dead(self) -> None:
        if self._asked_at is not None and time.monotonic() - self._asked_at > _DEAD_S:
            self.close()


def _own_connection(client: Any) -> Any:
    pool = getattr(client, "connection_pool", None)
    if pool is None:  # a cluster: all our keys are in one slot, so any list names the node
        pool = client.get_redis_connection(client.get_default_node()).connection_pool
    return pool.make_connection()
