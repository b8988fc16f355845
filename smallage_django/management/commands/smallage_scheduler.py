"""``manage.py smallage_scheduler``: hold the lease and promote what is due."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from ... import __version__, wiring
from ...errors import InvalidConfiguration, Unavailable
from ...ports import PassReport
from ...scheduler import Scheduler
from ..console import UNREACHABLE, ServiceCommand, failure, progress, usage_error
from ..stopping import StopSignals


class Command(ServiceCommand):
    """Parses options and keeps the signals; the work is in ``scheduler``."""

    help = "Promotes due schedules and delayed runs. Run as many as you like: one leads, the others stand by."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--once", action="store_true", help="make one full pass, then exit with 0"
        )
        parser.add_argument(
            "--interval",
            type=float,
            help="longest pause between passes, seconds (default: SMALLAGE['INTERVAL'])",
        )
        parser.add_argument(
            "--lease-ttl",
            type=float,
            help="how long a silent leader keeps the lease, seconds (default: SMALLAGE['LEASE_TTL'])",
        )
        parser.add_argument("--json", action="store_true", help="with --once: report as JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        """Build the scheduler and run it to its end."""
        try:
            scheduler = wiring.scheduler(
                interval=options["interval"], lease_ttl=options["lease_ttl"]
            )
        except (InvalidConfiguration, ValueError) as error:
            raise usage_error(error) from error
        if options["once"]:
            self._once(scheduler, options)
        else:
            self._run(scheduler, options["verbosity"])

    def _run(self, scheduler: Scheduler, verbosity: int) -> None:
        with progress(self.stdout, verbosity), StopSignals(scheduler.stop):
            if verbosity:
                self.stdout.write(f"smallage_scheduler {__version__}, {wiring.endpoints()}")
            scheduler.run()

    def _once(self, scheduler: Scheduler, options: dict[str, Any]) -> None:
        try:
            with progress(self.stderr if options["json"] else self.stdout, options["verbosity"]):
                report = scheduler.once()
        except Unavailable as error:
            raise failure(error, UNREACHABLE) from error
        if options["json"]:
            self.stdout.write(json.dumps(_facts(report)))
        elif options["verbosity"]:
            self.stdout.write(_sentence(report))


def _facts(report: PassReport) -> dict[str, Any]:
    return {**asdict(report), "now": report.now.isoformat()}


def _sentence(report: PassReport) -> str:
    if not report.leading:
        return "another scheduler leads; nothing was done"
    return (
        f"one pass, term {report.epoch}: {report.planned} planned, {report.fired} fired, "
        f"{report.promoted} promoted, {report.recovered} recovered, {report.expired} expired"
    )
