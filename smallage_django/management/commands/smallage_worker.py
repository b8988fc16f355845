"""``manage.py smallage_worker``: take entries from the streams and run them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Final, Self

from django.core.management.base import BaseCommand, CommandParser

from ... import wiring
from ...errors import InvalidConfiguration, Unavailable
from ...worker import Worker
from ..console import progress, unreachable, usage_error

#: After a second signal nothing may keep the process for longer, a dependency that hangs included.
LAST_MOMENT_S: Final = 0.7
#: Threads that wait for the database or Redis get their turn sooner than Python's 5 ms; measured with short tasks.
SWITCH_S: Final = 0.001


class Command(BaseCommand):
    """Parses options and keeps the signals; the work is in ``worker``."""

    help = "Runs tasks that schedulers and enqueue() hand over. Ends on SIGTERM after what runs has ended."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queues",
            help="queues to serve, separated by commas (default: SMALLAGE['QUEUES'])",
        )
        parser.add_argument(
            "--threads",
            type=_positive,
            default=10,
            help="how many tasks run at the same time (default: 10)",
        )
        parser.add_argument(
            "--burst",
            action="store_true",
            help="work off what is ready, then exit",
        )
        parser.add_argument(
            "--name",
            help="identity of this worker (default: host, pid and a random part); two must never share one",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Build the worker and run it to its end."""
        queues = options["queues"]
        try:
            worker = wiring.worker(
                queues=tuple(name.strip() for name in queues.split(",")) if queues else None,
                threads=options["threads"],
                burst=options["burst"],
                name=options["name"],
            )
        except InvalidConfiguration as error:
            raise usage_error(error) from error
        if threading.current_thread() is threading.main_thread():
            sys.setswitchinterval(SWITCH_S)
        if options["verbosity"] > 0:
            self.stdout.write(wiring.endpoints())
        with progress(self.stdout, options["verbosity"]), _Signals(worker) as signals:
            try:
                worker.run()
            except Unavailable as error:
                raise unreachable(error) from error
        if signals.caught and worker.left_running:
            # Threads of user code cannot be ended, and the interpreter's own end would touch what they use.
            self.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


class _Signals:
    """Turns SIGTERM and SIGINT into a drain, and a second one into an immediate end.

    Only in the main thread of a process: elsewhere (``call_command`` in a test's thread) Python refuses handlers.
    """

    def __init__(self, worker: Worker) -> None:
        self.caught = 0
        self._worker = worker
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self.caught += 1
        self._worker.stop()
        if self.caught == 2:
            # An alarm, not a thread: a handler may interrupt code that holds the locks a thread needs to start.
            signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
            signal.setitimer(signal.ITIMER_REAL, LAST_MOMENT_S)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value
