"""Connections to Redis: explicit time limits, no silent retries, and errors in our own words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from ..errors import BrokerUnavailable, InvalidConfiguration, LeaseLost

#: Seconds to wait for a connection.
CONNECT_TIMEOUT_S: Final = 0.3
#: Replies by which a server says that it cannot work for now.
_FOR_NOW: Final = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY", "OOM", "LOADING", "READONLY")


class Client:
    """One server as one part of the program uses it. Safe for threads; drops its connections over a fork."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url = url
        self._timeout_s = timeout_s

    @property
    def redis(self) -> Any:
        """The redis-py client of this process."""
        return _connect(self.url, self._timeout_s, os.getpid())

    @contextmanager
    def guarded(self) -> Iterator[Any]:
        """The redis-py client, with its errors translated. Raises ``BrokerUnavailable``."""
        client = self.redis
        try:
            yield client
        except ReadOnlyError as error:
            # After a failover the name may lead elsewhere: only new connections can find out.
            client.connection_pool.disconnect()
            raise BrokerUnavailable(f"Redis is a replica now: {error}") from error
        except (
            redis.ConnectionError,
            redis.TimeoutError,
            BusyLoadingError,
            OutOfMemoryError,
            TryAgainError,
            ClusterDownError,
        ) as error:
            raise BrokerUnavailable(f"Redis does not answer: {error}") from error
        except ResponseError as error:
            if str(error).startswith("FENCED"):
                raise LeaseLost(f"a later leader has written to the streams: {error}") from error
            if str(error).startswith(_FOR_NOW):
                raise BrokerUnavailable(f"Redis refuses for now: {error}") from error
            raise

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script; the text is sent where the server does not know it (any more)."""
        with self.guarded() as client:
            try:
                return client.evalsha(script.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return client.eval(script.text, len(keys), *keys, *arguments)

    def call(self, *command: Any) -> Any:
        """One command."""
        with self.guarded() as client:
            return client.execute_command(*command)

    def pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Several commands in one round trip; an error of one is its own answer."""
        if not commands:
            return []
        with self.guarded() as client:
            pipe = client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = pipe.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, RedisError) and not isinstance(answer, ResponseError):
                    raise answer
            return answers


class Script:
    """A Lua file of ``scripts/``."""

    def __init__(self, name: str) -> None:
        from hashlib import sha1

        self.name = name
        self.text = (files(__package__) / "scripts" / f"{name}.lua").read_text(encoding="utf-8")
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=32)
def script(name: str) -> Script:
    """A script by its file name."""
    return Script(name)


def options(timeout_s: float, *, network: bool = True) -> dict[str, Any]:
    """How every connection is made; ``network`` is False for a Unix socket."""
    kept = {"socket_keepalive": True} if network else {}
    return {
        **kept,
        "protocol": 2,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }


@lru_cache(maxsize=16)
def _connect(url: str, timeout_s: float, pid: int) -> Any:  # noqa: ARG001 - one client a process
    parts = urlsplit(url)
    if parts.scheme == "redis+sentinel":
        return _sentinel(url, timeout_s)
    if parts.scheme == "redis+cluster":
        plain = url.replace("redis+cluster", "redis", 1)
        kept = options(timeout_s)
        kept.pop("retry")
        return RedisCluster.from_url(plain, **kept)
    try:
        return redis.Redis.from_url(url, **options(timeout_s, network=parts.scheme != "unix"))
    except ValueError as error:
        raise InvalidConfiguration(f"REDIS_URL {parts.scheme}://...: {error}") from error


def _sentinel(url: str, timeout_s: float) -> Any:
    """``redis+sentinel://[user:password@]host:port[,host:port...]/service[/database]``."""
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    hosts = [place.rpartition(":") for place in places.split(",")]
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise InvalidConfiguration("REDIS_URL: a sentinel address ends in /<service name>")
    kept = options(timeout_s)
    # redis-py tells no types here.
    sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
        [
            (host or port, int(port) if host and port.isdigit() else 26379)
            for host, _, port in hosts
        ],
        sentinel_kwargs=kept,
    )
    return sentinel.master_for(
        service,
        db=int(database or 0),
        username=user or None,
        password=password or None,
        **kept,
    )
