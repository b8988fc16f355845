"""Schedulers and workers as real child processes, which tests kill, freeze and wait for."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
LOG_TAIL = 6000


class Process:
    """One child in a session of its own, with all it prints in a file."""

    def __init__(self, name: str, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __repr__(self) -> str:
        return f"<{self.name} pid={self.pid} returncode={self._popen.poll()}>"

    @property
    def pid(self) -> int:
        """The process id, also after its end."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended (a frozen one lives)."""
        return self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal, None while it lives."""
        return self._popen.poll()

    @property
    def output(self) -> str:
        """All it has printed so far, both streams together."""
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        """The end of its output, for messages of failed assertions."""
        return f"\n--- {self!r}\n{self.output[-LOG_TAIL:]}"

    def children(self) -> list[psutil.Process]:
        """The processes it has started, and theirs."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def signal(self, signum: signal.Signals) -> None:
        """Send it a signal; quietly nothing if it has ended."""
        self._popen.send_signal(signum)

    def terminate(self) -> None:
        """SIGTERM: drain and stop."""
        self.signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """SIGINT, as Ctrl-C."""
        self.signal(signal.SIGINT)

    def freeze(self) -> None:
        """SIGSTOP to its whole group: no thread or child of it runs."""
        self.signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT to its whole group."""
        self.signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to its whole group, and wait for the end: what a lost machine looks like."""
        self.signal_group(signal.SIGKILL)
        self._popen.wait(10)

    def wait(self, timeout: float = 20.0) -> int:
        """Wait for its end and return the exit code. Raises ``AssertionError`` with its output at the deadline."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended within {timeout} s{self.tail()}") from None

    def wait_for_output(self, pattern: str, timeout: float = 20.0) -> re.Match[str]:
        """Wait until it has printed something that matches; fail at once if it ends before."""

        def look() -> re.Match[str] | None:
            ended = not self.alive
            match = re.search(pattern, self.output)
            if match is None and ended:
                raise AssertionError(f"ended without printing {pattern!r}{self.tail()}")
            return match

        found = wait_until(look, timeout, message=self.tail)
        assert found is not None
        return found

    def signal_group(self, signum: signal.Signals) -> None:
        """Send a signal to it and to all that share its group, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signum)


class Processes:
    """Starts ``manage.py`` commands against this test's database and namespace, and leaves none of them behind."""

    def __init__(self, env: Mapping[str, str], directory: Path) -> None:
        self.env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            **env,
        }
        self._directory = directory
        self._started: list[Process] = []

    def configure(self, **smallage: Any) -> None:
        """Change keys of ``SMALLAGE`` for processes that start from now on, e.g. ``configure(LEASE_TTL=2)``."""
        now = json.loads(self.env.get("SMALLAGE_TEST_SETTINGS") or "{}")
        self.env["SMALLAGE_TEST_SETTINGS"] = json.dumps({**now, **smallage})

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """Start ``manage.py`` with these arguments and return at once."""
        name = f"{len(self._started)}-{arguments[0]}"
        process = Process(
            name,
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            {**self.env, **(env or {})},
            self._directory / f"{name}.log",
        )
        self._started.append(process)
        return process

    def scheduler(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """Start ``smallage_scheduler``."""
        return self.start("smallage_scheduler", *arguments, env=env)

    def worker(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """Start ``smallage_worker``."""
        return self.start("smallage_worker", *arguments, env=env)

    def run(self, *arguments: str, timeout: float = 60.0, expect: int | None = 0) -> str:
        """Run a command to its end and return its output; ``expect`` is the exit code it must have."""
        process = self.start(*arguments)
        code = process.wait(timeout)
        assert expect is None or code == expect, f"exit code {code}{process.tail()}"
        return process.output

    def close(self) -> None:
        """Kill what still lives, children included, and show what each process printed."""
        for process in self._started:
            # Children that made a session of their own are not in the group.
            children = process.children()
            process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            sys.stdout.write(process.tail())
        self._started.clear()
