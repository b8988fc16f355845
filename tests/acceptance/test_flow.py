"""From a row to a recorded outcome, through real processes, and through a restart of all of them."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from smallage_django import enqueue_many
from smallage_django.models import LeaderTerm, Run, Schedule
from tests.app import tasks
from tests.support.ledger import QUICK, Ledger, assert_every_second, every_second, one_offs
from tests.support.processes import Processes
from tests.support.waiting import wait_until


def test_two_schedulers_and_two_workers_make_one_run_of_each_promise(
    processes: Processes, ledger: Ledger
) -> None:
    """R004, G11: a schedule each second, delayed runs and enqueues; nothing twice, nothing lost."""
    schedulers = [processes.scheduler(), processes.scheduler()]
    workers = [processes.worker(), processes.worker()]
    every_second()
    one_offs(40, timezone.now() + timedelta(seconds=1), timedelta(milliseconds=50))
    for number in range(20):
        tasks.record.enqueue(key=f"alone {number}")
    enqueue_many(tasks.record, [{"key": f"together {number}"} for number in range(40)])

    ledger.wait_for_successes(100 + 4)
    scheduled = Run.objects.filter(kind="schedule")
    wait_until(lambda: scheduled.filter(state="succeeded").count() >= 5, 20, message=ledger.tell)
    Schedule.objects.update(enabled=False)
    wait_until(lambda: Schedule.objects.filter(state="paused").exists(), 10)

    rows = ledger.settle(100 + scheduled.count())
    assert_every_second([run for run in rows if run.kind == "schedule"])
    assert {run.attempt for run in rows} == {1}
    assert all(process.alive for process in (*schedulers, *workers))
    # One of the two led all the time, and the other had nothing to say about it.
    assert LeaderTerm.objects.count() == 1
    leader = ledger.leader(*schedulers)
    standby = next(one for one in schedulers if one is not leader)
    assert "WARNING" not in leader.output + standby.output
    assert len(standby.output.splitlines()) <= 2, standby.tail()


def test_a_promise_outlives_every_process(processes: Processes, ledger: Ledger) -> None:
    """R002: created, all killed, started again: it fires."""
    processes.configure(**QUICK)
    before = [processes.scheduler(), processes.worker()]
    ledger.leader(before[0])
    ledger.wait_for_worker(before[1])
    one_offs(5, timezone.now() + timedelta(seconds=2))
    tasks.record.using(run_after=timedelta(seconds=2)).enqueue(key="from the task framework")

    for process in before:
        process.kill()
    assert Run.objects.count() == 0
    processes.scheduler()
    processes.worker()

    rows = ledger.settle(6)
    assert {run.kind for run in rows} == {"delayed"}
