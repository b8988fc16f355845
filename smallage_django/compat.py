"""One name for each part of the tasks framework: ``django.tasks`` on Django 6, the ``django-tasks`` backport on 5.2.

The version of Django decides, never what happens to be installed: a leftover backport on Django 6 must not win. On 5.2
without the backport everything here still imports; :data:`AVAILABLE` is False, a system check says what to install,
and only declaring a task or enqueueing raises.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import django

from .errors import InvalidConfiguration

#: Whether the tasks framework is part of Django itself.
NATIVE: Final = django.VERSION >= (6, 0)
INSTALL: Final = (
    "Django 5.2 has no tasks framework of its own: pip install 'smallage-django[backport]'"
)


def _load() -> ModuleType | None:
    if NATIVE:
        return import_module("django.tasks")
    try:
        return import_module("django_tasks")
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        return None


_root = _load()

#: Whether tasks can be declared and enqueued at all.
AVAILABLE: Final = _root is not None

if TYPE_CHECKING:
    from django.tasks import (
        DEFAULT_TASK_BACKEND_ALIAS,
        Task,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        task,
        task_backends,
    )
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
elif _root is not None:
    _name = _root.__name__
    # Importing these registers the framework's own system check and its logging, which on 5.2 nothing else may do.
    import_module(f"{_name}.checks")
    _signals = import_module(f"{_name}.signals")
    _base = import_module(f"{_name}.base")
    _exceptions = import_module(f"{_name}.exceptions")
    BaseTaskBackend = import_module(f"{_name}.backends.base").BaseTaskBackend
    DummyBackend = import_module(f"{_name}.backends.dummy").DummyBackend
    ImmediateBackend = import_module(f"{_name}.backends.immediate").ImmediateBackend

    task = _root.task
    task_backends = _root.task_backends
    DEFAULT_TASK_BACKEND_ALIAS = _root.DEFAULT_TASK_BACKEND_ALIAS
    Task = _base.Task
    TaskContext = _base.TaskContext
    TaskError = _base.TaskError
    TaskResult = _base.TaskResult
    TaskResultStatus = _base.TaskResultStatus
    # The backport is about to take Django's names for these two.
    InvalidTask = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
    InvalidTaskBackend = (
        getattr(_exceptions, "InvalidTaskBackend", None) or _exceptions.InvalidTaskBackendError
    )
    TaskResultDoesNotExist = _exceptions.TaskResultDoesNotExist
    TaskResultMismatch = _exceptions.TaskResultMismatch
    task_enqueued = _signals.task_enqueued
    task_finished = _signals.task_finished
    task_started = _signals.task_started
    normalize_json = import_module(
        "django.utils.json" if NATIVE else "django_tasks.utils"
    ).normalize_json
else:
    from .nobackport import (
        DEFAULT_TASK_BACKEND_ALIAS,
        BaseTaskBackend,
        DummyBackend,
        ImmediateBackend,
        InvalidTask,
        InvalidTaskBackend,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultDoesNotExist,
        TaskResultMismatch,
        TaskResultStatus,
        task_backends,
        task_enqueued,
        task_finished,
        task_started,
    )

    def normalize_json(obj: Any) -> Any:
        """Nothing runs without the framework, so nothing is ever returned."""
        return obj

    def task(*_: Any, **__: Any) -> NoReturn:
        """Refuse to declare a task; raises ``InvalidConfiguration`` saying what to install."""
        raise InvalidConfiguration(INSTALL)


__all__ = [
    "AVAILABLE",
    "DEFAULT_TASK_BACKEND_ALIAS",
    "INSTALL",
    "NATIVE",
    "BaseTaskBackend",
    "DummyBackend",
    "ImmediateBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "normalize_json",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
