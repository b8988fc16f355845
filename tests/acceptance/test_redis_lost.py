"""Redis loses everything, or stands still, or forgets its scripts, while a scheduler and a lone worker are at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from smallage_django.models import Heartbeat, Run, Schedule
from tests.app import tasks
from tests.support.ledger import QUICK, Ledger, assert_every_second, every_second, one_offs
from tests.support.processes import Processes
from tests.support.servers import Server
from tests.support.waiting import stays, wait_until

#: How many runs have succeeded when a fault comes, so that it falls into the middle of something.
ONCE, TWICE = (40,), (40, 110)


def flush(server: Server) -> None:
    server.flush()


def restart_empty(server: Server) -> None:
    server.restart(kill=True)


def stand_still(server: Server) -> None:
    server.freeze()
    stays(lambda: server.alive, 3, interval=0.1)
    server.resume()


def forget_scripts_and_clients(server: Server) -> None:
    with server.client() as client:
        client.script_flush()
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")


@pytest.mark.parametrize(
    ("fault", "moments"),
    [
        (flush, TWICE),
        (restart_empty, TWICE),
        (stand_still, ONCE),
        (forget_scripts_and_clients, TWICE),
    ],
)
def test_a_scheduler_and_a_lone_worker_go_on_after(
    own_broker: Server,
    processes: Processes,
    ledger: Ledger,
    fault: Callable[[Server], None],
    moments: Sequence[int],
) -> None:
    """R073, R101, H1, H2, H4. Given runs in every state, when Redis fails and comes back, then each fire ends once,
    and neither process has to be started again."""
    processes.configure(**QUICK)
    scheduler, worker = processes.scheduler(), processes.worker("--threads", "4")
    ledger.leader(scheduler)
    ledger.wait_for_worker(worker)
    every_second()
    one_offs(200, timezone.now() + timedelta(milliseconds=200), timedelta(milliseconds=10))

    for number, moment in enumerate(moments):
        ledger.wait_for_successes(moment)
        tasks.record.enqueue(key=f"just before {number}")
        fault(own_broker)
        tasks.record.enqueue(key=f"just after {number}")
    enqueued = 2 * len(moments)
    ledger.wait_for_successes(200 + enqueued)
    Schedule.objects.update(enabled=False)
    wait_until(lambda: Schedule.objects.filter(state="paused").exists(), 10, message=ledger.tell)

    scheduled = Run.objects.filter(kind="schedule").count()
    rows = ledger.settle(200 + enqueued + scheduled)
    assert_every_second([run for run in rows if run.kind == "schedule"])
    assert {run.attempt for run in rows} == {1}
    assert scheduler.alive
    assert worker.alive
    assert "Traceback" not in scheduler.output + worker.output


def test_a_flush_does_not_double_what_a_living_worker_runs(
    own_broker: Server, processes: Processes, ledger: Ledger, tmp_path: Path
) -> None:
    """Given a long run in hand, when Redis is flushed, then the run stays where it is, and ends once."""
    processes.configure(**QUICK)
    scheduler, worker = processes.scheduler(), processes.worker()
    ledger.leader(scheduler)
    ledger.wait_for_worker(worker)
    door = tmp_path / "door"
    held = tasks.record_and_hold.enqueue(key="held", path=str(door)).id
    ledger.wait_for_attempt(held, 1)

    own_broker.flush()
    scheduler.wait_for_output("Redis lost its data")
    tasks.record.enqueue(key="after the flush")
    ledger.wait_for_successes(1)
    stays(lambda: Run.objects.get(fire_id=held).promotion == 0, 1)
    door.touch()

    rows = ledger.settle(2)
    assert {run.attempt for run in rows} == {1}


def test_everything_dies_and_redis_comes_back_empty(
    own_broker: Server, processes: Processes, ledger: Ledger, tmp_path: Path
) -> None:
    """R002 and R073 together: runs that waited in Redis, and one in the middle of user code."""
    processes.configure(**QUICK)
    before = [processes.scheduler(), processes.worker("--threads", "1")]
    ledger.leader(before[0])
    name = ledger.wait_for_worker(before[1])
    door = tmp_path / "door"
    held = tasks.record_and_hold.enqueue(key="held", path=str(door)).id
    ledger.wait_for_attempt(held, 1)
    wait_until(lambda: ledger.effects()[held] == 1, 10)
    waiting = [tasks.record.enqueue(key=f"waiting {number}").id for number in range(5)]
    one_offs(5, timezone.now())
    wait_until(lambda: Run.objects.filter(state="enqueued").count() >= 5, 20, message=ledger.tell)

    for process in before:
        process.kill()
    own_broker.restart(kill=True)
    door.touch()
    silent = timedelta(seconds=QUICK["ALIVE_TTL"])
    # A worker that showed itself a moment ago counts as alive, and what it runs as its own until the next round.
    wait_until(lambda: Heartbeat.objects.get(name=name).beat_at < timezone.now() - silent, 10)
    processes.scheduler()
    processes.worker()

    rows = ledger.settle(11, twice=[held])
    assert {run.fire_id: run.attempt for run in rows if run.attempt > 1} == {held: 2}
    assert {run.fire_id for run in rows} > set(waiting)
    assert ledger.losses() == [(held, 1)]
