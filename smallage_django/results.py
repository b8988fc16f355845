"""Rows as the task framework's results: our states folded into its four, every end with an error that says why."""

from __future__ import annotations

import uuid
from typing import Any, Final

from . import registry
from .compat import TaskError, TaskResultDoesNotExist, TaskResultStatus
from .domain import identity
from .domain.lifecycle import TERMINAL, Ending, Reason, State
from .errors import UnknownTask
from .models import Attempt, DelayedRun, DelayedState, Run
from .tasktypes import SmallageResult, gone_task, rebuilt

_ERRORS: Final = "smallage_django.errors"
_STATUS: Final = {
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    **dict.fromkeys(
        (State.FAILED, State.MISSED, State.SKIPPED, State.EXPIRED, State.CANCELLED),
        TaskResultStatus.FAILED,
    ),
}
_BY_STATE: Final = {
    State.MISSED: "RunMissed",
    State.SKIPPED: "RunSkipped",
    State.EXPIRED: "RunExpired",
    State.CANCELLED: "RunCancelled",
}
_BY_REASON: Final = {
    Reason.TIMED_OUT: "RunTimedOut",
    Reason.WORKER_LOST: "WorkerLost",
    Reason.TOO_MANY_DELIVERIES: "TooManyDeliveries",
    Reason.UNKNOWN_TASK: "UnknownTask",
    Reason.BAD_ARGUMENTS: "InvalidArguments",
    Reason.UNWRITABLE: "RunUnwritable",
}
_BY_ENDING: Final = {
    Ending.TIMED_OUT: "RunTimedOut",
    Ending.LOST: "WorkerLost",
    Ending.CANCELLED: "RunCancelled",
}
_DELAYED_STATUS: Final = {
    DelayedState.WAITING.value: (TaskResultStatus.READY, State.PENDING),
    DelayedState.CANCELLED.value: (TaskResultStatus.FAILED, State.CANCELLED),
    DelayedState.EXPIRED.value: (TaskResultStatus.FAILED, State.EXPIRED),
}


def find(result_id: Any, alias: str) -> SmallageResult:
    """The result of a fire id, read from the database ``alias``. Raises ``TaskResultDoesNotExist``."""
    if not isinstance(result_id, str) or not identity.is_fire_id(result_id):
        raise TaskResultDoesNotExist(result_id)
    run = Run.objects.using(alias).filter(fire_id=result_id).first()
    if run is not None:
        return of_run(run)
    if result_id.startswith("once:"):
        uid = uuid.UUID(hex=result_id.removeprefix("once:"))
        delayed = DelayedRun.objects.using(alias).filter(uid=uid).select_related("run").first()
        if delayed is not None:
            return of_delayed(delayed)
    raise TaskResultDoesNotExist(result_id)


def of_delayed(delayed: DelayedRun, task: Any = None) -> SmallageResult:
    """The result of a delayed run: that of its run once it has fired, and one that is ready until then."""
    fire_id = identity.once(delayed.uid)
    if delayed.run is not None:
        return of_run(delayed.run, task)
    # A fired row whose run was pruned: its outcome is gone, that it ran is known.
    status, state = _DELAYED_STATUS.get(delayed.state, (TaskResultStatus.FAILED, State.FAILED))
    errors = []
    if status == TaskResultStatus.FAILED:
        name = _BY_STATE.get(state, "RunPruned")
        errors.append(_named(name, delayed.reason or f"the delayed run is {delayed.state}"))
    return SmallageResult(
        task=task or _task_of(delayed, run_after=delayed.run_at),
        id=fire_id,
        status=status,
        enqueued_at=delayed.created_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=delayed.args,
        kwargs=delayed.kwargs,
        backend=delayed.backend,
        errors=errors,
        worker_ids=[],
        state=state.value,
        reason=delayed.reason,
        scheduled_for=delayed.run_at,
        due_at=delayed.run_at,
        max_attempts=delayed.max_attempts or 0,
    )


def of_run(run: Run, task: Any = None) -> SmallageResult:
    """The result of a run, with its attempts read in one query where there were any that failed."""
    state = State(run.state)
    untroubled = run.attempt <= 1 and state in (State.RUNNING, State.SUCCEEDED)
    attempts = [] if run.attempt == 0 or untroubled else list(run.attempts.order_by("number"))
    result = SmallageResult(
        task=task or _task_of(run),
        id=run.fire_id,
        status=_STATUS.get(state, TaskResultStatus.READY),
        enqueued_at=run.scheduled_for if run.kind == "enqueue" else run.enqueued_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at if state in TERMINAL else None,
        last_attempted_at=run.started_at,
        args=run.args,
        kwargs=run.kwargs,
        backend=run.backend,
        errors=_errors_of(run, state, attempts),
        worker_ids=_workers_of(run, attempts),
        state=run.state,
        reason_code=run.reason_code,
        reason=run.reason,
        schedule=run.schedule_name or None,
        scheduled_for=run.scheduled_for,
        due_at=run.due_at,
        max_attempts=run.max_attempts,
    )
    object.__setattr__(result, "_return_value", run.result)
    return result


def _errors_of(run: Run, state: State, attempts: list[Attempt]) -> list[TaskError]:
    """One entry per failed attempt, oldest first; then why the run ended, where no attempt tells."""
    errors = []
    for attempt in attempts:
        own = (
            attempt.error_class or f"{_ERRORS}.{_BY_ENDING.get(Ending(attempt.ending), 'Outcome')}"
        )
        errors.append(
            TaskError(exception_class_path=own, traceback=attempt.traceback or attempt.error)
        )
    words = run.reason or run.error or run.reason_code
    if state in _BY_STATE:
        errors.append(_named(_BY_STATE[state], words))
    elif state is State.FAILED and (not errors or run.reason_code in _UNSTARTED):
        name = _BY_REASON.get(Reason(run.reason_code), "Outcome") if run.reason_code else "Outcome"
        errors.append(_named(name, words))
    return errors


#: Ends that come without an attempt of their own.
_UNSTARTED: Final = frozenset(
    {Reason.TOO_MANY_DELIVERIES, Reason.UNKNOWN_TASK, Reason.BAD_ARGUMENTS, Reason.UNWRITABLE}
)


def _named(name: str, words: str) -> TaskError:
    path = f"{_ERRORS}.{name}"
    return TaskError(exception_class_path=path, traceback=f"{path}: {words}\n")


def _workers_of(run: Run, attempts: list[Attempt]) -> list[str]:
    """Who started each attempt, oldest first; as many entries as there were attempts."""
    known = {attempt.number: attempt.worker for attempt in attempts}
    known.setdefault(run.attempt, run.worker)
    return [known.get(number, "") for number in range(1, run.attempt + 1)]


def _task_of(row: Run | DelayedRun, **changes: Any) -> Any:
    try:
        task = registry.resolve(row.task)
    except UnknownTask:
        task = gone_task(row.task)
    return rebuilt(
        task, priority=row.priority, queue_name=row.queue, backend=row.backend, **changes
    )
