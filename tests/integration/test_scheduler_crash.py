"""A scheduler that dies at every single step, over the real rows: PROTOCOL 2.4 with nothing but the death made up.

Over the transport in memory the whole matrix is cheap; over a real server it is the scripts that are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from smallage_django.broker import RedisBroker
from smallage_django.models import (
    Attempt,
    DelayedRun,
    Heartbeat,
    LeaderTerm,
    Outage,
    Run,
    RunEvent,
    Schedule,
)
from smallage_django.runner import InlineRunner
from smallage_django.scheduler import Scheduler
from smallage_django.store.scheduling import SchedulingStore
from smallage_django.store.working import WorkingStore
from smallage_django.worker import Options, Worker
from tests.app.models import Effect
from tests.support.fate import Died, Fate
from tests.support.memory_transport import MemoryTransport
from tests.support.memory_world import START, Clock, World
from tests.support.runs import make_run
from tests.support.servers import Server

pytestmark = pytest.mark.django_db(transaction=True)

DUE = START + timedelta(seconds=30)
LATER = DUE + timedelta(seconds=10)
RECORD = "tests.app.tasks.record"
SIDES = pytest.mark.parametrize("after", [False, True], ids=["before the call", "answer lost"])


def three_fires(server: Any) -> World:
    """One schedule, one delayed run and one pending run, all due at ``DUE`` and not again for an hour."""
    for model in (
        Attempt, RunEvent, Run, DelayedRun, Schedule, Outage, LeaderTerm, Heartbeat, Effect,
    ):  # fmt: skip
        model.objects.all().delete()
    Schedule.objects.create(
        name="hourly", expression="1 * * * *", task=RECORD, kwargs={"key": "s"}, created_at=START
    )
    DelayedRun.objects.create(run_at=DUE, task=RECORD, kwargs={"key": "d"}, created_at=START)
    make_run(
        task=RECORD, kwargs={"key": "r"}, state="pending", claimed_at=None,
        due_at=DUE, scheduled_for=DUE,
    )  # fmt: skip
    facts = {"host": "h", "pid": 1, "version": "0"}
    return World(store=SchedulingStore("default"), server=server, facts=facts)  # type: ignore[arg-type]


def lead(world: World, scheduler: Scheduler) -> bool:
    """Two passes, before the instant and at it; whether the process lived to see their end."""
    try:
        world.tick(scheduler, START)
        world.tick(scheduler, DUE)
    except Died:
        return False
    return True


def every_call(
    make_server: Callable[[], Any], after: bool, what: Callable[[World], Any] | None = None
) -> Iterator[tuple[World, Scheduler, Fate]]:
    """New rows for each call, in which fate has struck at that call; ends with the one that it did not reach."""
    number, reached = 0, True
    while reached:
        number += 1
        world = three_fires(make_server())
        fate = Fate(number, after, None if what is None else lambda: what(world))  # noqa: B023
        leader = world.scheduler("a", fate)
        lead(world, leader)
        reached = fate.met
        yield world, leader, fate
    assert number > 20


def work_off(world: World, transport: Any) -> None:
    """One real worker, until nothing is ready."""
    facts = {"host": "h", "pid": 1, "version": "0", "threads": 1}
    options = Options(name="w", queues=["default"], burst=True, facts=facts)
    Worker(WorkingStore("default"), transport, InlineRunner(), Clock(world), options).work_off()


def assert_each_ended_once(told: str) -> None:
    effects = Counter(Effect.objects.values_list("key", flat=True))
    assert effects == {"s": 1, "d": 1, "r": 1}, told
    assert set(Run.objects.values_list("state", "attempt")) == {("succeeded", 1)}, told
    assert Run.objects.count() == 3, told
    delayed = DelayedRun.objects.get()
    assert (delayed.state, delayed.run.kind) == ("fired", "delayed"), told
    assert Schedule.objects.get().next_due_at == DUE + timedelta(hours=1), told
    assert LeaderTerm.objects.filter(ended_at__isnull=True).count() <= 1, told


@SIDES
def test_whenever_a_scheduler_dies_the_next_one_ends_what_it_began_without_doubling(
    after: bool,
) -> None:
    """R057, R058, R059, R073; PROTOCOL 2.4, the scheduler's column at every step, over SQL."""
    for world, _, fate in every_call(MemoryTransport, after):
        # When another scheduler leads, and a worker works
        world.tick(world.scheduler("b"), LATER)
        work_off(world, world.server)

        # Then each ran once, from one entry
        assert_each_ended_once(fate.told)
        assert set(world.server.added.values()) == {1}, fate.told


@SIDES
def test_a_flush_at_any_step_costs_a_living_leader_nothing_but_a_pass(after: bool) -> None:
    """R053, R073; PROTOCOL 2.4, the column of Redis, over SQL."""
    for world, leader, fate in every_call(
        MemoryTransport, after, lambda world: world.server.flush()
    ):
        world.tick(leader, DUE + timedelta(seconds=1))
        world.tick(leader, LATER)
        work_off(world, world.server)
        assert_each_ended_once(fate.told)


@SIDES
def test_the_same_over_a_real_server(
    after: bool, make_server: Callable[..., Server], namespace: str
) -> None:
    """R058, R059, R060, R073: the scripts' markers keep what a dead scheduler added from being added twice."""
    server = make_server()
    broker = RedisBroker(server.url, namespace)
    keys = broker._names
    with server.client() as client:
        for world, _, fate in every_call(lambda: broker, after):
            # Given that the dead leader's lease has run out
            client.delete(keys.lease)
            world.tick(world.scheduler("b"), LATER)

            # Then the three are in the stream, each once
            stream = keys.shard("default", 0, 0)
            ids = sorted(fields[b"id"].decode() for _, fields in client.xrange(stream))
            assert ids == sorted(Run.objects.values_list("fire_id", flat=True)), fate.told
            assert set(Run.objects.values_list("state", flat=True)) == {"enqueued"}, fate.told
            work_off(world, broker.worker())
            assert_each_ended_once(fate.told)
            assert client.xlen(stream) == 0
            client.flushall()


@SIDES
def test_a_real_server_that_is_flushed_at_any_step(
    after: bool, make_server: Callable[..., Server], namespace: str
) -> None:
    """R073: FLUSHALL at each step of the matrix, scripts and lease included."""
    server = make_server()
    broker = RedisBroker(server.url, namespace)
    with server.client() as client:
        for world, leader, fate in every_call(lambda: broker, after, lambda _: client.flushall()):
            world.tick(leader, DUE + timedelta(seconds=1))
            world.tick(leader, LATER)
            work_off(world, broker.worker())
            assert_each_ended_once(fate.told)
            client.flushall()


def test_a_real_server_rolled_back_to_a_snapshot_runs_nothing_twice(
    make_server: Callable[..., Server], namespace: str
) -> None:
    """PROTOCOL 2.4, last row: killed and back as it was before the work was done."""
    # Given three entries in a snapshot, all worked off since, and a fourth that the snapshot does not know
    server = make_server()
    broker = RedisBroker(server.url, namespace)
    world = three_fires(broker)
    leader = world.scheduler("a")
    assert lead(world, leader)
    snapshot = server.snapshot()
    work_off(world, broker.worker())
    assert_each_ended_once("before the roll-back")
    fourth = make_run(task=RECORD, kwargs={"key": "4"}, state="pending", claimed_at=None)
    Run.objects.filter(pk=fourth.pk).update(due_at=DUE + timedelta(seconds=2))
    world.tick(leader, DUE + timedelta(seconds=2))

    # When Redis comes back as it was, and maintenance has had its minute
    server.roll_back(snapshot)
    world.tick(leader, DUE + timedelta(seconds=70))

    # Then only the fourth is in the stream, and it runs once
    with server.client() as client:
        entries = client.xrange(broker._names.shard("default", 0, 0))
        assert [fields[b"id"].decode() for _, fields in entries] == [fourth.fire_id]
    work_off(world, broker.worker())
    assert Counter(Effect.objects.values_list("key", flat=True)) == dict.fromkeys("sdr4", 1)
