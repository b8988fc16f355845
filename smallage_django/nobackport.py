"""Stand-ins for the tasks framework on Django 5.2 without the backport, so that models, admin and checks import.

Nothing can be declared or enqueued with them: no alias has a backend. See ``compat``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal

DEFAULT_TASK_BACKEND_ALIAS = "default"

task_enqueued = Signal()
task_started = Signal()
task_finished = Signal()


class InvalidTask(Exception):
    """The task cannot be run by the backend."""


class InvalidTaskBackend(ImproperlyConfigured):
    """There is no such backend."""


class TaskResultDoesNotExist(Exception):
    """There is no such result."""


class TaskResultMismatch(Exception):
    """The result is of another task."""


class TaskResultStatus(StrEnum):
    READY = "READY"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    SUCCESSFUL = "SUCCESSFUL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    func: Any
    priority: int = 0
    backend: str = DEFAULT_TASK_BACKEND_ALIAS
    queue_name: str = "default"
    run_after: datetime | None = None
    takes_context: bool = False

    def __post_init__(self) -> None:
        """Nothing to check: nothing can be declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    exception_class_path: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    task: Task
    id: str
    status: TaskResultStatus
    enqueued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    last_attempted_at: datetime | None
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    errors: list[TaskError]
    worker_ids: list[str]
    _return_value: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Nothing to check: nothing can be enqueued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    task_result: TaskResult


class BaseTaskBackend:
    task_class = Task

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.alias = alias
        self.queues = set(params.get("QUEUES", ["default"]))
        self.options = params.get("OPTIONS", {})


class DummyBackend(BaseTaskBackend):
    """Stands for the backend that only collects."""


class ImmediateBackend(BaseTaskBackend):
    """Stands for the backend that runs at once."""


class _NoBackends:
    """A handler without any alias."""

    def __getitem__(self, alias: str) -> Any:
        raise InvalidTaskBackend(f"no backend {alias!r}: the tasks framework is not installed")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def all(self) -> list[Any]:
        return []


task_backends = _NoBackends()
