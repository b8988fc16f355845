"""The database drops every connection, or keeps everybody from writing, under load."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

from django.db import OperationalError, connection
from django.utils import timezone

from smallage_django.models import Run, Schedule
from tests.support.ledger import QUICK, Ledger, assert_every_second, every_second, one_offs
from tests.support.processes import Processes
from tests.support.waiting import stays, wait_until

#: MariaDB's error number.
_UNKNOWN_THREAD = 1094


def test_processes_go_on_when_the_database_comes_back(processes: Processes, ledger: Ledger) -> None:
    """K1, K2, K4, J4. Given load, when the database is away again and again, then each run has one recorded success,
    no effect came without an attempt, and no process had to be started again."""
    processes.configure(**QUICK)
    scheduler, worker = processes.scheduler(), processes.worker("--threads", "4")
    ledger.leader(scheduler)
    ledger.wait_for_worker(worker)
    every_second()
    # User code loses its connections too: such an attempt fails, and its run is tried again.
    one_offs(
        200,
        timezone.now() + timedelta(milliseconds=200),
        timedelta(milliseconds=10),
        max_attempts=20,
    )
    Schedule.objects.update(max_attempts=20)

    for moment in (30, 120):
        ledger.wait_for_successes(moment)
        _TROUBLE[connection.vendor](lambda: scheduler.alive and worker.alive)
    ledger.wait_for_successes(200)
    scheduled = Run.objects.filter(kind="schedule")
    wait_until(lambda: scheduled.filter(state="succeeded").count() >= 3, 20, message=ledger.tell)
    Schedule.objects.update(enabled=False)
    wait_until(lambda: Schedule.objects.filter(state="paused").exists(), 10, message=ledger.tell)

    rows = ledger.settle_rows(200 + scheduled.count())
    assert_every_second([run for run in rows if run.kind == "schedule"])
    assert ledger.losses() == []
    assert scheduler.alive
    assert worker.alive
    processes.run("smallage_scheduler", "--once")


def _terminate_postgresql(_alive: Callable[[], bool]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _kill_mysql(_alive: Callable[[], bool]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist "
            "WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        for (number,) in cursor.fetchall():
            try:
                cursor.execute("KILL %s", [number])
            except OperationalError as error:
                # Between the list and the kill a thread may have closed its connection by itself.
                if error.args[0] != _UNKNOWN_THREAD:
                    raise


def _lock_sqlite(alive: Callable[[], bool]) -> None:
    """Keep the one lock of all writers for a while, as a backup or a careless script does."""
    path = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        stays(alive, 2)
        other.execute("ROLLBACK")


_TROUBLE = {
    "postgresql": _terminate_postgresql,
    "mysql": _kill_mysql,
    "sqlite": _lock_sqlite,
}
