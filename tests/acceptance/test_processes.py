"""The helper that runs real processes: what it starts it can stop, wait for and leave no trace of."""

from __future__ import annotations

import psutil
import pytest

from tests.app.models import Effect
from tests.support.processes import Processes
from tests.support.servers import Server
from tests.support.waiting import wait_until

NOW = "from django.utils import timezone; from tests.app.models import Effect; "


def test_a_process_and_the_test_see_one_database(processes: Processes) -> None:
    processes.run(
        "shell", "-c", NOW + "Effect.objects.create(fire_id='a', key='k', at=timezone.now())"
    )

    assert Effect.objects.get().key == "k"


def test_the_next_test_finds_it_empty(processes: Processes) -> None:
    assert Effect.objects.count() == 0


def test_a_process_has_the_settings_that_the_test_asked_for(processes: Processes) -> None:
    processes.configure(LEASE_TTL=7)

    told = processes.run(
        "shell", "-c", "from django.conf import settings; print(settings.SMALLAGE)"
    )

    assert "'LEASE_TTL': 7" in told
    assert processes.env["SMALLAGE_NAMESPACE"] in told


def test_a_frozen_process_is_killed_and_waited_for(processes: Processes) -> None:
    child = processes.start(
        "shell", "-c", "print('here', flush=True); import threading; threading.Event().wait()"
    )
    child.wait_for_output("here")
    child.freeze()

    child.kill()

    assert child.returncode == -9


def test_nothing_is_left_running(processes: Processes) -> None:
    child = processes.start("shell", "-c", "import subprocess; subprocess.run(['sleep', '60'])")
    (grandchild,) = wait_until(child.children)

    processes.close()

    assert not psutil.pid_exists(child.pid)
    wait_until(lambda: not grandchild.is_running())


def test_a_process_that_ends_early_is_told_with_its_output(processes: Processes) -> None:
    child = processes.start("no_such_command")

    with pytest.raises(AssertionError, match="no_such_command"):
        child.wait_for_output("never printed")


def test_a_broker_of_ones_own_is_the_processes_too(
    processes: Processes, own_broker: Server
) -> None:
    assert processes.env["SMALLAGE_REDIS_URL"] == own_broker.url
