"""The right to lead: one holder, compare-and-set, and a hand-over that is heard at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis

from tests.support.servers import ExternalServer, Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire

LONG = timedelta(seconds=30)


@pytest.fixture
def wire(broker_server: Server | ExternalServer, namespace: str) -> Iterator[Wire]:
    wire = Wire(broker_server.url, namespace)
    yield wire
    wire.close()


def test_one_of_two_leads(wire: Wire) -> None:
    """R052."""
    assert wire.scheduler.acquire("one", LONG)
    assert not wire.scheduler.acquire("two", LONG)
    assert wire.scheduler.acquire("one", LONG)


def test_of_many_at_once_one_leads(wire: Wire) -> None:
    answers: list[bool] = []
    start = threading.Barrier(8)

    def try_it(name: str) -> None:
        start.wait()
        answers.append(wire.scheduler.acquire(name, LONG))

    threads = [threading.Thread(target=try_it, args=(f"leader-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [False] * 7 + [True]


def test_extending_moves_the_end(wire: Wire, redis_client: redis.Redis) -> None:
    wire.scheduler.acquire("me", timedelta(seconds=1))
    wire.scheduler.acquire("me", LONG)

    assert redis_client.pttl(wire.key("scheduler")) > 29_000


def test_a_lease_runs_out(wire: Wire) -> None:
    """R052: a holder that died holds nobody up for longer than its time."""
    wire.scheduler.acquire("dead", timedelta(milliseconds=50))

    wait_until(lambda: wire.scheduler.acquire("heir", LONG), 2)
    assert not wire.scheduler.acquire("dead", LONG)


def test_a_foreign_token_stays_untouched(wire: Wire, redis_client: redis.Redis) -> None:
    """R054: neither renewal nor release changes what another holds, nor for how long."""
    lease = wire.key("scheduler")
    redis_client.set(lease, "other", px=20_000)

    assert not wire.scheduler.acquire("me", LONG)
    assert not wire.scheduler.release("me")

    assert redis_client.get(lease) == b"other"
    assert redis_client.pttl(lease) <= 20_000
    assert not redis_client.exists(wire.key("standby"))


def test_a_lease_that_was_taken_away_can_be_taken_again(
    wire: Wire, redis_client: redis.Redis
) -> None:
    """R053: losing it costs nothing."""
    wire.scheduler.acquire("me", LONG)
    redis_client.delete(wire.key("scheduler"))

    assert not wire.scheduler.release("me")
    assert wire.scheduler.acquire("me", LONG)


def test_the_stock_leader_key_is_left_alone(wire: Wire, redis_client: redis.Redis) -> None:
    """Whoever holds that one has to promote what stock producers delayed."""
    redis_client.set(wire.key("leader"), "stock")

    assert wire.scheduler.acquire("me", LONG)
    assert wire.scheduler.release("me")
    assert redis_client.get(wire.key("leader")) == b"stock"


def test_a_release_wakes_a_standby_and_leaves_no_key_for_ever(
    wire: Wire, redis_client: redis.Redis
) -> None:
    """R056: the other leads at once."""
    other = Wire(wire.url, wire.namespace).scheduler
    wire.scheduler.acquire("me", LONG)
    waited: list[tuple[bool, float]] = []

    def stand_by() -> None:
        began = time.monotonic()
        waited.append((other.wait_for_lease(5), time.monotonic() - began))

    thread = threading.Thread(target=stand_by)
    thread.start()
    wait_until(lambda: b"blpop" in b" ".join(_commands(redis_client)), 5)
    assert wire.scheduler.release("me")
    thread.join()

    ((woken, seconds),) = waited
    assert woken
    assert seconds < 2
    assert other.acquire("other", LONG)
    assert redis_client.ttl(wire.key("standby")) != -1
    other.close()


def _commands(client: redis.Redis) -> list[bytes]:
    return [str(item["cmd"]).encode() for item in client.client_list()]
