"""Redis is not there: processes start and wait quietly, requests notice nothing, and all of it happens afterwards."""

from __future__ import annotations

import time

import psutil
from django.db import transaction

from smallage_django.models import Run
from tests.app import tasks
from tests.support.ledger import Ledger, every_second
from tests.support.processes import Process, Processes
from tests.support.servers import Server
from tests.support.waiting import stays, wait_until


def test_processes_start_without_redis_and_work_when_it_comes(
    own_broker: Server, processes: Processes, ledger: Ledger
) -> None:
    """L2, H9, H10. Given no Redis, when a scheduler and a worker start and a request enqueues, then nobody fails, the
    log tells of it in a line or two, the processors are free, and with Redis everything happens."""
    own_broker.stop()
    scheduler, worker = processes.scheduler(), processes.worker()
    for process in (scheduler, worker):
        process.wait_for_output("Redis does not answer")
    began = time.monotonic()
    with transaction.atomic():
        promised = tasks.record.enqueue(key="promised while Redis is down").id
    assert time.monotonic() - began < 1.0
    assert Run.objects.get(fire_id=promised).state == "claimed"

    _assert_quiet(2.0, scheduler, worker)
    own_broker.start()

    ledger.settle(1)
    for process in (scheduler, worker):
        process.wait_for_output("works again after|recovered after")
        # Its start, the outage in one line, its end in one line, and once more for each helper that has its own.
        assert process.output.count("WARNING") <= 4, process.tail()
        assert "Traceback" not in process.output


def test_redis_that_goes_down_is_told_in_a_few_lines(
    own_broker: Server, processes: Processes, ledger: Ledger
) -> None:
    """H10: the same while they work, with something due each second."""
    scheduler, worker = processes.scheduler(), processes.worker()
    schedule = every_second()
    ledger.wait_for_successes(1)
    lines = {process: len(process.output.splitlines()) for process in (scheduler, worker)}

    own_broker.stop()
    _assert_quiet(5.0, scheduler, worker)
    own_broker.start()
    before = ledger.succeeded()
    # Late, not lost: what came due meanwhile, and what comes due now.
    ledger.wait_for_successes(before + 6)
    type(schedule).objects.update(enabled=False)
    paused = type(schedule).objects.filter(state="paused")
    wait_until(paused.exists, 10, message=ledger.tell)

    ledger.settle(Run.objects.count())
    for process, count in lines.items():
        assert len(process.output.splitlines()) - count <= 24, process.tail()
        assert process.alive


def _assert_quiet(seconds: float, *processes: Process) -> None:
    """Hold that processes live for so long without burning a processor or filling the log."""
    before = {process: (_cpu_s(process), len(process.output.splitlines())) for process in processes}
    stays(lambda: all(process.alive for process in processes), seconds, interval=0.1)
    for process, (cpu_s, lines) in before.items():
        assert _cpu_s(process) - cpu_s < 0.2 * seconds, process.tail()
        assert len(process.output.splitlines()) - lines <= 12, process.tail()


def _cpu_s(process: Process) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system
