"""Sleeping until there is work: exact ends, no lost and no stolen wake-up, and an end to every wait."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from smallage_django.errors import BrokerUnavailable
from tests.support.servers import ExternalServer, Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire, order

#: Far above what a wake-up takes, far below the waits, on a busy machine.
SOON = 1.0


@pytest.fixture
def wire(broker_server: Server | ExternalServer, namespace: str) -> Iterator[Wire]:
    wire = Wire(broker_server.url, namespace)
    yield wire
    wire.close()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def after(seconds: float, call: Callable[[], Any]) -> threading.Timer:
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


def test_a_wait_ends_on_time(wire: Wire) -> None:
    """The server's own time limits are a tenth of a second coarse."""
    wire.scheduler.wait(0.001)

    woken, seconds = min((timed(lambda: wire.scheduler.wait(0.02)) for _ in range(5)), key=_second)

    assert not woken
    assert 0.02 <= seconds < 0.06


def _second(pair: tuple[Any, float]) -> float:
    return pair[1]


def test_no_wait_at_all_is_possible(wire: Wire) -> None:
    assert not wire.scheduler.wait(0)
    assert not wire.worker.wait(["default"], -1)


def test_a_new_row_wakes_the_leader(wire: Wire) -> None:
    timer = after(0.05, wire.broker.wake_scheduler)

    woken, seconds = timed(lambda: wire.scheduler.wait(10))

    timer.join()
    assert woken
    assert seconds < SOON


def test_a_push_between_two_waits_is_not_lost(wire: Wire) -> None:
    assert not wire.scheduler.wait(0.01)
    wire.broker.wake_scheduler()

    assert timed(lambda: wire.scheduler.wait(10))[1] < SOON


def test_many_pushes_are_one_look_or_a_few(wire: Wire, redis_client: redis.Redis) -> None:
    for _ in range(100):
        wire.broker.wake_scheduler()

    assert redis_client.llen(wire.key("wake")) <= 4
    assert 0 < redis_client.ttl(wire.key("wake")) <= 60


def test_an_entry_wakes_a_worker_of_its_queue(wire: Wire) -> None:
    timer = after(0.05, lambda: wire.broker.promote(0, [order(queue="mail")]))

    woken, seconds = timed(lambda: wire.worker.wait(["default", "mail"], 10))

    timer.join()
    assert woken
    assert seconds < SOON


def test_a_batch_wakes_several_workers_and_not_one_for_each_entry(
    wire: Wire, redis_client: redis.Redis
) -> None:
    """R093: several waiters wake, and no key stays for ever."""
    workers = [Wire(wire.url, wire.namespace).worker for _ in range(3)]
    woken: list[bool] = []
    threads = [
        threading.Thread(target=lambda w=w: woken.append(w.wait(["default"], 10)))  # type: ignore[misc]
        for w in workers
    ]
    for thread in threads:
        thread.start()
    wire.broker.promote(0, [order() for _ in range(200)])
    for thread in threads:
        thread.join()

    assert woken == [True] * 3
    assert redis_client.llen(wire.key("wake:default")) <= 16
    assert 0 < redis_client.ttl(wire.key("wake:default")) <= 60
    for worker in workers:
        worker.close()


def test_what_was_known_already_wakes_nobody(wire: Wire, redis_client: redis.Redis) -> None:
    run = order()
    wire.broker.promote(0, [run])
    redis_client.delete(wire.key("wake:default"))

    wire.broker.promote(0, [run])

    assert not redis_client.exists(wire.key("wake:default"))


def test_a_worker_without_room_leaves_the_wake_up_to_others(
    wire: Wire, redis_client: redis.Redis
) -> None:
    """
    Given a worker that waited, found work all the same and has no room left.
    When more work comes.
    Then the token stays for a worker that has room.
    """
    assert not wire.worker.wait(["default"], 0.01)
    redis_client.xadd(wire.stream(), {"v": "1"})
    assert len(wire.taken(1)) == 1

    wire.broker.promote(0, [order()])

    idle = Wire(wire.url, wire.namespace).worker
    assert timed(lambda: idle.wait(["default"], 10))[1] < SOON
    idle.close()


def test_a_token_that_came_too_late_is_passed_on(wire: Wire, redis_client: redis.Redis) -> None:
    assert not wire.worker.wait(["default"], 0.01)
    wire.broker.promote(0, [order()])
    wait_until(lambda: not redis_client.exists(wire.key("wake:default")))

    assert len(wire.taken(1)) == 1

    assert redis_client.llen(wire.key("wake:default")) == 1
    assert 0 < redis_client.ttl(wire.key("wake:default")) <= 60


def test_a_former_leader_steals_no_wake_up(wire: Wire) -> None:
    """Given a leader that waited, and stands by now. When a row comes. Then the leader that is hears of it."""
    former, present = wire.scheduler, Wire(wire.url, wire.namespace).scheduler
    former.wait(0.01)
    former.wait_for_lease(0.01)

    wire.broker.wake_scheduler()

    assert timed(lambda: present.wait(10))[1] < SOON
    present.close()


def test_another_thread_ends_a_wait(wire: Wire) -> None:
    timer = after(0.05, wire.worker.interrupt)

    woken, seconds = timed(lambda: wire.worker.wait(["default"], 10))

    timer.join()
    assert not woken
    assert seconds < SOON


def test_a_signal_handler_ends_a_wait(wire: Wire) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: wire.scheduler.interrupt())
    try:
        main = threading.main_thread().ident or 0
        timer = after(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
        assert timed(lambda: wire.scheduler.wait(10))[1] < SOON
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_between_two_waits_ends_the_next_one_only(wire: Wire) -> None:
    wire.scheduler.wait(0.01)
    for _ in range(100_000):
        # More than a pipe holds: a handler must never block.
        wire.scheduler.interrupt()

    assert timed(lambda: wire.scheduler.wait(10))[1] < SOON
    while timed(lambda: wire.scheduler.wait(0.1))[1] < 0.1:
        continue
    assert timed(lambda: wire.scheduler.wait(0.1))[1] >= 0.1


def test_a_wait_says_that_redis_is_gone_and_works_when_it_is_back(
    make_server: Callable[..., Server], namespace: str
) -> None:
    """R100."""
    server = make_server()
    wire = Wire(server.url, namespace)
    assert not wire.worker.wait(["default"], 0.01)
    timer = after(0.05, server.kill)

    with pytest.raises(BrokerUnavailable):
        wire.worker.wait(["default"], 10)
    timer.join()
    with pytest.raises(BrokerUnavailable):
        wire.worker.wait(["default"], 10)

    server.start()
    assert not wire.worker.wait(["default"], 0.01)
    wire.broker.promote(0, [order()])
    assert wire.worker.wait(["default"], 10)
    wire.close()


def test_a_wait_on_a_server_that_answers_nothing_ends_on_time(
    make_server: Callable[..., Server], namespace: str
) -> None:
    server = make_server()
    wire = Wire(server.url, namespace)
    wire.worker.wait(["default"], 0.01)
    server.freeze()

    woken, seconds = timed(lambda: wire.worker.wait(["default"], 0.1))

    server.resume()
    assert not woken
    assert 0.1 <= seconds < SOON
    wire.close()
