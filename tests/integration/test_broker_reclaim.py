"""Taking over from workers that went silent, and never from one that is alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from smallage_django.broker import Times
from smallage_django.ports import Delivery
from tests.support.servers import ExternalServer, Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire, ids, order


@pytest.fixture
def make_wire(
    broker_server: Server | ExternalServer, namespace: str
) -> Iterator[Callable[..., Wire]]:
    """A process of its own each time: what it holds in hand is its own."""
    wires: list[Wire] = []

    def make(alive_ms: int = 60_000, grace_ms: int = 0, **options: Any) -> Wire:
        times = Times(
            alive_ttl=timedelta(milliseconds=alive_ms),
            reclaim_grace=timedelta(milliseconds=grace_ms),
        )
        wires.append(Wire(broker_server.url, namespace, times=times, **options))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


def kill(wire: Wire, client: redis.Redis, held: list[Delivery]) -> None:
    """Nobody refreshes these any more: as if the liveness time had passed."""
    for delivery in held:
        client.delete(wire.worker._alive_of(delivery))


def reclaimed(wire: Wire, name: str = "heir", free: int = 10) -> list[Delivery]:
    return wire.worker.reclaim(["default"], name, free)


def test_a_silent_owner_is_replaced_once_it_was_idle_for_long_enough(
    make_wire: Callable[..., Wire],
) -> None:
    """R078: kill -9."""
    dead, heir = make_wire(alive_ms=100, grace_ms=150), make_wire(alive_ms=100, grace_ms=150)
    dead.broker.promote(0, [order("task:x")])
    (held,) = dead.taken(consumer="dead")
    assert reclaimed(heir) == []

    (found,) = wait_until(lambda: reclaimed(heir), 5)

    assert found == Delivery(held.stream, held.entry_id, held.fields, deliveries=2)


def test_no_liveness_is_not_enough(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    """R078: an entry that was read a moment ago is left alone."""
    dead, heir = make_wire(), make_wire(grace_ms=60_000)
    dead.broker.promote(0, [order()])
    kill(dead, redis_client, dead.taken(consumer="dead"))

    assert reclaimed(heir) == []


def test_a_long_idle_is_not_enough(make_wire: Callable[..., Wire]) -> None:
    """R078: a live owner may hold an entry for as long as it takes."""
    busy, heir = make_wire(), make_wire(grace_ms=0)
    busy.broker.promote(0, [order()])
    assert busy.taken(consumer="busy")

    assert reclaimed(heir) == []


def test_long_live_entries_hide_no_abandoned_one(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    """350 that are alive, over several pages, then the one that is not."""
    busy, heir = make_wire(), make_wire()
    busy.broker.promote(0, [order() for _ in range(351)])
    held = busy.taken(351, consumer="busy")
    kill(busy, redis_client, held[-1:])

    assert ids(reclaimed(heir, free=1)) == ids(held[-1:])


def test_it_takes_only_as_many_as_there_is_room_for(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    dead, heir = make_wire(shards=2), make_wire(shards=2)
    dead.broker.promote(0, [order(priority=n % 3) for n in range(30)])
    kill(dead, redis_client, dead.taken(30, consumer="dead"))

    assert reclaimed(heir, free=0) == []
    assert len(reclaimed(heir, free=4)) == 4
    assert len(reclaimed(heir, free=100)) == 26


def test_high_priority_is_taken_over_first(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    dead, heir = make_wire(), make_wire()
    dead.broker.promote(0, [order(f"task:{p}", priority=p) for p in (0, -1, 9)])
    kill(dead, redis_client, dead.taken(3, consumer="dead"))

    assert ids(reclaimed(heir)) == ["task:9", "task:0", "task:-1"]


def test_of_many_who_take_over_one_wins(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    """R079."""
    dead = make_wire()
    dead.broker.promote(0, [order() for _ in range(40)])
    held = dead.taken(40, consumer="dead")
    kill(dead, redis_client, held)
    heirs = [make_wire() for _ in range(5)]
    start, got = threading.Barrier(5), list[Delivery]()

    def take_over(number: int) -> None:
        start.wait()
        got.extend(reclaimed(heirs[number], f"heir-{number}", 100))

    threads = [threading.Thread(target=take_over, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(ids(got)) == sorted(ids(held))


def test_each_take_over_counts_as_a_delivery(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    """R080 counts on it."""
    dead = make_wire()
    dead.broker.promote(0, [order()])
    held = dead.taken(consumer="dead")
    counts = []
    for number in range(3):
        kill(dead, redis_client, held)
        held = reclaimed(make_wire(), f"heir-{number}")
        counts += [d.deliveries for d in held]

    assert counts == [2, 3, 4]


def test_an_entry_without_a_body_is_dropped(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    dead, heir = make_wire(), make_wire()
    dead.broker.promote(0, [order(), order()])
    lost, kept = dead.taken(consumer="dead")
    kill(dead, redis_client, [lost, kept])
    redis_client.xdel(lost.stream, lost.entry_id)

    assert ids(reclaimed(heir)) == ids([kept])
    (pending,) = redis_client.xpending_range(kept.stream, "workers", "-", "+", 5)
    assert pending["message_id"].decode() == kept.entry_id


def test_a_consumer_that_comes_back_takes_its_own_at_once(
    make_wire: Callable[..., Wire],
) -> None:
    """Within the liveness time and the grace, without waiting for either; a lone worker too."""
    before = make_wire(grace_ms=60_000)
    before.broker.promote(0, [order() for _ in range(5)])
    held = before.taken(5, consumer="web-1")

    again = make_wire(grace_ms=60_000)

    assert ids(reclaimed(again, "web-1", 2)) == ids(held[:2])
    assert ids(reclaimed(again, "web-1", 10)) == ids(held[2:])
    assert reclaimed(again, "web-1", 10) == []
    assert reclaimed(make_wire(grace_ms=60_000), "web-2", 10) == []


def test_a_consumer_keeps_what_it_has_in_hand(make_wire: Callable[..., Wire]) -> None:
    wire = make_wire(grace_ms=60_000)
    wire.broker.promote(0, [order() for _ in range(5)])
    make_wire().taken(1, consumer="web-1")
    old = ids(reclaimed(make_wire(), "web-1"))

    wire.taken(2, consumer="web-1")
    first = reclaimed(wire, "web-1")
    wire.taken(1, consumer="web-1")

    assert ids(first) == old
    assert reclaimed(wire, "web-1") == []


def test_a_read_whose_answer_was_lost_is_found_again(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    """
    Given a lone worker that has looked for its own already.
    When it reads an entry and the answer never arrives.
    Then the entry, which nobody keeps alive, comes back to it.
    """
    wire = make_wire()
    reclaimed(wire, "lone")
    wire.broker.promote(0, [order("task:x")])
    kill(wire, redis_client, wire.taken(consumer="lone"))

    assert ids(reclaimed(wire, "lone")) == ["task:x"]


def test_dead_consumers_are_swept_and_holders_never(
    make_wire: Callable[..., Wire], redis_client: redis.Redis
) -> None:
    """R103: three restarts leave one consumer; one that holds an entry stays."""
    wire = make_wire()
    wire.broker.promote(0, [order(), order(priority=4)])
    held = wire.taken(consumer="holder")
    for number in range(3):
        wire.broker.promote(0, [order(), order(priority=4)])
        wire.worker.ack(make_wire().taken(consumer=f"worker-{number}"))

    def consumers() -> set[bytes]:
        return {c["name"] for c in redis_client.xinfo_consumers(wire.stream(), "workers")}

    assert wire.scheduler.sweep_consumers(timedelta(minutes=10)) == 0
    assert len(consumers()) == 4
    # Three consumers on each of the two streams.
    assert wire.scheduler.sweep_consumers(timedelta(0)) == 6
    assert consumers() == {b"holder"}

    wire.worker.ack(held)
    assert wire.scheduler.sweep_consumers(timedelta(0)) == 2
    assert consumers() == set()


def test_nothing_undelivered_is_lost_when_all_consumers_go(
    make_wire: Callable[..., Wire],
) -> None:
    """R102, R103: the group and its backlog stay."""
    wire = make_wire()
    wire.taken(consumer="worker")
    wire.broker.promote(0, [order("task:x")])

    wire.scheduler.sweep_consumers(timedelta(0))

    assert ids(wire.taken(consumer="another")) == ["task:x"]
