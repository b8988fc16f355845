"""Sleeping until somebody pushes to a list, with an end that is exact to the millisecond.

Redis looks at the time limits of blocked clients only a few times a second. So one BLPOP is kept outstanding on a
connection of its own, and its socket is waited for with our own time limit; the next wait finds it still outstanding,
and no push is lost in between.
"""

from __future__ import annotations

import contextlib
import os
import select
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
    """Waits for pushes to some lists. One thread at a time may wait; any thread or signal handler may interrupt."""

    def __init__(self, client: Client, lists: Sequence[str]) -> None:
        self._client = client
        self._lists = tuple(lists)
        self._connection: Any = None
        self._asked_at: float | None = None
        self._bell = _Bell()

    def wait(self, seconds: float) -> bool:
        """Sleep for at most so many seconds; whether a push ended it. Raises ``BrokerUnavailable``."""
        end = time.monotonic() + seconds
        try:
            while True:
                if self._asked_at is None:
                    self._ask()
                left = end - time.monotonic()
                if self._readable(max(left, 0)):
                    if self._answer():
                        return True
                elif self._bell.silence() or time.monotonic() >= end:
                    self._drop_if_dead()
                    return False
        except (RedisError, OSError, ValueError) as error:
            self.close()
            raise BrokerUnavailable(f"Redis does not answer: {error}") from error

    def interrupt(self) -> None:
        """End the wait that is going on, or the next one, at once. Safe in a signal handler."""
        self._bell.ring()

    def withdraw(self) -> None:
        """Ask for nothing more until the next wait: a push now is for others, and one that has come is passed on."""
        if self._asked_at is None:
            return
        with contextlib.suppress(RedisError, OSError, BrokerUnavailable):
            # Nobody has to learn of a failure here: sleepers look for themselves after a while.
            if self._readable(0) and (answer := self._connection.read_response()):
                self._client.call("LPUSH", answer[0], answer[1])
                self._client.call("EXPIRE", answer[0], 60)
        self.close()

    def close(self) -> None:
        """End the connection; the next wait makes a new one."""
        connection, self._connection, self._asked_at = self._connection, None, None
        if connection is not None:
            connection.disconnect()

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = self._client.connection(self._lists[0])
        self._connection.connect()
        self._connection.send_command("BLPOP", *self._lists, BLOCK_S)
        self._asked_at = time.monotonic()

    def _answer(self) -> bool:
        self._asked_at = None
        return self._connection.read_response() is not None

    def _readable(self, seconds: float) -> bool:
        """Whether an answer is there within so many seconds; at once where the bell rings. Raises when cut off."""
        if self._connection.can_read(timeout=0):
            return True
        poll = select.poll()
        poll.register(self._connection._sock, select.POLLIN)  # noqa: SLF001 - redis-py shows its socket nowhere
        poll.register(self._bell.reader, select.POLLIN)
        poll.poll(seconds * 1000)
        return bool(self._connection.can_read(timeout=0))

    def _drop_if_dead(self) -> None:
        if self._asked_at is not None and time.monotonic() - self._asked_at > _DEAD_S:
            self.close()


class _Bell:
    """A pipe that a sleeper watches beside its socket."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def __del__(self) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def ring(self) -> None:
        """Wake the sleeper; one that has been rung for often enough hears it anyway."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"!")

    def silence(self) -> bool:
        """Whether it was rung since it was last asked."""
        try:
            return bool(os.read(self.reader, 4096))
        except BlockingIOError:
            return False
