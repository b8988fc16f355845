"""What a program asks for besides ``enqueue``: delayed runs, bulk, cancelling, and the fire it is running in.

The names are public through ``smallage_django`` itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings
from django.db import router
from django.utils import timezone

from .compat import InvalidTask
from .context import current_run
from .domain import identity
from .errors import InvalidPolicy, UnknownRun
from .taskpolicy import backoff, policy
from .tasktypes import SmallageResult, instant_of

if TYPE_CHECKING:
    from .domain.recurrence import Rule
    from .models import Schedule
    from .store.promises import Promises

__all__ = [
    "backoff",
    "cancel",
    "current_run",
    "delay",
    "enqueue_many",
    "next_occurrences",
    "policy",
    "reschedule",
]


class HasId(Protocol):
    """A task result, of whatever kind."""

    @property
    def id(self) -> str: ...


def delay(  # noqa: PLR0913 - keyword options of a public call, each with a default
    task: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    run_at: datetime | timedelta,
    args: Sequence[Any] = (),
    key: str | None = None,
    replace: bool = False,
    deadline: datetime | timedelta | None = None,
    late_after: timedelta | None = None,
    origin: str = "",
) -> SmallageResult:
    """Promise a run of ``task`` at an instant, in the caller's transaction.

    ``run_at`` is an aware instant, or a time from now. ``deadline`` is the instant, or the time after ``run_at``, from
    which the run is no longer useful and expires. ``key`` makes the promise once: while a row with that key waits or
    has fired, it is returned as it is; ``replace=True`` gives a waiting one the new instant and arguments. ``origin``
    says in words what the promise is about. Raises ``InvalidArguments``, ``InvalidPolicy``, ``InvalidTask``.
    """
    backend = _backend_of(task)
    call = backend.prepare(task, args, kwargs or {})
    when = _aware(instant_of(run_at, "run_at"), "run_at")
    until = instant_of(deadline, "deadline", when) if deadline is not None else None
    if until is not None and _aware(until, "deadline") < when:
        raise InvalidPolicy(
            f"deadline {until.isoformat()} lies before run_at {when.isoformat()}", field="deadline"
        )
    if key is not None and not (0 < len(key) <= 191 and "\0" not in key):
        raise InvalidPolicy(f"key {key[:191]!r} must have 1 to 191 characters", field="key")
    if late_after is not None and late_after < timedelta(0):
        raise InvalidPolicy(
            f"late_after is {late_after}; it must not be negative", field="late_after"
        )
    delayed = backend.new_delayed(
        task,
        call,
        when,
        deadline=until,
        key=key,
        late_after=late_after,
        origin=origin,
    )
    result: SmallageResult = backend.promise(task, delayed, replace=replace)
    return result


def enqueue_many(task: Any, list_of_kwargs: Iterable[Mapping[str, Any]]) -> list[SmallageResult]:
    """Enqueue one run of ``task`` for each set of named arguments, all or none, thousands a second."""
    results: list[SmallageResult] = _backend_of(task).enqueue_many(task, list_of_kwargs)
    return results


def cancel(run: str | HasId, *, by: str = "", reason: str = "cancelled by the program") -> bool:
    """Cancel what has not begun; whether it was in time. A running run is left alone.

    Frees the key of a delayed run. Raises ``UnknownRun`` for an id that never was, or was pruned.
    """
    store, fire_id = _promises(), _id_of(run)
    uid = _delayed_uid(fire_id)
    if uid is not None and store.cancel_delayed(uid, reason):
        return True
    if store.cancel_run(fire_id, by, reason):
        return True
    _refuse_unknown(fire_id)
    return False


def reschedule(run: str | HasId, when: datetime | timedelta) -> bool:
    """Give what still waits another instant (aware, or a time from now); whether it was in time.

    A run's ideal instant stays what it was. Raises ``UnknownRun``, and ``InvalidPolicy`` for an instant after the
    delayed run's deadline.
    """
    from .models import DelayedRun, DelayedState
    from .publishing import wake_on_commit

    store, fire_id = _promises(), _id_of(run)
    instant = _aware(instant_of(when, "when"), "when")
    uid = _delayed_uid(fire_id)
    if uid is not None:
        if store.move_delayed(uid, instant):
            wake_on_commit(instant, timezone.now(), store.alias)
            return True
        rows = DelayedRun.objects.using(store.alias)
        row = rows.filter(uid=uid, state=DelayedState.WAITING).first()
        if row is not None and row.deadline is not None and row.deadline < instant:
            raise InvalidPolicy(
                f"{instant.isoformat()} lies after the deadline {row.deadline.isoformat()}",
                field="deadline",
            )
    if store.move_run(fire_id, instant):
        wake_on_commit(instant, timezone.now(), store.alias)
        return True
    _refuse_unknown(fire_id)
    return False


def next_occurrences(
    what: Schedule | Rule, after: datetime | None = None, count: int = 5
) -> list[datetime]:
    """The next instants (aware UTC) of a rule or a schedule, strictly after ``after`` (now, if left out).

    A schedule's own start and end are kept to; pauses, calendars and jitter are not looked at. Raises ``InvalidRule``.
    """
    from .domain import recurrence
    from .models import Schedule
    from .rules import rule_of

    instant = _aware(after, "after") if after is not None else datetime.now(UTC)
    if not isinstance(what, Schedule):
        return list(recurrence.next_occurrences(what, instant, count))
    if what.starts_at is not None:
        instant = max(instant, what.starts_at - timedelta(microseconds=1))
    found = recurrence.next_occurrences(rule_of(what), instant, count)
    return [at for at in found if what.ends_at is None or at <= what.ends_at]


def _backend_of(task: Any) -> Any:
    backend = task.get_backend() if hasattr(task, "get_backend") else None
    if backend is None or not hasattr(backend, "promise"):
        raise InvalidTask(f"{task!r} is no task on a smallage backend; see TASKS in the settings")
    return backend


def _promises() -> Promises:
    from .models import Run
    from .store.promises import Promises

    return Promises(router.db_for_write(Run))


def _id_of(run: str | HasId) -> str:
    fire_id = run if isinstance(run, str) else getattr(run, "id", None)
    if not isinstance(fire_id, str):
        raise UnknownRun(f"{repr(run)[:80]} is neither a fire id nor the result of a task")
    if not identity.is_fire_id(fire_id):
        raise UnknownRun(f"{fire_id[:80]!r} is no fire id")
    return fire_id


def _delayed_uid(fire_id: str) -> uuid.UUID | None:
    kind, _, rest = fire_id.partition(":")
    return uuid.UUID(hex=rest) if kind == "once" else None


def _refuse_unknown(fire_id: str) -> None:
    from .models import DelayedRun, Run

    alias = router.db_for_write(Run)
    if Run.objects.using(alias).filter(fire_id=fire_id).exists():
        return
    uid = _delayed_uid(fire_id)
    if uid is None or not DelayedRun.objects.using(alias).filter(uid=uid).exists():
        raise UnknownRun(f"there is no run {fire_id}")


def _aware(instant: datetime, name: str) -> datetime:
    """An aware instant; a naive one is read in the project's zone where it uses naive ones."""
    if timezone.is_aware(instant):
        return instant
    if settings.USE_TZ:
        raise InvalidPolicy(
            f"{name} is {instant.isoformat()}; it must be an aware datetime", field=name
        )
    return timezone.make_aware(instant, timezone.get_default_timezone())
