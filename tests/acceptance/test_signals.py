"""SIGTERM and SIGINT, sent to the process or to its whole group: drain, hand back, stop; twice, stop at once."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from smallage_django.models import Heartbeat, Run
from tests.app import tasks
from tests.support.ledger import Ledger
from tests.support.processes import Process, Processes
from tests.support.servers import Server
from tests.support.waiting import stays, wait_until

#: What a busy machine adds to a promise about time, seconds.
SLACK_S = 1.0
#: From the first signal to the second: well after the handler of the first.
BETWEEN_S = 0.3


def send(process: Process, signum: signal.Signals, *, to_group: bool) -> None:
    """As ``kill`` sends it, or as a terminal and ``timeout`` do."""
    if to_group:
        process.signal_group(signum)
    else:
        process.signal(signum)


def stop_time(process: Process) -> float:
    """Wait for the end of a process that was just told to stop, hold that it ended well; how long it took, seconds."""
    began = time.monotonic()
    assert process.wait(10) == 0, process.tail()
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("signum", "to_group"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["kill", "^C"]
)
def test_idle_processes_stop_promptly(
    processes: Processes, ledger: Ledger, signum: signal.Signals, to_group: bool
) -> None:
    """R099, Q1: under a second, exit code 0, for a worker, a leader and a standby."""
    schedulers = [processes.scheduler(), processes.scheduler()]
    worker = processes.worker()
    leader = ledger.leader(*schedulers)
    standby = next(one for one in schedulers if one is not leader)
    wait_until(lambda: Heartbeat.objects.count() == 3, 20)

    for process in (worker, standby, leader):
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        send(process, signum, to_group=to_group)
        assert stop_time(process) < 1 + SLACK_S
    assert "Traceback" not in worker.output + leader.output + standby.output
    assert Heartbeat.objects.get(role="worker").stopped_at is not None


def test_a_worker_that_is_asked_to_stop_ends_what_is_short_and_hands_back_what_is_long(
    processes: Processes, ledger: Ledger, tmp_path: Path
) -> None:
    """R097, I11, with liveness at its default: the long run is another's at once, not when the worker looks dead."""
    processes.configure(DRAIN_TIMEOUT=1.5)
    short_door, long_door = tmp_path / "short", tmp_path / "long"
    first = processes.worker("--threads", "2")
    name = ledger.wait_for_worker(first)
    short = tasks.record_and_hold.enqueue(key="short", path=str(short_door)).id
    long = tasks.record_and_hold.enqueue(key="long", path=str(long_door)).id
    for fire_id in (short, long):
        ledger.wait_for_attempt(fire_id, 1)
    wait_until(lambda: ledger.effects().total() == 2, 10)
    second = processes.worker("--threads", "2")
    peer = ledger.wait_for_worker(second)

    send(first, signal.SIGTERM, to_group=True)
    stays(lambda: first.alive, 0.5)
    short_door.touch()
    assert first.wait(10) == 0, first.tail()
    ended_at = timezone.now()

    taken = ledger.wait_for_attempt(long, 2)
    assert taken.worker == peer
    assert _after(ended_at, taken.started_at) < 2 + SLACK_S
    long_door.touch()
    rows = ledger.settle(2, twice=[long])
    assert {run.fire_id: (run.attempt, run.worker) for run in rows} == {
        short: (1, name),
        long: (2, peer),
    }
    assert f"{long}: still running at the end, left for others" in first.output
    assert ledger.losses() == [(long, 1)]


def test_a_second_signal_stops_a_worker_at_once(
    processes: Processes, ledger: Ledger, tmp_path: Path
) -> None:
    """R098: under a second, whatever the budget for draining is; what it ran is another's at once."""
    door = tmp_path / "door"
    worker = processes.worker("--threads", "1")
    ledger.wait_for_worker(worker)
    held = tasks.record_and_hold.enqueue(key="held", path=str(door)).id
    waiting = tasks.record.enqueue(key="waiting").id
    ledger.wait_for_attempt(held, 1)
    wait_until(lambda: ledger.effects()[held] == 1, 10)

    worker.terminate()
    stays(lambda: worker.alive, BETWEEN_S)
    worker.terminate()
    assert stop_time(worker) < 1 + SLACK_S

    door.touch()
    processes.worker()
    rows = ledger.settle(2, twice=[held])
    assert {run.fire_id: run.attempt for run in rows} == {held: 2, waiting: 1}


def test_a_second_signal_stops_processes_that_wait_for_a_frozen_redis(
    own_broker: Server, processes: Processes, ledger: Ledger
) -> None:
    """R098: also where the first is heeded late, since Redis answers nothing."""
    scheduler, worker = processes.scheduler(), processes.worker()
    ledger.leader(scheduler)
    ledger.wait_for_worker(worker)
    own_broker.freeze()
    # Until the scheduler is in the middle of a call, whose answer it will wait for.
    stays(lambda: scheduler.alive, 1.2)

    for process in (scheduler, worker):
        process.terminate()
    stays(lambda: True, BETWEEN_S)
    for process in (scheduler, worker):
        process.terminate()
    for process in (scheduler, worker):
        assert stop_time(process) < 1 + SLACK_S
    assert Run.objects.count() == 0


def _after(earlier: datetime, later: datetime | None) -> float:
    assert later is not None
    return (later - earlier) / timedelta(seconds=1)
