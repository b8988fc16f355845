"""The platform's ``Task`` and ``TaskResult`` with the fields of ours: policies here, fire id and lateness there."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from django.utils import timezone

from .compat import InvalidTask, Task, TaskResult
from .domain.retry import Backoff
from .errors import InvalidPolicy, UnknownTask
from .taskpolicy import Policy, mark_of

_TASK_FIELDS: Final = ("func", "priority", "backend", "queue_name", "run_after", "takes_context")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallageTask(Task):  # type: ignore[type-arg]
    """A task with policies of its own. None leaves a policy to the backend's ``OPTIONS``."""

    max_attempts: int | None = None
    #: A preset from ``smallage_django.backoff``, or a function of the exception and the task result.
    backoff: Backoff | Callable[..., Any] | None = None
    #: How long one attempt may take; whole seconds or a timedelta.
    timeout: int | float | timedelta | None = None

    def __post_init__(self) -> None:
        """Take over the function's policy where no field says otherwise, then let the backend check the task."""
        mark = mark_of(self.func)
        if mark is not None:
            for name in ("max_attempts", "backoff", "timeout"):
                if getattr(self, name) is None:
                    object.__setattr__(self, name, getattr(mark, name))
        Policy(self.max_attempts, self.backoff, self.timeout)
        # No super(): a slotted dataclass is a class made anew, which the compiler's cell does not know.
        Task.__post_init__(self)  # type: ignore[attr-defined,unused-ignore]

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
    ) -> Self:
        """A task with modified defaults. A ``timedelta`` as ``run_after`` counts from this moment.

        Raises the platform's ``InvalidTask``.
        """
        try:
            at = instant_of(run_after, "run_after") if run_after is not None else None
        except InvalidPolicy as error:
            raise InvalidTask(str(error)) from error
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": at,
            "backend": backend,
        }
        return replace(self, **{key: value for key, value in changes.items() if value is not None})


def with_policy(task: SmallageTask, policy: Policy) -> SmallageTask:
    """The task under another policy; what ``policy`` leaves open stays."""
    changes = {
        name: getattr(policy, name)
        for name in ("max_attempts", "backoff", "timeout")
        if getattr(policy, name) is not None
    }
    return replace(task, **changes)


def instant_of(when: object, name: str, since: datetime | None = None) -> datetime:
    """An instant as it is, or so far from ``since`` (now); naive only where the project uses naive ones.

    Raises ``InvalidPolicy``, with ``name``, for what is neither and for what no calendar reaches.
    """
    if isinstance(when, timedelta):
        try:
            return (since or timezone.now()) + when
        except OverflowError as error:
            told = f"{name} is {when}, which leads out of the years 1 to 9999"
            raise InvalidPolicy(told, field=name) from error
    if not isinstance(when, datetime):
        told = f"{name} is {when!r}; it must be a datetime, or a timedelta from now"
        raise InvalidPolicy(told, field=name)
    return when


def rebuilt(task: Any, **changes: Any) -> Any:
    """``task`` with changed fields and without the backend's checks.

    For rows: a queue that has left the settings since must not make their results unreadable.
    """
    copy = object.__new__(type(task))
    for item in fields(task):
        object.__setattr__(copy, item.name, changes.get(item.name, getattr(task, item.name)))
    return copy


def gone_task(path: str) -> SmallageTask:
    """Stands for a task that this process does not have, so that its results can still be read."""

    def gone(*_: Any, **__: Any) -> None:
        raise UnknownTask(f"{path} is not registered in this process")

    module, _, name = path.rpartition(".")
    func = types.FunctionType(gone.__code__, {**gone.__globals__}, name, None, gone.__closure__)
    func.__module__, func.__qualname__ = module, name
    copy = object.__new__(SmallageTask)
    values: dict[str, Any] = {
        "func": func,
        "priority": 0,
        "backend": "default",
        "queue_name": "default",
        "takes_context": False,
    }
    for item in fields(SmallageTask):
        object.__setattr__(copy, item.name, values.get(item.name))
    return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallageResult(TaskResult):  # type: ignore[type-arg,misc]
    """A task result that also tells which fire it is of and how late that was."""

    #: Our own state, finer than ``status``: a run's, or a delayed run's until it fires.
    state: str = ""
    reason_code: str = ""
    reason: str = ""
    #: The schedule's name; None for what was enqueued or delayed.
    schedule: str | None = None
    #: The ideal instant, which never changes; None before the database has said it.
    scheduled_for: datetime | None = None
    due_at: datetime | None = None
    max_attempts: int = 0

    @property
    def fire_id(self) -> str:
        """The fire id; the same as ``id``."""
        return self.id

    @property
    def lateness(self) -> timedelta | None:
        """How long after its ideal instant the run first started; None before."""
        if self.started_at is None or self.scheduled_for is None:
            return None
        return self.started_at - self.scheduled_for

    def refresh(self) -> None:
        """Read everything anew. Raises ``TaskResultDoesNotExist`` for a run that was pruned."""
        self._take(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        """See :meth:`refresh`."""
        self._take(await self.task.get_backend().aget_result(self.id))

    def _take(self, other: Any) -> None:
        for item in fields(self):
            if item.name not in ("task", "id", "args", "kwargs", "backend"):
                object.__setattr__(self, item.name, getattr(other, item.name))
