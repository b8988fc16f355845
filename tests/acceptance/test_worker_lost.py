"""A worker dies or stands still with runs in hand: others take them over, and one outcome is recorded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from smallage_django import enqueue_many
from smallage_django.models import Attempt, Run
from tests.app import tasks
from tests.support.freezing import freeze_between_writes
from tests.support.ledger import QUICK, Ledger
from tests.support.processes import Processes
from tests.support.waiting import stays, wait_until


@pytest.fixture
def door(tmp_path: Path) -> Path:
    """While this file is not there, ``record_and_hold`` stays in user code."""
    return tmp_path / "door"


@pytest.mark.parametrize("peer", ["stands by", "is started afterwards"])
def test_runs_of_a_killed_worker_are_taken_over(
    processes: Processes, ledger: Ledger, door: Path, peer: str
) -> None:
    """I1, I2. Given a worker in the middle of three runs, when it is killed, then another one takes them over as
    attempt 2, and attempt 1 is on record as lost."""
    processes.configure(**QUICK)
    processes.scheduler()
    first = processes.worker()
    names = [ledger.wait_for_worker(first)]
    held = [tasks.record_and_hold.enqueue(key=f"held {n}", path=str(door)).id for n in range(3)]
    for fire_id in held:
        ledger.wait_for_attempt(fire_id, 1)
    wait_until(lambda: ledger.effects().total() == 3, 10, message=ledger.tell)
    if peer == "stands by":
        second = processes.worker()
        names.append(ledger.wait_for_worker(second))

    first.kill()
    if peer != "stands by":
        second = processes.worker()
        names.append(ledger.wait_for_worker(second))

    for fire_id in held:
        assert ledger.wait_for_attempt(fire_id, 2).worker == names[1]
    door.touch()
    # The effect came before the loss and again after it: the one window, told by the same fire id.
    rows = ledger.settle(3, twice=held)
    assert {run.attempt for run in rows} == {2}
    assert ledger.losses() == [(fire_id, 1) for fire_id in sorted(held)]
    lost = Attempt.objects.filter(ending="lost").first()
    assert lost is not None
    assert lost.worker == names[0]
    assert "went silent" in lost.error


def test_workers_killed_under_load_lose_nothing(processes: Processes, ledger: Ledger) -> None:
    """Given 400 short runs, when workers are killed at random moments, then each run has one recorded success, and
    an effect came twice only where an attempt is on record as lost."""
    processes.configure(**QUICK)
    processes.scheduler()
    workers = [processes.worker("--threads", "4"), processes.worker("--threads", "4")]
    for worker in workers:
        ledger.wait_for_worker(worker)
    enqueue_many(tasks.record, [{"key": f"{number}"} for number in range(400)])

    # Two deaths leave everybody the third attempt.
    for moment in sorted(random.sample(range(20, 300), 2)):
        ledger.wait_for_successes(moment)
        workers.pop(0).kill()
        workers.append(processes.worker("--threads", "4"))

    rows = ledger.settle_rows(400)
    again = {run.fire_id for run in rows if run.attempt > 1}
    assert {fire_id for fire_id, _ in ledger.losses()} == again
    twice = {fire_id for fire_id, count in ledger.effects().items() if count > 1}
    assert twice <= again


def test_a_worker_that_was_stopped_past_its_liveness_cannot_record_its_outcome(
    processes: Processes, ledger: Ledger, door: Path
) -> None:
    """I7. Given a run whose worker stands still, when a peer takes it over and finishes, and the worker goes on, then
    the late outcome is refused and the worker works on."""
    processes.configure(**QUICK)
    processes.scheduler()
    first = processes.worker()
    ledger.wait_for_worker(first)
    held = tasks.record_and_hold.enqueue(key="held", path=str(door)).id
    ledger.wait_for_attempt(held, 1)
    wait_until(lambda: ledger.effects()[held] == 1, 10)
    second = processes.worker()
    peer = ledger.wait_for_worker(second)

    freeze_between_writes(first)
    taken = ledger.wait_for_attempt(held, 2)
    assert taken.worker == peer
    door.touch()
    ledger.wait_for_successes(1)
    ended_at = Run.objects.get().finished_at
    second.terminate()
    assert second.wait() == 0
    first.resume()

    first.wait_for_output(f"{held}: ownership lost, outcome of attempt 1 not recorded")
    after = tasks.record.enqueue(key="after").id
    rows = ledger.settle(2, twice=[held])
    by_id = {run.fire_id: run for run in rows}
    assert by_id[held].attempt == 2
    assert by_id[held].worker == peer
    assert by_id[held].finished_at == ended_at
    assert by_id[after].worker != peer
    assert ledger.losses() == [(held, 1)]


def test_a_long_run_of_a_worker_that_lives_stays_with_it(
    processes: Processes, ledger: Ledger, door: Path
) -> None:
    """I3: the owner's liveness decides, however long a run takes. Idle peers look and leave it alone."""
    processes.configure(**QUICK)
    processes.scheduler()
    workers = [processes.worker(), processes.worker()]
    for worker in workers:
        ledger.wait_for_worker(worker)
    held = tasks.record_and_hold.enqueue(key="held", path=str(door)).id
    begun = ledger.wait_for_attempt(held, 1)

    # For longer than liveness and grace together, and a look of the peer.
    stays(lambda: Run.objects.get().attempt == 1, QUICK["ALIVE_TTL"] + QUICK["RECLAIM_GRACE"] + 2)
    door.touch()

    rows = ledger.settle(1)
    assert rows[0].worker == begun.worker
    assert ledger.losses() == []
