"""Connections to Redis: explicit time limits, no silent retries, and errors in our own words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from ..errors import BrokerUnavailable, InvalidConfiguration, LeaseLost

#: Seconds to wait for a connection.
CONNECT_TIMEOUT_S: Final = 0.3
_SENTINEL_PORT: Final = 26379


class Client:
    """One server as one part of the program uses it. Safe for threads; no connection crosses a fork."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url = url
        self._timeout_s = timeout_s

    @property
    def redis(self) -> Any:
        """The redis-py client of this process."""
        return _connect(self.url, self._timeout_s, os.getpid())

    @contextmanager
    def guarded(self) -> Iterator[Any]:
        """The redis-py client. Raises ``LeaseLost`` for a fence, ``BrokerUnavailable`` for whatever else goes wrong."""
        try:
            yield self.redis
        except ResponseError as error:
            if str(error).startswith("FENCED"):
                raise LeaseLost(f"a later leader has written to the streams: {error}") from error
            if isinstance(error, ReadOnlyError) or "READONLY" in str(error):
                # After a fail-over the name may lead elsewhere: only new connections can find out.
                self.disconnect()
            kind = type(error).__name__
            raise BrokerUnavailable(f"Redis refuses ({kind}): {error}") from error
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"Redis does not answer: {error}") from error

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
        """Several commands in one round trip; a key of the wrong type is its own command's answer."""
        if not commands:
            return []
        with self.guarded() as client:
            pipe = client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = pipe.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, RedisError) and not str(answer).startswith("WRONGTYPE"):
                    raise answer
            return answers

    def connection(self, key: str) -> Any:
        """A connection of the caller's own to the server that holds ``key``."""
        client = self.redis
        if isinstance(client, RedisCluster):
            node = client.get_node_from_key(key)
            client = client.get_redis_connection(node)
        return client.connection_pool.make_connection()

    def disconnect(self) -> None:
        """Drop every connection that this process has; the next command makes a new one."""
        client = self.redis
        if isinstance(client, RedisCluster):
            client.disconnect_connection_pools()
        else:
            client.connection_pool.disconnect()


class Script:
    """A Lua file of ``scripts/``, with what is common to all before it."""

    def __init__(self, name: str) -> None:
        folder = files(__package__) / "scripts"
        self.text = "".join(
            (folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name)
        )
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
        # A repeated XADD doubles, a repeated SET NX lies: who asks again is decided above.
        "retry": Retry(NoBackoff(), 0),
    }


@lru_cache(maxsize=16)
def _connect(url: str, timeout_s: float, pid: int) -> Any:  # noqa: ARG001 - one client a process
    scheme = urlsplit(url).scheme
    try:
        if scheme.endswith("+sentinel"):
            return _sentinel(url, timeout_s)
        if scheme.endswith("+cluster"):
            return _cluster(url, timeout_s)
        return redis.Redis.from_url(url, **options(timeout_s, network=scheme != "unix"))
    except ValueError as error:
        if isinstance(error, InvalidConfiguration):
            raise
        raise InvalidConfiguration(f"REDIS_URL {scheme}://...: {error}") from error


def _cluster(url: str, timeout_s: float) -> Any:
    """``redis+cluster://[user:password@]host:port``, or ``rediss+cluster`` for TLS: any node, the rest is found."""
    kept = options(timeout_s)
    if int(redis.__version__.partition(".")[0]) < 6:
        # Before, ``retry`` was for the nodes alone; since, this name is deprecated.
        kept["cluster_error_retry_attempts"] = 0
    return RedisCluster.from_url(url.replace("+cluster", "", 1), **kept)


def _sentinel(url: str, timeout_s: float) -> Any:
    """``redis+sentinel://[user:password@]host:port[,host:port...]/service[/database]``, ``rediss+sentinel`` for TLS.

    The user and password are the server's; ``?sentinel_username=`` and ``?sentinel_password=`` are the sentinels'.
    """
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise InvalidConfiguration("REDIS_URL: a sentinel address ends in /<service name>")
    kept = options(timeout_s)
    if parts.scheme.startswith("rediss"):
        kept["ssl"] = True
    asked = dict(parse_qsl(parts.query))
    login_there = {
        "username": asked.get("sentinel_username") or None,
        "password": asked.get("sentinel_password") or None,
    }
    # redis-py tells no types here.
    sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
        [_address(place) for place in places.split(",")], sentinel_kwargs={**kept, **login_there}
    )
    return sentinel.master_for(
        service,
        db=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        **kept,
    )


def _address(place: str) -> tuple[str, int]:
    host, separator, port = place.rpartition(":")
    return (host, int(port)) if separator else (place, _SENTINEL_PORT)
