"""The run that the present code is part of: a task's ``context`` argument, and ``current_run()`` anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from . import registry
from .compat import TaskContext, TaskResultStatus
from .domain.lifecycle import Kind, State
from .ports import Begun
from .tasktypes import SmallageResult, rebuilt


@dataclass(frozen=True, slots=True)
class Fire:
    """The occurrence or promise that a run stands for. All instants are aware UTC."""

    fire_id: str
    #: The schedule's name; empty for a delayed run.
    schedule: str
    #: The ideal instant, the same for every attempt.
    scheduled_for: datetime
    #: When this attempt was due: the ideal instant with its jitter, or the retry's.
    due_at: datetime
    #: How long after the ideal instant this attempt began.
    lateness: timedelta
    attempt: int
    #: How many occurrences this run stands for.
    occurrence_count: int = 1

    @property
    def coalesced(self) -> bool:
        """Whether missed occurrences were folded into this run."""
        return self.occurrence_count > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallageContext(TaskContext):  # type: ignore[type-arg,misc]
    """The platform's context with the fire. ``getattr(context, "fire", None)`` keeps a task portable."""

    #: None where the task was simply enqueued.
    fire: Fire | None = None
    #: From here on the attempt is over its time; None without a timeout.
    deadline: datetime | None = None

    @property
    def fire_id(self) -> str:
        """The name of this work, the same for every attempt and delivery: the idempotency key for other systems."""
        return str(self.task_result.id)


class _Current:
    """Makes the context only when somebody asks: most tasks never do."""

    __slots__ = ("_begun", "_context")

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self._context: SmallageContext | None = None

    def context(self) -> SmallageContext:
        if self._context is None:
            self._context = context_of(self._begun)
        return self._context


_current: ContextVar[_Current | None] = ContextVar("smallage_current_run", default=None)
#: Made by a person or a program for one moment, not by a rule or a promise.
_WITHOUT_FIRE: Final = frozenset({"", Kind.ENQUEUE.value})


def current_run() -> SmallageContext | None:
    """The context of the run that this code is part of; None outside of one. Follows ``contextvars``."""
    current = _current.get()
    return current.context() if current is not None else None


@contextmanager
def running(begun: Begun) -> Iterator[None]:
    """Make ``begun`` the current run of this thread or coroutine."""
    token = _current.set(_Current(begun))
    try:
        yield
    finally:
        _current.reset(token)


def context_of(begun: Begun) -> SmallageContext:
    """What a task is given. The attempt that begins counts: the first run sees attempt 1. Raises ``UnknownTask``."""
    fire = None
    if begun.kind not in _WITHOUT_FIRE:
        fire = Fire(
            fire_id=begun.fire_id,
            schedule=begun.schedule_name,
            scheduled_for=begun.scheduled_for,
            due_at=begun.due_at,
            lateness=begun.started_at - begun.scheduled_for,
            attempt=begun.attempt,
            occurrence_count=begun.occurrence_count,
        )
    deadline = begun.started_at + begun.timeout if begun.timeout is not None else None
    return SmallageContext(task_result=result_of(begun), fire=fire, deadline=deadline)


def result_of(begun: Begun) -> SmallageResult:
    """The result of a run whose attempt has just begun. Raises ``UnknownTask``."""
    task: Any = rebuilt(
        registry.resolve(begun.task),
        priority=begun.priority,
        queue_name=begun.queue,
        backend=begun.backend,
    )
    return SmallageResult(
        task=task,
        id=begun.fire_id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=begun.scheduled_for,
        started_at=begun.started_at,
        finished_at=None,
        last_attempted_at=begun.started_at,
        args=list(begun.args),
        kwargs=dict(begun.kwargs),
        backend=begun.backend,
        errors=[],
        worker_ids=[""] * (begun.attempt - 1) + [begun.worker],
        state=State.RUNNING.value,
        schedule=begun.schedule_name or None,
        scheduled_for=begun.scheduled_for,
        due_at=begun.due_at,
        max_attempts=begun.max_attempts,
    )
