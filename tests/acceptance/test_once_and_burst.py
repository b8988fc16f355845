"""One pass and one burst, for timers and for tests; and configurations that are refused before anything starts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from smallage_django.models import Heartbeat, LeaderTerm, Run
from tests.app import tasks
from tests.support.ledger import Ledger, one_offs
from tests.support.processes import Processes
from tests.support.servers import Server
from tests.support.waiting import wait_until

#: Old enough to be recovered; a rule of configuration asks for less than the markers' life, which is days.
SOON = {"RECOVER_AFTER": 0.2}

Command = Callable[..., str]


@pytest.fixture(params=["process", "call_command"])
def command(
    request: pytest.FixtureRequest,
    processes: Processes,
    smallage_settings: Callable[..., dict[str, Any]],
) -> Command:
    """Run a management command, in a process of its own or in this one, and return what it prints."""
    processes.configure(**SOON)
    smallage_settings(**SOON)
    if request.param == "process":
        return processes.run

    def call(*arguments: str) -> str:
        printed = io.StringIO()
        call_command(*arguments, stdout=printed)
        return printed.getvalue()

    return call


def test_one_pass_hands_over_and_one_burst_runs(
    own_broker: Server, command: Command, ledger: Ledger
) -> None:
    """Given due rows, a claim whose hand-over was lost, and an entry that Redis lost, one full pass hands over them
    all, one burst runs them, and both end with 0."""
    lost = tasks.record.enqueue(key="its entry is lost").id
    wait_until(lambda: _older_than_recovery(lost), 5)
    assert "1 recovered" in command("smallage_scheduler", "--once")
    assert Run.objects.get(fire_id=lost).state == "enqueued"
    own_broker.stop()
    claimed = tasks.record.enqueue(key="its hand-over is lost").id
    own_broker.start()
    wait_until(lambda: _older_than_recovery(claimed), 5)
    one_offs(3, timezone.now() - timedelta(seconds=1))

    printed = command("smallage_scheduler", "--once")

    assert "reconciled: 1 entries were gone" in printed
    assert "3 fired, 3 promoted, 1 recovered" in printed
    assert set(Run.objects.values_list("state", flat=True)) == {"enqueued"}
    assert LeaderTerm.objects.filter(ended_at__isnull=True).count() == 0

    printed = command("smallage_worker", "--burst")

    assert "ended: {'succeeded': 5}" in printed
    ledger.settle(5, timeout=2)
    assert Heartbeat.objects.get(role="worker").stopped_at is not None


def test_nothing_to_do_is_no_fault(processes: Processes, ledger: Ledger) -> None:
    """Both commands end with 0 where there is nothing, and leave nothing."""
    printed = io.StringIO()
    call_command("smallage_scheduler", "--once", "--json", stdout=printed, stderr=io.StringIO())
    report = json.loads(printed.getvalue())
    assert (report["leading"], report["fired"], report["promoted"]) == (True, 0, 0)

    assert "ended: idle" in processes.run("smallage_worker", "--burst")

    assert ledger.in_redis() == {}


def test_one_pass_beside_a_leader_does_nothing(processes: Processes, ledger: Ledger) -> None:
    """A timer that starts a pass while a scheduler leads takes nothing from it."""
    leader = processes.scheduler()
    ledger.leader(leader)

    printed = processes.run("smallage_scheduler", "--once")

    assert "another scheduler leads" in printed
    assert LeaderTerm.objects.count() == 1


@pytest.mark.parametrize("source", ["options", "settings"])
def test_a_lease_that_a_slow_pass_would_outlive_is_refused(
    processes: Processes, source: str
) -> None:
    """G3: exit code 2, and the rule in the message, before anything is touched."""
    options = ["--interval", "1", "--lease-ttl", "2.5"] if source == "options" else []
    if source == "settings":
        processes.configure(INTERVAL=1, LEASE_TTL=2.5)

    printed = processes.run("smallage_scheduler", *options, expect=2)

    assert "must outlast 3 intervals" in printed
    assert "LEASE_TTL to 3 s or more" in printed
    assert "Traceback" not in printed
    assert not LeaderTerm.objects.exists()


def test_an_unknown_setting_is_named_by_the_check(processes: Processes) -> None:
    """A key that is misspelt is no default."""
    processes.configure(LEESE_TTL=9)

    printed = processes.run("check", expect=1)
    assert "smallage_django.E001" in printed
    assert "'LEESE_TTL'" in printed

    assert "smallage_django.E001" in processes.run("smallage_worker", expect=2)


def test_a_queue_that_is_not_configured_is_refused(processes: Processes) -> None:
    """A worker that would wait for nothing says so instead."""
    printed = processes.run("smallage_worker", "--queues", "default,nowhere", expect=2)

    assert "nowhere not in SMALLAGE['QUEUES']" in printed


def test_one_pass_and_one_burst_without_redis_end_with_3(
    own_broker: Server, processes: Processes
) -> None:
    """A timer learns that a dependency is unreachable."""
    own_broker.stop()

    assert "Redis does not answer" in processes.run("smallage_scheduler", "--once", expect=3)
    with pytest.raises(CommandError) as caught:
        call_command("smallage_scheduler", "--once", stdout=io.StringIO())
    assert caught.value.returncode == 3


def _older_than_recovery(fire_id: str) -> bool:
    claimed_at = Run.objects.get(fire_id=fire_id).claimed_at
    assert claimed_at is not None
    return timezone.now() - claimed_at > timedelta(seconds=SOON["RECOVER_AFTER"])
