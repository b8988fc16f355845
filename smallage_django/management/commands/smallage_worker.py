"""``manage.py smallage_worker``: take entries from the streams and run them."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import Any, Final

from django.core.management.base import CommandParser

from ... import __version__, wiring
from ...errors import InvalidConfiguration, Unavailable
from ..console import ServiceCommand, progress, unreachable, usage_error
from ..stopping import StopSignals

#: Threads that wait for the database or Redis get their turn sooner than Python's 5 ms; measured with short tasks.
SWITCH_S: Final = 0.001


class Command(ServiceCommand):
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
            self.stdout.write(f"smallage_worker {__version__}, {wiring.endpoints()}")
        with progress(self.stdout, options["verbosity"]), StopSignals(worker.stop) as signals:
            try:
                worker.run()
            except Unavailable as error:
                raise unreachable(error) from error
        if signals.caught and worker.left_running:
            # Threads of user code cannot be ended, and the interpreter's own end would touch what they use.
            self.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value
