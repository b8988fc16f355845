"""Child processes that start together and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: From the first signal to the last process, seconds.
STOP_WITHIN_S: Final = 4.0


class ChildDied(Exception):
    """A process that the demo needs ended by itself; the message has the end of its log."""


@dataclass(slots=True)
class Child:
    """One process, and the file with what it wrote."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass(slots=True)
class Family:
    """Processes of one run. They get no Ctrl-C of their own: the parent ends them in order."""

    directory: Path
    environment: Mapping[str, str]
    children: list[Child] = field(default_factory=list)

    def manage(self, name: str, *arguments: str) -> None:
        """Start a management command of this project."""
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, sys.argv[0], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        self.children.append(Child(name, process, log))

    def check(self) -> None:
        """Raise ``ChildDied`` where one has ended."""
        for child in self.children:
            code = child.process.poll()
            if code is not None:
                end = child.log.read_text(errors="replace").strip().splitlines()[-15:]
                raise ChildDied(f"{child.name} ended with {code}:\n  " + "\n  ".join(end))

    def stop(self) -> None:
        """Ask all to end, newest first; what is left after :data:`STOP_WITHIN_S` is killed."""
        for child in reversed(self.children):
            _signal(child, signal.SIGTERM)
        deadline = time.monotonic() + STOP_WITHIN_S
        for child in self.children:
            try:
                child.process.wait(max(deadline - time.monotonic(), 0.05))
            except subprocess.TimeoutExpired:
                _signal(child, signal.SIGKILL)
                child.process.wait()
        self.children.clear()


def _signal(child: Child, signum: signal.Signals) -> None:
    if child.process.poll() is None:
        os.killpg(child.process.pid, signum)
