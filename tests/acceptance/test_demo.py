"""``smallage_demo`` as a newcomer starts it: a login, a readable feed, an exit code, and nothing left running."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from smallage_django.demo.valkey import embedded
from tests.support.processes import Process, Processes
from tests.support.waiting import wait_until


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder with a short name: the path of a socket may have about 100 characters only."""
    path = Path(tempfile.mkdtemp(prefix="smallage-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def demos(directory: Path) -> Iterator[Processes]:
    """The example project on a database and a Valkey of this test's own, as it is without any settings."""
    started = Processes(
        {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "DATABASE_URL": f"sqlite:///{directory / 'db.sqlite3'}",
            "SMALLAGE_REDIS_URL": f"unix://{directory / 'valkey.sock'}",
            "DEMO_SECONDS": "",
        },
        directory,
    )
    yield started
    started.close()


def test_a_demo_for_some_seconds_shows_everything_and_ends_with_0(
    demos: Processes, directory: Path
) -> None:
    """The whole system comes up by itself, the admin answers, runs are told, and all of it goes away."""
    demo = demos.start("smallage_demo", "--seconds", "12")
    address = demo.wait_for_output(r"http://127\.0\.0\.1:\d+/admin/", 30).group()
    family = wait_until(lambda: _family(demo, at_least=4), 10, message=demo.tail)
    wait_until(lambda: _answers(address), 20, message=demo.tail)

    assert demo.wait(40) == 0, demo.tail()

    printed = demo.output
    assert re.search(r"user admin +password smallage", printed)
    for transition in ("▯ enqueued", "▶ running", "✓ succeeded"):
        assert re.search(rf"Z  {transition} +visitors +sched:", printed), transition
    assert re.search(r"\d+ ms after its time", printed)
    assert printed.rstrip().endswith("everything is stopped")
    assert "Traceback" not in printed
    _assert_gone(family, directory)


@pytest.mark.parametrize("to_group", [True, False], ids=["^C at work", "kill at start"])
def test_a_demo_that_is_interrupted_is_gone_within_seconds(
    demos: Processes, directory: Path, to_group: bool
) -> None:
    """Ctrl-C in a terminal, and SIGTERM of a supervisor while children start: within 5 s, nothing left running."""
    demo = demos.start("smallage_demo")
    address = demo.wait_for_output(r"http://127\.0\.0\.1:\d+/admin/", 40).group()
    family = wait_until(lambda: _family(demo, at_least=4), 10, message=demo.tail)
    if to_group:
        wait_until(lambda: _answers(address), 20, message=demo.tail)

    began = time.monotonic()
    if to_group:
        # A terminal sends it to everybody in its foreground, children that share the group included.
        demo.signal_group(signal.SIGINT)
    else:
        demo.terminate()

    assert demo.wait(10) == 0, demo.tail()
    assert time.monotonic() - began < 5, demo.tail()
    assert "everything is stopped" in demo.output
    assert "Traceback" not in demo.output
    _assert_gone(family, directory)


def test_a_second_demo_in_the_same_checkout_says_that_one_is_running(
    demos: Processes, directory: Path
) -> None:
    address = directory / "valkey.sock"
    with embedded(f"unix://{address}"):
        second = demos.start("smallage_demo")

        assert second.wait(20) == 1, second.tail()
        assert f"the demo is already running (socket {address})" in second.output
        assert "Traceback" not in second.output
        with redis.Redis(unix_socket_path=str(address)) as client:
            assert client.ping()


def test_a_valkey_that_cannot_start_is_told_in_a_line(demos: Processes, directory: Path) -> None:
    (directory / "valkey.sock").mkdir()

    demo = demos.start("smallage_demo")

    assert demo.wait(20) == 1, demo.tail()
    assert "CommandError: the embedded Valkey does not start" in demo.output
    assert "Traceback" not in demo.output


def _family(demo: Process, *, at_least: int) -> list[psutil.Process]:
    """All that the demo has started, once it is all there: the admin, a scheduler, a worker, a server."""
    found = demo.children()
    return found if len(found) >= at_least else []


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}login/", timeout=2) as page:
            return b"csrfmiddlewaretoken" in page.read()
    except OSError:
        return False


def _assert_gone(family: list[psutil.Process], directory: Path) -> None:
    _, alive = psutil.wait_procs(family, timeout=1)
    assert not alive
    # Whoever lost its parent on the way has the address of this test in its command or environment all the same.
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(directory) in " ".join(process.info["cmdline"] or [])
    ]
    assert not left
