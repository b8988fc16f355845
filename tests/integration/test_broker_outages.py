"""Redis away, full, frozen, replaced: one error in our own words, nothing doubled, and on it goes when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from smallage_django.broker import RedisBroker
from smallage_django.errors import BrokerUnavailable, InvalidConfiguration
from tests.support.servers import Kind, Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire, ids, order


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    """One that may be maltreated."""
    return make_server()


@pytest.fixture
def wire(server: Server, namespace: str) -> Iterator[Wire]:
    wire = Wire(server.url, namespace)
    yield wire
    wire.close()


def calls(wire: Wire) -> dict[str, Callable[[], Any]]:
    """Everything that the loops ask of it."""
    held = wire.taken(2)
    scheduler, worker = wire.scheduler, wire.worker
    return {
        "acquire": lambda: scheduler.acquire("me", wire.times.marker_ttl),
        "release": lambda: scheduler.release("me"),
        "highest_fence": scheduler.highest_fence,
        "incarnation": scheduler.incarnation,
        "promote": lambda: scheduler.promote(1, [order()]),
        "entries": lambda: scheduler.entries(wire.stream(), "", 5),
        "streams": scheduler.streams,
        "delete_entries": lambda: scheduler.delete_entries(wire.stream(), ["1-1"]),
        "backlog": lambda: scheduler.backlog(["default"]),
        "sweep": lambda: scheduler.sweep_consumers(wire.times.marker_ttl),
        "wake": wire.broker.wake_scheduler,
        "time": wire.broker.time,
        "publish": lambda: wire.broker.promote(0, [order()]),
        "take": lambda: wire.taken(1),
        "refresh": lambda: worker.refresh(held),
        "let_go": lambda: worker.let_go(held[:1]),
        "ack": lambda: worker.ack(held[:1]),
        "bury": lambda: worker.bury(held[1], "malformed", "v"),
        "reclaim": lambda: worker.reclaim(["default"], "me", 1),
        "wait": lambda: scheduler.wait(0.01),
        "wait_for_lease": lambda: scheduler.wait_for_lease(0.01),
        "wait for work": lambda: worker.wait(["default"], 0.01),
    }


def test_every_call_says_that_it_is_away_and_works_when_it_is_back(
    server: Server, wire: Wire
) -> None:
    """R100: no restart of ours is needed."""
    wire.broker.promote(0, [order(), order(), order()])
    wanted = calls(wire)
    server.kill()

    for name, call in wanted.items():
        with pytest.raises(BrokerUnavailable):
            pytest.fail(f"{name} answered {call()!r}")

    server.start()
    for call in wanted.values():
        call()


def test_connections_survive_a_restart_between_two_calls(server: Server, wire: Wire) -> None:
    """A pooled connection that the server has closed is not used."""
    wire.broker.promote(0, [order()])
    server.restart()

    assert wire.broker.promote(0, [order("task:x")])[0].entry_id
    assert ids(wire.taken()) == ["task:x"]


def test_a_frozen_server_holds_a_request_up_for_a_moment_only(server: Server, wire: Wire) -> None:
    """0.3 s, and no second try: a repeated XADD may be a second entry."""
    wire.broker.promote(0, [order()])
    server.freeze()

    began = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        wire.broker.promote(0, [order()])
    took = time.monotonic() - began

    server.resume()
    assert took < 1.5


def test_an_answer_that_was_lost_doubles_nothing(
    server: Server, wire: Wire, redis_client: redis.Redis
) -> None:
    """
    Given a server that took the order and answered too late.
    When the order is handed over again.
    Then there is one entry, and its receipt.
    """
    wire.broker.promote(0, [order("task:before")])
    run = order("task:x")
    server.freeze()
    with pytest.raises(BrokerUnavailable):
        wire.broker.promote(0, [run])
    server.resume()
    with server.client() as client:
        wait_until(lambda: client.xlen(wire.stream()) == 2)

        (receipt,) = wire.broker.promote(0, [run])

        assert client.xlen(wire.stream()) == 2
        assert client.xrange(wire.stream())[-1][0].decode() == receipt.entry_id


def test_out_of_memory_is_an_outage_and_no_fault_of_a_row(server: Server, wire: Wire) -> None:
    """No row may end as unwritable because the server is full; what is done is still acknowledged."""
    known = order()
    wire.scheduler.promote(1, [known, order()])
    (held,) = wire.taken(1)
    with server.client() as client:
        client.config_set("maxmemory", "1")
        for call in (
            lambda: wire.scheduler.promote(1, [known, order(), order()]),
            lambda: wire.broker.promote(0, [order()]),
            lambda: wire.scheduler.acquire("me", wire.times.marker_ttl),
        ):
            with pytest.raises(BrokerUnavailable, match=r"OutOfMemory|OOM"):
                call()
        assert wire.scheduler.promote(1, [known])[0].entry_id
        wire.worker.ack([held])
        assert client.xlen(wire.stream()) == 1

        client.config_set("maxmemory", "0")
        assert wire.scheduler.promote(1, [order()])[0].entry_id


def test_a_read_from_a_full_server_strands_nothing(server: Server, wire: Wire) -> None:
    """An entry that is delivered is alive, whether or not there is memory."""
    wire.taken(1)
    wire.broker.promote(0, [order()])
    with server.client() as client:
        client.config_set("maxmemory", "1")
        try:
            held = wire.taken(1)
        except BrokerUnavailable:
            held = []

        assert wire.pending(client) == len(held)
        assert len(list(client.scan_iter(match="*alive*"))) == len(held)


def test_a_server_that_cannot_save_is_an_outage(server: Server, wire: Wire) -> None:
    with server.client() as client:
        client.config_set("save", "3600 1000000")
        client.set("x", 1)
        (server.directory / "dump.rdb").mkdir()
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")

        with pytest.raises(BrokerUnavailable, match="MISCONF"):
            wire.scheduler.promote(1, [order()])


def test_a_replica_is_an_outage_until_it_is_no_replica(server: Server, wire: Wire) -> None:
    """After a fail-over the address may lead elsewhere: no connection to the former master is kept."""
    wire.scheduler.promote(1, [order()])
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
        before = {item["id"] for item in client.client_list()}
        for _ in range(2):
            with pytest.raises(BrokerUnavailable, match=r"ReadOnly|READONLY"):
                wire.scheduler.promote(1, [order()])
            with pytest.raises(BrokerUnavailable, match=r"ReadOnly|READONLY"):
                wire.taken(1)
        mine = client.client_id()
        wait_until(
            lambda: (
                {int(i["id"]) for i in client.client_list()} & {int(b) for b in before} <= {mine}
            )
        )

        client.replicaof("NO", "ONE")
        assert wire.scheduler.promote(1, [order()])[0].entry_id


def test_what_we_may_not_do_is_an_outage(server: Server, wire: Wire, namespace: str) -> None:
    """A forgotten right of the user must not end rows as unwritable."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-xadd")
    url = server.url.replace("redis://", "redis://limited:pw@")

    with pytest.raises(BrokerUnavailable, match=r"(?i)user"):
        Wire(url, namespace).scheduler.promote(1, [order()])


def test_a_wrong_password_is_told(server: Server, namespace: str) -> None:
    url = server.url.replace("redis://", "redis://nobody:wrong@")

    with pytest.raises(BrokerUnavailable):
        RedisBroker(url, namespace).promote(0, [order()])


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_both_kinds_of_server_do(
    make_server: Callable[..., Server], namespace: str, kind: Kind
) -> None:
    wire = Wire(make_server(kind).url, namespace, shards=2)
    wire.broker.promote(0, [order(f"task:{n}", priority=n % 2) for n in range(10)])

    for call in calls(wire).values():
        call()

    wire.close()


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis+sentinel://a:1"])
def test_an_address_that_cannot_be_is_a_usage_error(url: str, namespace: str) -> None:
    with pytest.raises(InvalidConfiguration, match="REDIS_URL"):
        RedisBroker(url, namespace).time()
