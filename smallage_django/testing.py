"""Backends for a project's own tests: Django's immediate and dummy ones with our kind of task.

With Django's own, ``@task(max_attempts=5)`` would fail at import and ``policy(...)`` would be lost.
"""

from __future__ import annotations

from .compat import DummyBackend as PlatformDummyBackend
from .compat import ImmediateBackend as PlatformImmediateBackend
from .tasktypes import SmallageTask


class ImmediateBackend(PlatformImmediateBackend):
    """Runs a task at once, in the process that enqueues it."""

    task_class = SmallageTask


class DummyBackend(PlatformDummyBackend):
    """Collects what was enqueued in ``results`` and runs nothing."""

    task_class = SmallageTask
