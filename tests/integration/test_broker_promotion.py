"""Handing runs to their streams: once per promotion, under a fence, whatever one row does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from zlib import crc32

import pytest
import redis
from redis.crc import key_slot

from smallage_django.broker.keys import Keys
from smallage_django.domain.envelope import encode
from smallage_django.domain.lifecycle import State
from smallage_django.errors import InvalidConfiguration, LeaseLost
from smallage_django.ports import Presence, Receipt
from tests.support.servers import ExternalServer, Server
from tests.support.wire import Wire, order


@pytest.fixture
def wire(broker_server: Server | ExternalServer, namespace: str) -> Iterator[Wire]:
    wire = Wire(broker_server.url, namespace)
    yield wire
    wire.close()


def presence(receipt: Receipt) -> Presence:
    return Presence(
        receipt.run_id, receipt.fire_id, State.ENQUEUED, receipt.stream, receipt.entry_id
    )


def test_an_entry_says_what_its_envelope_says(wire: Wire, redis_client: redis.Redis) -> None:
    """R064: bytes on the wire are the bytes stored."""
    sent = order(payload=b'{"b": "\xff\x00"}')
    sent = replace(sent, envelope=replace(sent.envelope, traceparent="00-ab-cd-01"))

    (receipt,) = wire.scheduler.promote(1, [sent])

    ((entry_id, fields),) = redis_client.xrange(receipt.stream)
    flat = [
        part if isinstance(part, bytes) else str(part).encode() for part in encode(sent.envelope)
    ]
    assert fields == dict(zip(flat[::2], flat[1::2], strict=True))
    assert receipt == Receipt(sent.run_id, sent.envelope.id, wire.stream(), entry_id.decode())


def test_receipts_come_in_the_order_of_their_orders(wire: Wire, redis_client: redis.Redis) -> None:
    """More than a few script calls hold."""
    orders = [order(queue=["default", "mail"][n % 2], priority=n % 3) for n in range(1000)]

    receipts = wire.scheduler.promote(1, orders)

    assert [r.run_id for r in receipts] == [o.run_id for o in orders]
    assert len({(r.stream, r.entry_id) for r in receipts}) == 1000
    for receipt in receipts[::50]:
        ((_, fields),) = redis_client.xrange(receipt.stream, receipt.entry_id, receipt.entry_id)
        assert fields[b"id"].decode() == receipt.fire_id


def test_nothing_is_sent_for_nothing(wire: Wire) -> None:
    assert wire.scheduler.promote(1, []) == []


def test_a_double_pass_is_a_no_op(wire: Wire, redis_client: redis.Redis) -> None:
    """R060: the same entry ids, and no more entries."""
    orders = [order() for _ in range(5)]
    first = wire.scheduler.promote(1, orders)

    assert wire.scheduler.promote(1, orders) == first
    assert wire.broker.promote(0, orders) == first
    assert redis_client.xlen(wire.stream()) == 5


def test_the_same_order_twice_in_one_batch_is_one_entry(
    wire: Wire, redis_client: redis.Redis
) -> None:
    twice = order()

    first, second = wire.scheduler.promote(1, [twice, twice])

    assert first == second
    assert redis_client.xlen(wire.stream()) == 1


def test_another_promotion_of_the_same_fire_is_another_entry(
    wire: Wire, redis_client: redis.Redis
) -> None:
    once = order()

    wire.scheduler.promote(1, [once, replace(once, promotion=1)])

    assert redis_client.xlen(wire.stream()) == 2


def test_a_marker_names_its_entry_and_ends(wire: Wire, redis_client: redis.Redis) -> None:
    (receipt,) = wire.scheduler.promote(1, [order("once:1", promotion=3)])

    marker = wire.key("fired:once:1:3")
    assert redis_client.get(marker) == f"{receipt.stream}|{receipt.entry_id}".encode()
    assert 290_000 < redis_client.pttl(marker) <= 300_000


def test_a_marker_outlives_its_entry_and_is_replaced_only_by_name(
    wire: Wire, redis_client: redis.Redis
) -> None:
    """
    Given an entry that was deleted, and its marker that was not.
    When the run is promoted again, then with another entry's name, then with this one's.
    Then the first two answer the dead entry, and the third adds exactly one.
    """
    run = order()
    (dead,) = wire.scheduler.promote(1, [run])
    redis_client.xdel(dead.stream, dead.entry_id)

    assert wire.scheduler.promote(1, [run]) == [dead]
    assert wire.scheduler.promote(1, [replace(run, lost_entry="1-1")]) == [dead]
    (fresh,) = wire.scheduler.promote(1, [replace(run, lost_entry=dead.entry_id)])
    assert fresh.entry_id != dead.entry_id
    assert wire.scheduler.promote(1, [replace(run, lost_entry=dead.entry_id)]) == [fresh]
    assert redis_client.xlen(wire.stream()) == 1


def test_an_old_leader_is_fenced(wire: Wire, redis_client: redis.Redis) -> None:
    """R065: paused, overtaken and resumed, it adds nothing."""
    wire.scheduler.promote(7, [order()])

    with pytest.raises(LeaseLost):
        wire.scheduler.promote(6, [order()])

    assert wire.scheduler.highest_fence() == 7
    assert redis_client.xlen(wire.stream()) == 1


def test_the_highest_fence_grows_and_publishing_leaves_it_alone(wire: Wire) -> None:
    assert wire.scheduler.highest_fence() == 0
    wire.scheduler.promote(2, [order()])
    wire.scheduler.promote(9, [order()])
    wire.broker.promote(0, [order()])

    assert wire.scheduler.highest_fence() == 9


def test_a_row_that_cannot_be_written_stops_no_other(wire: Wire, redis_client: redis.Redis) -> None:
    """R072: the stream of one queue is somebody's string, another queue has no possible name."""
    redis_client.set(wire.stream("broken"), "mine")
    bad, worse = order(queue="broken"), order(queue="a:b")

    answers = wire.scheduler.promote(1, [order(), bad, order(), worse, order()])

    assert [bool(a.error) for a in answers] == [False, True, False, True, False]
    assert "WRONGTYPE" in answers[1].error
    assert "a:b" in answers[3].error
    assert [bool(a.entry_id) for a in answers] == [True, False, True, False, True]
    assert redis_client.xlen(wire.stream()) == 3
    assert not redis_client.exists(wire.key(f"fired:{bad.envelope.id}:0"))


def test_a_foreign_key_where_a_wake_list_belongs_costs_no_receipt(
    wire: Wire, redis_client: redis.Redis
) -> None:
    for name in ("wake:default", "prio:default", "streams"):
        redis_client.set(wire.key(name), "mine")

    (receipt,) = wire.scheduler.promote(1, [order(priority=5)])

    assert redis_client.xlen(receipt.stream) == 1


def test_each_priority_has_its_streams(wire: Wire, redis_client: redis.Redis) -> None:
    receipts = wire.scheduler.promote(1, [order(priority=p) for p in (0, 5, -5, 5)])

    assert [r.stream for r in receipts] == [
        wire.stream(),
        wire.stream("default@5"),
        wire.stream("default@-5"),
        wire.stream("default@5"),
    ]
    assert redis_client.smembers(wire.key("prio:default")) == {b"5", b"-5"}
    assert wire.scheduler.streams() == sorted({r.stream for r in receipts})


def test_entries_spread_over_the_shards_by_their_id(
    broker_server: Server, namespace: str, redis_client: redis.Redis
) -> None:
    wire = Wire(broker_server.url, namespace, shards=3)
    names = [f"task:{n}" for n in range(30)]

    receipts = wire.scheduler.promote(1, [order(name) for name in names])

    assert {r.stream for r in receipts} == {wire.stream(shard=n) for n in range(3)}
    assert [r.stream for r in receipts] == [
        wire.stream(shard=crc32(name.encode()) % 3) for name in names
    ]
    assert wire.scheduler.backlog(["default"]) == {"default": 30}


def test_the_scripts_may_be_forgotten_at_any_time(
    make_server: Callable[..., Server], namespace: str
) -> None:
    """R071."""
    server = make_server()
    wire = Wire(server.url, namespace)
    with server.client() as client:
        for _ in range(2):
            client.script_flush()
            wire.scheduler.promote(1, [order() for _ in range(700)])
        client.script_flush()
        assert len(wire.taken(5)) == 5
        client.script_flush()
        wire.worker.ack(wire.taken(5))
        assert client.xlen(wire.stream()) == 1395


def test_every_key_has_the_tag_of_its_namespace(wire: Wire, redis_client: redis.Redis) -> None:
    """R069: one slot, so that scripts work on a cluster."""
    wire.scheduler.acquire("me", wire.times.alive_ttl)
    wire.scheduler.incarnation()
    wire.scheduler.promote(1, [order("{x}:y", priority=3), order(), order()])
    wire.broker.wake_scheduler()
    taken = wire.taken(2)
    wire.worker.bury(taken[0], "malformed", "v")

    keys = [key.decode() for key in redis_client.scan_iter(match=f"*{wire.namespace}*")]

    assert len(keys) >= 12
    assert all(key.startswith(wire.prefix) for key in keys)
    assert {key_slot(key.encode()) for key in keys} == {key_slot(wire.prefix.encode())}
    assert wire.key("leader") not in keys


@pytest.mark.parametrize("name", ["", "a{b", "a}b", "a:b", "a@b", "a|b", "a b", "é", "x" * 65])
def test_a_name_that_cannot_be_in_a_key_is_refused(wire: Wire, name: str) -> None:
    """R070: for namespaces and queues."""
    with pytest.raises(InvalidConfiguration, match=re.escape(repr(name))):
        Keys(name)
    with pytest.raises(InvalidConfiguration):
        wire.taken(1, name) if name else wire.worker.take([""], "me", 1)
    with pytest.raises(InvalidConfiguration):
        wire.scheduler.backlog([name])


def test_what_is_missing_is_what_has_no_entry(wire: Wire, redis_client: redis.Redis) -> None:
    receipts = wire.scheduler.promote(1, [order() for _ in range(2500)])
    gone = receipts[::500]
    redis_client.xdel(wire.stream(), *(r.entry_id for r in gone))
    held = wire.taken(1)
    unmarked = Presence(-1, "task:none", State.ENQUEUED, "", "")
    odd = Presence(-2, "task:odd", State.ENQUEUED, wire.stream(), "no-id")

    missing = wire.scheduler.missing([*map(presence, receipts), unmarked, odd])

    assert [m.run_id for m in missing] == [*(r.run_id for r in gone), -1, -2]
    assert held[0].entry_id not in {m.entry_id for m in missing}


def test_an_entry_in_a_stream_that_nobody_reads_is_missing(
    broker_server: Server, namespace: str
) -> None:
    """Given three shards. When there is one. Then what lies in the others is handed over again."""
    before = Wire(broker_server.url, namespace, shards=3)
    receipts = before.scheduler.promote(1, [order() for _ in range(30)])
    now = Wire(broker_server.url, namespace, shards=1)

    missing = now.scheduler.missing([presence(r) for r in receipts])

    assert {m.stream for m in missing} == {before.stream(shard=1), before.stream(shard=2)}
    assert before.scheduler.missing([presence(r) for r in receipts]) == []


def test_a_stream_is_read_page_by_page(wire: Wire, redis_client: redis.Redis) -> None:
    receipts = wire.scheduler.promote(1, [order() for _ in range(25)])
    foreign = redis_client.xadd(wire.stream(), {"v": "1"})

    pages, after = [], ""
    while page := wire.scheduler.entries(wire.stream(), after, 10):
        pages.append(page)
        after = page[-1][0]

    assert [len(page) for page in pages] == [10, 10, 6]
    found = [item for page in pages for item in page]
    assert found == [*((r.entry_id, r.fire_id) for r in receipts), (foreign.decode(), "")]


def test_entries_are_deleted_out_of_any_hands(wire: Wire, redis_client: redis.Redis) -> None:
    receipts = wire.scheduler.promote(1, [order() for _ in range(3)])
    (held,) = wire.taken(1)
    names = [r.entry_id for r in receipts[:2]]

    assert wire.scheduler.delete_entries(wire.stream(), [*names, "1-1"]) == 2

    assert held.entry_id in names
    assert wire.pending(redis_client) == 0
    assert redis_client.xlen(wire.stream()) == 1
    assert not redis_client.exists(wire.key(f"alive:default:0:{held.entry_id}"))


def test_backlog_counts_all_streams_of_a_queue(wire: Wire, redis_client: redis.Redis) -> None:
    wire.scheduler.promote(1, [order(priority=p) for p in (0, 0, 9, -3)])
    wire.scheduler.promote(1, [order(queue="mail")])
    redis_client.set(wire.stream("broken"), "mine")

    queues = ["default", "mail", "empty", "broken"]
    assert wire.scheduler.backlog(queues) == {"default": 4, "mail": 1, "empty": 0, "broken": 0}


def test_the_incarnation_lives_as_long_as_the_data(
    make_server: Callable[..., Server], namespace: str
) -> None:
    server = make_server()
    wire = Wire(server.url, namespace)
    first = wire.scheduler.incarnation()

    assert len(first) == 32
    assert Wire(server.url, namespace).scheduler.incarnation() == first
    server.flush()
    assert wire.scheduler.incarnation() not in {first, ""}


def test_redis_tells_the_time_in_utc(wire: Wire, redis_client: redis.Redis) -> None:
    seconds, _ = redis_client.time()

    told = wire.broker.time()

    assert told.utcoffset() is not None
    assert 0 <= told.timestamp() - seconds < 2
