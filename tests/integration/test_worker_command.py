"""``manage.py smallage_worker``: options, what it prints, how it ends. The transport is in memory."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from smallage_django import __version__, wiring
from smallage_django.compat import task
from smallage_django.errors import InvalidConfiguration
from smallage_django.models import Heartbeat, Run
from tests.support.memory_broker import MemoryBroker
from tests.support.site import Site

pytestmark = pytest.mark.django_db(transaction=True)


@task
def asks_to_stop() -> None:
    """Send this process what an orchestrator sends, and stay until it has arrived."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)


@pytest.fixture
def asked() -> dict[str, Any]:
    """The options that wiring was asked for."""
    return {}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> Site:
    made = Site(MemoryBroker())

    def worker(**options: Any) -> Any:
        asked.update(options)
        name = options["name"] or "host:1:abc"
        return made.worker(name, options["threads"], burst=options["burst"])

    monkeypatch.setattr(wiring, "worker", worker)
    return made


def run(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("smallage_worker", *arguments, stdout=out, **options)
    return out.getvalue()


def test_a_burst_through_call_command_works_off_what_is_ready(
    site: Site, asked: dict[str, Any]
) -> None:
    ready = site.enqueue("add", kwargs={"a": 1, "b": 2})
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    printed = run("--burst")

    ready.refresh_from_db()
    assert (ready.state, ready.result) == ("succeeded", 3)
    assert asked == {"queues": None, "threads": 10, "burst": True, "name": None}
    assert printed.startswith(f"smallage_worker {__version__}, Python ")
    assert "worker host:1:abc starts" in printed
    assert "worker host:1:abc ended" in printed
    assert ready.fire_id not in printed
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    assert not logging.getLogger("smallage_django").handlers


def test_options_reach_the_worker(site: Site, asked: dict[str, Any]) -> None:
    run("--burst", "--queues", "mail, reports", "--threads", "3", "--name", "mailer")

    assert asked == {
        "queues": ("mail", "reports"),
        "threads": 3,
        "burst": True,
        "name": "mailer",
    }
    assert Heartbeat.objects.get().name == "mailer"


def test_each_transition_is_a_line_at_verbosity_2(site: Site) -> None:
    ready, failing = site.enqueue("noop"), site.enqueue("fail", max_attempts=1)

    printed = run("--burst", verbosity=2)

    assert f"{ready.fire_id}: started, attempt 1 (tests.app.tasks.noop)" in printed
    assert f"{ready.fire_id}: succeeded in" in printed
    assert f"{failing.fire_id}: failed, attempt 1 of 1 failed: Boom: boom" in printed


def test_no_line_shows_a_password(site: Site, smallage_settings: Any) -> None:
    smallage_settings(REDIS_URL="redis://someone:s3cret@127.0.0.1:6379/0")

    printed = run("--burst")

    assert "127.0.0.1:6379" in printed
    assert "s3cret" not in printed


def test_silent_means_silent(site: Site) -> None:
    site.enqueue("noop")

    assert run("--burst", verbosity=0) == ""


@pytest.mark.parametrize("threads", ["0", "-1", "many"])
def test_a_number_of_threads_that_cannot_be_is_refused(threads: str) -> None:
    with pytest.raises(CommandError, match="threads"):
        run("--threads", threads)


def test_a_queue_that_is_not_configured_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**_: Any) -> Any:
        raise InvalidConfiguration("nope not in SMALLAGE['QUEUES']")

    monkeypatch.setattr(wiring, "worker", refuse)

    with pytest.raises(CommandError, match="nope not in") as caught:
        run("--burst", "--queues", "nope")
    assert caught.value.returncode == 2


def test_a_burst_without_redis_exits_with_3(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smallage_django.worker.BURST_PATIENCE_S", 0.2)
    site.broker.away = True

    with pytest.raises(CommandError, match="Redis is away") as caught:
        run("--burst")
    assert caught.value.returncode == 3


def test_a_first_signal_drains(site: Site) -> None:
    """The signal comes from user code, in the middle of a run."""
    site.enqueue("tests.integration.test_worker_command.asks_to_stop")
    site.enqueue("noop")

    run("--threads", "1")

    assert Run.objects.filter(state="succeeded").count() == 1
    assert Run.objects.filter(state="claimed").count() == 1
