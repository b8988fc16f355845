"""A scheduler that dies at every single step, and a Redis that loses its data at every one: PROTOCOL 2.4.

Three fires are due at one instant: an occurrence, a delayed run and a run that an application committed. The steps are
the calls into the store and the broker, in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from smallage_django.domain.lifecycle import State
from smallage_django.domain.recurrence import Cron
from smallage_django.scheduler import Scheduler
from tests.support.fate import Died, Fate
from tests.support.memory_store import Plan, Promise
from tests.support.memory_world import START, World

DUE = START + timedelta(seconds=30)
#: A claim is as old as it must be to be recovered, and the dead leader's lease has run out.
LATER = DUE + timedelta(seconds=10)
#: A round of maintenance has come, whatever Redis says of itself.
A_MINUTE_LATER = DUE + timedelta(seconds=70)
SIDES = pytest.mark.parametrize("after", [False, True], ids=["before the call", "answer lost"])


def three_fires() -> World:
    """One schedule, one delayed run and one pending run, all due at ``DUE`` and not again for an hour."""
    world = World()
    world.store.plans.append(Plan("hourly", Cron("1 * * * *"), START))
    world.store.promises.append(Promise(DUE))
    world.store.owe(DUE)
    return world


def lead(world: World, scheduler: Scheduler) -> bool:
    """Two passes, before the instant and at it; whether the process lived to see their end."""
    try:
        world.tick(scheduler, START)
        world.tick(scheduler, DUE)
    except Died:
        return False
    return True


def every_call(
    after: bool, what: Callable[[World], Any] | None = None
) -> Iterator[tuple[World, Scheduler, Fate]]:
    """A new world for each call, in which fate has struck at that call; ends with the one that it did not reach."""
    number, reached = 0, True
    while reached:
        number += 1
        world = three_fires()
        fate = Fate(number, after, None if what is None else lambda: what(world))  # noqa: B023
        leader = world.scheduler("a", fate)
        lead(world, leader)
        reached = fate.met
        yield world, leader, fate
    assert number > 20


def assert_each_fired_once(world: World, told: str) -> None:
    assert len(world.store.runs) == 3, told
    assert set(world.store.effects.values()) == {1}, told
    assert len(world.store.effects) == 3, told
    assert {row.state for row in world.store.runs.values()} == {State.SUCCEEDED}, told
    assert not any(world.server.streams.values()), told


@SIDES
def test_whenever_a_scheduler_dies_the_next_one_ends_what_it_began_without_doubling(
    after: bool,
) -> None:
    """R057, R058, R059, R073; PROTOCOL 2.4, the scheduler's column at every step."""
    struck = set()
    for world, _, fate in every_call(after):
        # Given three due fires and a leader that died; when another one leads, and a worker works
        world.tick(world.scheduler("b"), LATER)
        world.work_off()

        # Then each ran once, from one entry
        assert_each_fired_once(world, fate.told)
        assert set(world.server.added.values()) == {1}, fate.told
        struck.add(fate.names[min(fate.at, fate.calls) - 1])
    assert struck >= {
        "acquire", "open_term", "incarnation", "plan_stale", "survey", "fire_schedules",
        "fire_delayed", "claim_due", "promote", "mark_enqueued", "record_pass", "beat",
    }  # fmt: skip


@SIDES
def test_whenever_a_scheduler_dies_and_redis_loses_everything_each_fire_still_ends_once(
    after: bool,
) -> None:
    """R073; PROTOCOL 2.4, crash and flush together."""
    for world, _, fate in every_call(after):
        world.server.flush()
        world.tick(world.scheduler("b"), LATER)
        world.work_off()
        assert_each_fired_once(world, fate.told)


@SIDES
def test_a_flush_at_any_step_costs_a_living_leader_nothing_but_a_pass(after: bool) -> None:
    """R053, R073; PROTOCOL 2.4, the column of Redis: lease, fence, markers and entries are gone at once."""
    for world, leader, fate in every_call(after, lambda world: world.server.flush()):
        world.tick(leader, DUE + timedelta(seconds=1))
        world.tick(leader, LATER)
        world.work_off()
        assert_each_fired_once(world, fate.told)


@SIDES
def test_entries_deleted_under_their_markers_at_any_step_are_added_again(after: bool) -> None:
    """PROTOCOL 2.4: a marker that outlived its entry is replaced, and only that one."""
    for world, leader, fate in every_call(after, lambda world: world.server.drop_entries()):
        world.tick(leader, LATER)
        world.tick(leader, A_MINUTE_LATER)
        world.work_off()
        assert_each_fired_once(world, fate.told)
        assert max(world.server.added.values()) <= 2, fate.told


def test_from_any_step_back_to_any_earlier_snapshot_each_fire_ends_once() -> None:
    """R073; PROTOCOL 2.4, roll-back: Redis is killed at call n and comes back as it was at call m."""
    pairs = 0
    for total in range(1, 60):
        for snapshot_at in range(1, total + 1):
            world = three_fires()
            saved: dict[str, Any] = {}
            fate = Fate(total, what=lambda: world.server.load(saved))  # noqa: B023
            inner = Fate(snapshot_at, what=lambda: saved.update(world.server.save()))  # noqa: B023
            # Both count the same calls; the snapshot comes first.
            world.server.on_call = world.store.on_call = None
            leader = world.scheduler("a", _Both(inner, fate))
            assert lead(world, leader)
            if not fate.met:
                assert pairs > 300
                return
            pairs += 1
            world.tick(leader, LATER)
            world.tick(leader, A_MINUTE_LATER)
            world.work_off()
            assert_each_fired_once(world, f"{fate.told}, as at call {snapshot_at}")


class _Both:
    """Two fates of one process."""

    def __init__(self, *fates: Fate) -> None:
        self._fates = fates

    def meet(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        for fate in self._fates:
            fate.meet(name, lambda: None)
        return call(*args)


def test_a_snapshot_older_than_finished_work_brings_nothing_back_to_life() -> None:
    """PROTOCOL 2.4, last row: four fires, three finished since the snapshot, one waiting that it never saw."""
    world = three_fires()
    leader = world.scheduler("a")
    lead(world, leader)
    assert len(world.server.order) == 3
    snapshot = world.server.save()
    world.work_off()
    late = world.store.owe(DUE + timedelta(seconds=2))
    world.tick(leader, DUE + timedelta(seconds=2))
    assert world.server.order == [late.fire_id]

    world.server.load(snapshot)
    world.tick(leader, A_MINUTE_LATER)

    assert world.server.order == [late.fire_id]
    assert world.work_off() == 1
    assert dict(world.store.effects) == dict.fromkeys(world.store.runs, 1)
