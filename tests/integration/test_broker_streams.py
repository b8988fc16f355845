"""A worker's reads: no more than it has room for, high priority first, alive from the first moment, gone when done."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import redis

from smallage_django.broker.streams import LOW_FIRST_EVERY
from smallage_django.domain.envelope import decode
from smallage_django.errors import MalformedEntry
from tests.support.servers import ExternalServer, Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire, ids, order


@pytest.fixture
def wire(broker_server: Server | ExternalServer, namespace: str) -> Iterator[Wire]:
    wire = Wire(broker_server.url, namespace)
    yield wire
    wire.close()


def alive(wire: Wire, entry_id: str, suffix: str = "default:0") -> str:
    return wire.key(f"alive:{suffix}:{entry_id}")


def fill(wire: Wire, *priorities: int, queue: str = "default") -> list[str]:
    orders = [order(queue=queue, priority=priority) for priority in priorities]
    wire.broker.promote(0, orders)
    return [o.envelope.id for o in orders]


# -- take -----------------------------------------------------------------------------------------------------------


def test_an_entry_comes_as_it_was_written(wire: Wire) -> None:
    run = order(payload=b'{"b": "\xff\x00"}')
    (receipt,) = wire.broker.promote(0, [run])

    (delivery,) = wire.taken()

    assert (delivery.stream, delivery.entry_id) == (receipt.stream, receipt.entry_id)
    assert delivery.deliveries == 1
    assert decode(delivery.fields) == run.envelope


def test_it_reads_only_as_many_as_there_is_room_for(wire: Wire, redis_client: redis.Redis) -> None:
    """R075: over several streams too, where COUNT alone would give as many of each."""
    fill(wire, *([0, 1, 2] * 5))
    fill(wire, *([0] * 5), queue="mail")

    assert len(wire.taken(4, "default", "mail")) == 4
    assert wire.taken(0, "default", "mail") == []
    assert wire.taken(-1, "default", "mail") == []
    assert len(wire.taken(100, "default", "mail")) == 16
    assert wire.taken(100, "default", "mail") == []


def test_count_is_never_zero(make_server: Callable[..., Server], namespace: str) -> None:
    """R075: by the server's own record; COUNT 0 would mean everything."""
    server = make_server()
    wire = Wire(server.url, namespace, shards=3)
    with server.client() as client, client.monitor() as monitor:
        fill(wire, *([0] * 9))
        for free in (1, 2, 0, 5, 3):
            wire.taken(free)
        client.echo("end")
        seen = []
        for told in monitor.listen():
            if told["command"] == "ECHO end":
                break
            words = told["command"].split()
            if words[0].upper() == "XREADGROUP":
                seen.append(int(words[words.index("COUNT") + 1]))

    assert seen
    assert min(seen) >= 1
    assert max(seen) <= 5


def test_high_priority_comes_first(wire: Wire) -> None:
    """R095: exact, as long as nobody starves."""
    low, high, normal, top = fill(wire, -1, 5, 0, 100)

    assert ids(wire.taken(1) + wire.taken(3)) == [top, high, normal, low]


def test_priorities_are_compared_over_all_queues(wire: Wire) -> None:
    (mail,) = fill(wire, 5, queue="mail")
    (plain,) = fill(wire, 0)

    assert ids(wire.taken(2, "default", "mail")) == [mail, plain]


def test_low_priority_is_not_starved(wire: Wire) -> None:
    """R095: under a load of high priority the low one runs at every Nth read."""
    (low,) = fill(wire, -5)
    fill(wire, *([5] * 2 * LOW_FIRST_EVERY))

    reads = [ids(wire.taken(1)) for _ in range(LOW_FIRST_EVERY)]

    assert [low] not in reads[:-1]
    assert reads[-1] == [low]


def test_idle_reads_do_not_bring_the_low_one_forward(wire: Wire) -> None:
    for _ in range(LOW_FIRST_EVERY - 1):
        wire.taken(1)
    low, high = fill(wire, -5, 5)

    assert ids(wire.taken(1) + wire.taken(1)) == [high, low]


def test_no_queue_is_starved_by_its_equals(wire: Wire) -> None:
    fill(wire, *([0] * 10))
    (other,) = fill(wire, 0, queue="mail")

    assert other in ids(wire.taken(1, "default", "mail") + wire.taken(1, "default", "mail"))


def test_what_was_added_before_anyone_read_is_work(wire: Wire, redis_client: redis.Redis) -> None:
    redis_client.xadd(wire.stream(), {"v": "1", "id": "early"})

    assert ids(wire.taken()) == ["early"]
    assert wire.stream() in wire.scheduler.streams()


def test_two_workers_never_get_the_same_entry(wire: Wire) -> None:
    names = fill(wire, *([0] * 500))
    got: list[str] = []

    def work(name: str) -> None:
        side = Wire(wire.url, wire.namespace)
        while batch := side.taken(7, consumer=name):
            got.extend(ids(batch))

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(got) == sorted(names)


def test_a_flush_does_not_end_a_worker(make_server: Callable[..., Server], namespace: str) -> None:
    """R101: the group is made again where it vanished, and the next entry runs."""
    server = make_server()
    wire = Wire(server.url, namespace)
    fill(wire, 0, 3)
    held = wire.taken()
    server.flush()

    wire.worker.refresh(held)
    wire.worker.ack(held)
    wire.worker.bury(held[0], "malformed", "gone")
    wire.worker.let_go(held)
    assert wire.worker.reclaim(["default"], "me", 5) == []
    assert wire.scheduler.sweep_consumers(wire.times.alive_ttl) == 0
    names = fill(wire, 3, 0)

    assert ids(wire.taken()) == names


def test_a_stream_of_another_type_stops_no_other(
    wire: Wire, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.set(wire.stream("broken"), "mine")
    redis_client.set(wire.key("prio:broken"), "mine")
    (name,) = fill(wire, 0)

    with caplog.at_level(logging.ERROR):
        assert ids(wire.taken(5, "broken", "default")) == [name]
        wire.taken(5, "broken", "default")

    assert wire.worker.reclaim(["broken", "default"], "me", 5) == []
    assert [wire.stream("broken") in r.getMessage() for r in caplog.records] == [True]


@pytest.mark.parametrize(
    ("field", "value"),
    [("v", "2"), ("attempt", "x"), ("enqueued_at", "-"), ("id", b"\xff"), ("task", "")],
)
def test_poison_is_read_and_can_be_buried(
    wire: Wire, redis_client: redis.Redis, field: str, value: str | bytes
) -> None:
    """R086: nothing is left pending, and a lone worker goes on."""
    good = {"v": "1", "id": "x", "task": "t", "payload": "{}", "enqueued_at": "1", "attempt": "0"}
    redis_client.xadd(wire.stream(), {**good, field: value})

    (delivery,) = wire.taken()
    with pytest.raises(MalformedEntry) as refusal:
        decode(delivery.fields)
    wire.worker.bury(delivery, "malformed", refusal.value.field)

    assert wire.pending(redis_client) == 0
    assert redis_client.xlen(wire.stream()) == 0
    ((_, letter),) = redis_client.xrange(wire.key("dlq"))
    assert letter[b"dlq_detail"].decode() == field


def test_unknown_fields_come_along(wire: Wire, redis_client: redis.Redis) -> None:
    """R087."""
    (receipt,) = wire.broker.promote(0, [order()])
    ((_, fields),) = redis_client.xrange(receipt.stream)
    redis_client.xadd(receipt.stream, {**fields, "novelty": b"\xff"})

    plain, novel = wire.taken()

    assert novel.fields[b"novelty"] == b"\xff"
    assert decode(novel.fields) == decode(plain.fields)


# -- liveness -------------------------------------------------------------------------------------------------------


def test_an_entry_is_alive_from_its_read_to_its_ack(wire: Wire, redis_client: redis.Redis) -> None:
    """R076."""
    fill(wire, 7)
    (held,) = wire.taken(consumer="host:1")
    key = alive(wire, held.entry_id, "default@7:0")

    assert redis_client.get(key) == b"host:1"
    assert 0 < redis_client.pttl(key) <= 300
    wire.worker.ack([held])
    assert not redis_client.exists(key)


def test_refreshing_keeps_it_alive(wire: Wire, redis_client: redis.Redis) -> None:
    fill(wire, 0)
    (held,) = wire.taken()
    key = alive(wire, held.entry_id)
    redis_client.pexpire(key, 5)
    wait_until(lambda: not redis_client.exists(key))

    wire.worker.refresh([held])

    assert redis_client.pttl(key) > 200


def test_a_refresh_brings_no_acknowledged_entry_back(wire: Wire, redis_client: redis.Redis) -> None:
    """R077."""
    fill(wire, 0, 0)
    done, held = wire.taken()
    wire.worker.ack([done])

    wire.worker.refresh([done, held])

    assert not redis_client.exists(alive(wire, done.entry_id))
    assert redis_client.exists(alive(wire, held.entry_id))


def test_a_refresh_keeps_nothing_alive_that_another_took_over(
    wire: Wire, redis_client: redis.Redis
) -> None:
    fill(wire, 0)
    (held,) = wire.taken(consumer="slow")
    redis_client.delete(alive(wire, held.entry_id))
    other = Wire(wire.url, wire.namespace).worker
    (theirs,) = wait_until(lambda: other.reclaim(["default"], "other", 1))
    redis_client.pexpire(alive(wire, theirs.entry_id), 60_000)

    wire.worker.refresh([held])

    assert redis_client.get(alive(wire, held.entry_id)) == b"other"
    assert redis_client.pttl(alive(wire, held.entry_id)) > 300


# -- ack, let go, bury ----------------------------------------------------------------------------------------------


def test_an_ack_leaves_nothing(wire: Wire, redis_client: redis.Redis) -> None:
    fill(wire, *([0, 4] * 1200))
    held = wire.taken(2400)

    wire.worker.ack(held)
    wire.worker.ack(held)
    wire.worker.ack([])

    assert wire.pending(redis_client) == 0
    assert redis_client.xlen(wire.stream()) == redis_client.xlen(wire.stream("default@4")) == 0
    assert not list(redis_client.scan_iter(match=f"{wire.key('alive')}*", count=5000))


def test_an_entry_that_was_let_go_is_taken_over_at_once(
    broker_server: Server | ExternalServer, namespace: str, redis_client: redis.Redis
) -> None:
    """Long before the grace has passed, and without counting as a delivery of its own."""
    wire = Wire(broker_server.url, namespace)
    wire.times = replace(wire.times, reclaim_grace=wire.times.marker_ttl)
    wire.__post_init__()
    fill(wire, 0, 0)
    back, kept = wire.taken()

    wire.worker.let_go([back])

    found = Wire(wire.url, namespace, times=wire.times).worker.reclaim(["default"], "other", 5)
    assert [(d.entry_id, d.deliveries) for d in found] == [(back.entry_id, 2)]
    assert redis_client.exists(alive(wire, kept.entry_id))


def test_letting_go_of_what_another_holds_changes_nothing(
    wire: Wire, redis_client: redis.Redis
) -> None:
    fill(wire, 0)
    (held,) = wire.taken(consumer="slow")
    redis_client.delete(alive(wire, held.entry_id))
    other = Wire(wire.url, wire.namespace).worker
    wait_until(lambda: other.reclaim(["default"], "other", 1))
    redis_client.pexpire(alive(wire, held.entry_id), 60_000)

    wire.worker.let_go([held])

    (pending,) = redis_client.xpending_range(wire.stream(), "workers", "-", "+", 5)
    assert pending["consumer"] == b"other"
    assert redis_client.get(alive(wire, held.entry_id)) == b"other"


def test_a_dead_letter_keeps_everything(wire: Wire, redis_client: redis.Redis) -> None:
    """R088: payload, reason, detail, source, deliveries and time by Redis's clock."""
    wire.broker.promote(0, [order("task:x", payload=b"\xff\x00")])
    (held,) = wire.taken()

    wire.worker.bury(replace(held, deliveries=6), "too_many_deliveries", "6 deliveries, é")

    ((letter_id, letter),) = redis_client.xrange(wire.key("dlq"))
    assert {k: v for k, v in letter.items() if not k.startswith(b"dlq_")} == dict(held.fields)
    assert letter[b"dlq_at"] == letter_id.split(b"-")[0]
    assert letter[b"dlq_reason"] == b"too_many_deliveries"
    assert letter[b"dlq_detail"].decode() == "6 deliveries, é"
    assert letter[b"dlq_source"].decode() == wire.stream()
    assert letter[b"dlq_deliveries"] == b"6"
    assert wire.pending(redis_client) == redis_client.xlen(wire.stream()) == 0
    assert not redis_client.exists(alive(wire, held.entry_id))


def test_burying_twice_is_burying_once(wire: Wire, redis_client: redis.Redis) -> None:
    """As after a lost answer."""
    fill(wire, 0)
    (held,) = wire.taken()

    wire.worker.bury(held, "malformed", "v")
    wire.worker.bury(held, "malformed", "v")

    assert redis_client.xlen(wire.key("dlq")) == 1
