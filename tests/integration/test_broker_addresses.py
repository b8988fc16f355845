"""Every kind of address: a port, a Unix socket, sentinels that name a master, a cluster; and processes that fork."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis

from smallage_django.broker import RedisBroker
from smallage_django.broker.client import _address, _connect
from tests.conftest import broker_kind
from tests.support.servers import ExternalServer, Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire, ids, order


@pytest.fixture
def cluster() -> Iterator[Server]:
    """A cluster of one node, which holds all slots and is as strict about them as any."""
    with Server(broker_kind(), options=["--cluster-enabled", "yes"]) as server:
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            wait_until(lambda: _serves(client))
        yield server


def _serves(client: redis.Redis) -> bool:
    try:
        return bool(client.set("probe", 1))
    except redis.ResponseError:
        return False


@pytest.fixture
def sentinel() -> Iterator[tuple[Server, Server]]:
    """A master, and the sentinel that knows it as ``mymaster``."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(Server(broker_kind()))
        watcher = stack.enter_context(_Sentinel(broker_kind()))
        with watcher.client() as client:
            client.execute_command(
                "SENTINEL", "MONITOR", "mymaster", "127.0.0.1", str(master.port), "1"
            )
        yield master, watcher


class _Sentinel(Server):
    """The same program in its other role, which needs a file that it may write to."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)  # type: ignore[arg-type]
        (self.directory / "sentinel.conf").touch()

    def _launch(self) -> None:
        binary = self._binary
        launcher = self.directory / "launch"
        launcher.write_text(
            f'#!/bin/sh\nexec {binary} {self.directory}/sentinel.conf --sentinel "$1" "$2" --bind 127.0.0.1\n'
        )
        launcher.chmod(0o700)
        self._binary = launcher
        try:
            super()._launch()
        finally:
            self._binary = binary


def works(wire: Wire) -> None:
    """The whole way of an entry, and its wake-up."""
    assert wire.scheduler.acquire("me", timedelta(seconds=30))
    sent = [order(f"task:{n}", priority=n % 2) for n in range(700)]
    wire.scheduler.promote(1, sent)
    assert wire.worker.wait(["default"], 5)
    held = wire.taken(700)
    assert sorted(ids(held)) == sorted(o.envelope.id for o in sent)
    wire.worker.refresh(held)
    assert wire.worker.reclaim(["default"], "me", 5) == []
    wire.worker.ack(held)
    assert wire.scheduler.backlog(["default"]) == {"default": 0}
    wire.broker.wake_scheduler()
    assert wire.scheduler.wait(5)
    assert wire.scheduler.sweep_consumers(timedelta(hours=1)) == 0
    assert wire.scheduler.release("me")
    wire.close()


def test_a_unix_socket(namespace: str) -> None:
    server = Server(broker_kind())
    path = server.directory / "socket"
    server.options += ["--unixsocket", str(path)]
    with server:
        works(Wire(f"unix://{path}", namespace))


def test_a_cluster(cluster: Server, namespace: str) -> None:
    """R069: every script keeps to one slot."""
    url = cluster.url.replace("redis://", "redis+cluster://").removesuffix("/0")

    works(Wire(url, namespace, shards=3))


def test_a_sentinel_leads_to_the_master(sentinel: tuple[Server, Server], namespace: str) -> None:
    master, watcher = sentinel
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watcher.port}/mymaster/3"

    works(Wire(url, namespace))

    with redis.Redis.from_url(master.url.removesuffix("0") + "3") as client:
        assert client.exists(f"{{{namespace}}}:fence")


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("host", ("host", 26379)),
        ("host:5000", ("host", 5000)),
        ("10.0.0.1:26380", ("10.0.0.1", 26380)),
    ],
)
def test_a_sentinels_port_may_be_left_out(place: str, address: tuple[str, int]) -> None:
    assert _address(place) == address


def test_times_are_limited_and_nothing_is_asked_twice() -> None:
    client = _connect("redis://127.0.0.1:1/0", 0.3, os.getpid())
    made = client.connection_pool.make_connection()

    assert made.socket_connect_timeout == 0.3
    assert made.socket_timeout == 0.3
    assert made.retry._retries == 0
    assert made.protocol == 2


def test_parts_of_one_process_share_their_connections(
    broker_server: Server | ExternalServer, namespace: str
) -> None:
    one, other = (RedisBroker(broker_server.url, name) for name in (namespace, f"{namespace}2"))

    assert one._client.redis is other._client.redis
    assert one.worker()._client.redis is one.scheduler()._client.redis


def test_no_connection_crosses_a_fork(
    broker_server: Server | ExternalServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = RedisBroker(broker_server.url, namespace)
    before = broker._client.redis

    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert broker._client.redis is not before
