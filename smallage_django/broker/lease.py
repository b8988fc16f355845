"""The lease: a time-limited right to lead, taken, extended and given back by compare-and-set."""

from __future__ import annotations

from datetime import timedelta

from .client import Client, script
from .keys import Keys


class Lease:
    """The lease of one namespace. It saves double work; what makes a double harmless is in SQL."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def acquire(self, token: str, ttl: timedelta) -> bool:
        """Take the lease if nobody holds it, or extend it if ``token`` does; whether ``token`` holds it now."""
        milliseconds = ttl // timedelta(milliseconds=1)
        return bool(self._client.run(script("lease"), [self._keys.lease], [token, milliseconds]))

    def release(self, token: str) -> bool:
        """Give the lease back if ``token`` holds it, and wake the standbys; whether it did."""
        keys = [self._keys.lease, self._keys.standby]
        return bool(self._client.run(script("release"), keys, [token]))
