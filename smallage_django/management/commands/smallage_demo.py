"""``manage.py smallage_demo``: the whole system on this machine, to look at and to play with."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules

from ...conf import config
from ...demo.feed import Feed
from ...demo.processes import ChildDied, Family
from ...demo.valkey import embedded
from ...errors import BrokerUnavailable, InvalidConfiguration
from ..console import failure, usage_error

LOGIN: Final = ("admin", "smallage")
FIRST_PORT: Final = 8000
LOOK_EVERY_S: Final = 0.25


class Command(BaseCommand):
    """Parses options, starts everything, tells what happens, stops everything."""

    help = (
        "Starts the admin, a scheduler and a worker with example schedules; stops them on Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--seconds",
            type=float,
            default=float(os.environ.get("DEMO_SECONDS") or 0),
            help="stop after so long, exit 0 if runs succeeded and 1 if not (default: run until Ctrl-C)",
        )
        parser.add_argument("--port", type=int, default=0, help="port of the admin (default: 8000)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the demo to its end."""
        self._stopped = False
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._stop)
        try:
            with (
                embedded(config().redis_url),
                tempfile.TemporaryDirectory(prefix="smallage-demo-") as directory,
            ):
                feed = self._show(Path(directory), options)
        except InvalidConfiguration as error:
            raise usage_error(error) from error
        except BrokerUnavailable as error:
            raise failure(error, 1) from error
        if options["seconds"] and not feed.succeeded:
            raise CommandError("no run succeeded", returncode=1)

    def _show(self, directory: Path, options: dict[str, Any]) -> Feed:
        """Everything beside the Valkey, from its start to its end; what was told meanwhile."""
        self._prepare()
        port = options["port"] or _free_port()
        family, feed = Family(directory, {}), Feed()
        try:
            family.manage("admin", "runserver", f"127.0.0.1:{port}", "--noreload")
            family.manage("scheduler", "smallage_scheduler")
            family.manage("worker", "smallage_worker", "--threads", "4")
            self._greet(port)
            self._tell(feed, family, options["seconds"])
        except ChildDied as error:
            raise CommandError(str(error)) from error
        finally:
            family.stop()
            self.stdout.write("everything is stopped")
        return feed

    def _stop(self, _signum: int, _frame: FrameType | None) -> None:
        self._stopped = True

    def _prepare(self) -> None:
        self.stdout.write("preparing the database ...")
        call_command("migrate", verbosity=0, interactive=False)
        users = get_user_model()._default_manager
        if not users.filter(username=LOGIN[0]).exists():
            users.create_superuser(LOGIN[0], f"{LOGIN[0]}@localhost", LOGIN[1])
        autodiscover_modules("demo")
        for module in _demo_modules():
            module.prepare()

    def _greet(self, port: int) -> None:
        self.stdout.write(
            f"\n  admin    http://127.0.0.1:{port}/admin/   user {LOGIN[0]}   password {LOGIN[1]}\n"
            "  one scheduler and one worker are starting; Ctrl-C stops everything\n"
        )

    def _tell(self, feed: Feed, family: Family, seconds: float) -> None:
        end = time.monotonic() + seconds if seconds else None
        while not self._stopped and (end is None or time.monotonic() < end):
            for line in feed.lines():
                self.stdout.write(line)
            family.check()
            time.sleep(LOOK_EVERY_S)


def _demo_modules() -> list[Any]:
    """The ``demo`` modules of installed apps that have something to prepare."""
    names = (f"{app.name}.demo" for app in apps.get_app_configs())
    modules = (sys.modules.get(name) for name in names)
    return [module for module in modules if hasattr(module, "prepare")]


def _free_port() -> int:
    """The first port from 8000 on that nobody listens to."""
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise CommandError(f"no free port from {FIRST_PORT} on; give one with --port")
