"""System checks: what Django can tell before anything runs. None of them raises, and none asks a server unless told to.

=====  =======================================================================================
E001   ``SMALLAGE`` has an unknown key or a value that cannot work
E002   Django 5.2 without the backport: no task can be declared
E003   ``TASKS[alias]["OPTIONS"]`` has an unknown key or a value that cannot work
W001   SQLite without IMMEDIATE transactions, write-ahead log or a timeout
W002   no ``TASKS`` alias uses ``SmallageBackend``
W003   a queue of ``TASKS`` that no worker reads by itself
W004   an enabled schedule whose task is not registered (``check --database``)
=====  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connections, router

from . import compat, registry
from .conf import build, read
from .errors import InvalidConfiguration

_TIMEOUT_S: Final = 5
_SHOWN: Final = 10


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """E001."""
    raw = getattr(settings, "SMALLAGE", {})
    if not isinstance(raw, dict):
        problems = [f"SMALLAGE is {raw!r}; it must be a dictionary"]
    else:
        _values, problems = read(raw)
        if not problems:
            problems = _relations(raw)
    return [
        checks.Error(problem, hint="See the table of settings.", id="smallage_django.E001")
        for problem in problems
    ]


def check_platform(**_: Any) -> list[checks.CheckMessage]:
    """E002 and W002."""
    if not compat.AVAILABLE:
        return [
            checks.Error(
                "Tasks cannot be declared or run: the tasks framework is missing.",
                hint=compat.INSTALL,
                id="smallage_django.E002",
            )
        ]
    try:
        ours = registry.aliases()
    except Exception:  # noqa: BLE001 - a backend of somebody else's may fail in any way; its own check reports it
        return []
    if ours:
        return []
    return [
        checks.Warning(
            "No alias in TASKS uses smallage_django.backend.SmallageBackend, so nothing can be enqueued or scheduled.",
            hint='TASKS = {"default": {"BACKEND": "smallage_django.backend.SmallageBackend"}}',
            id="smallage_django.W002",
        )
    ]


def check_sqlite(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """W001. Reads the settings alone."""
    from .models import Run

    alias = router.db_for_write(Run)
    connection = connections[alias]
    if connection.vendor != "sqlite" or (databases is not None and alias not in databases):
        return []
    options = connection.settings_dict.get("OPTIONS", {})
    wanting = []
    if str(options.get("transaction_mode", "")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        wanting.append(
            '"transaction_mode": "IMMEDIATE" (else writers fail with "database is locked")'
        )
    if "journal_mode=wal" not in str(options.get("init_command", "")).lower().replace(" ", ""):
        wanting.append(
            '"init_command": "PRAGMA journal_mode=WAL" (else readers and writers block each other)'
        )
    if options.get("timeout", _TIMEOUT_S) < _TIMEOUT_S:
        wanting.append(f'"timeout": {_TIMEOUT_S} or more seconds')
    return [
        checks.Warning(
            f"DATABASES[{alias!r}] is SQLite, and its OPTIONS lack {wish}.",
            hint="Several processes write to this file; see the documentation of databases.",
            id="smallage_django.W001",
        )
        for wish in wanting
    ]


def check_schedules(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """W004: asks the database, so it runs only where ``--database`` names it."""
    from .models import Run, Schedule

    alias = router.db_for_write(Run)
    if not databases or alias not in databases or not compat.AVAILABLE:
        return []
    known = registry.tasks()
    try:
        rows = Schedule.objects.using(alias).filter(enabled=True).exclude(task__in=list(known))
        gone = list(rows.order_by("name").values_list("name", "task")[: _SHOWN + 1])
    except DatabaseError:
        # Not migrated yet, or away: other checks, and migrate, say so.
        return []
    return [
        checks.Warning(
            f"The schedule {name!r} names the task {task!r}, which is not registered in this process.",
            hint="Restore the task, choose another one, or disable the schedule.",
            id="smallage_django.W004",
        )
        for name, task in gone[:_SHOWN]
    ]


def register() -> None:
    """Called when the app is ready."""
    checks.register(check_settings, "smallage")
    checks.register(check_platform, "smallage")
    checks.register(check_sqlite, checks.Tags.database)
    checks.register(check_schedules, checks.Tags.database)


def _relations(raw: dict[str, Any]) -> list[str]:
    """All rules that readable values break among themselves, or none."""
    try:
        build(raw)
    except InvalidConfiguration as error:
        return [str(error)]
    return []
