"""What makes a schedule or a delayed run impossible, told at the field that has to change.

Called by the models' ``clean``; everything wrong is said at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ValidationError

from . import arguments, registry
from .conf import config
from .domain import retry
from .domain.policies import MissedPolicy, OverlapPolicy, Policies
from .domain.recurrence import next_occurrences, resolve_zone
from .errors import InvalidArguments, InvalidPolicy, InvalidRule, SmallageError
from .rules import rule_of
from .taskpolicy import MOST_ATTEMPTS, as_timeout

if TYPE_CHECKING:
    from .domain.recurrence import Rule
    from .models import DelayedRun, Schedule

#: The framework's limits.
_PRIORITIES: Final = (-100, 100)
#: How many occurrences are looked at to find the shortest step of a rule.
_STEPS: Final = 200
_UNITS: Final = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
#: Which field of the row a part of a rule, or a policy, is written in.
_FIELD_OF: Final = {
    "timezone": "timezone",
    "interval": "every",
    "kind": "kind",
    "anchor": "anchor",
    "gap": "gap_policy",
    "fold": "fold_policy",
    "missed": "missed_policy",
    "overlap": "overlap_policy",
}
_POLICY_FIELDS: Final = (
    "misfire_grace",
    "catch_up_window",
    "catch_up_limit",
    "late_after",
    "start_deadline",
    "jitter",
)

Errors = dict[str, list[str]]


def validate_schedule(schedule: Schedule) -> None:
    """Check every field against the rules; raises ``ValidationError`` with messages by model field."""
    errors: Errors = {}
    rule = _rule(schedule, errors)
    _check_policies(schedule, errors)
    if rule is not None and "jitter" not in errors:
        _check_jitter(schedule.jitter, rule, errors)
    _check_span(schedule.starts_at, schedule.ends_at, errors)
    for name in ("max_runs", "pause_after_failures"):
        if getattr(schedule, name) == 0:
            _add(errors, name, f"{name} is 0; it must be 1 or more, or empty for no limit")
    if schedule.retention is not None and schedule.retention <= timedelta(0):
        _add(errors, "retention", f"retention is {schedule.retention}; it must be above 0")
    _check_work(schedule, errors, must_run=schedule.enabled)
    _raise(errors)


def validate_delayed_run(delayed: DelayedRun) -> None:
    """Check task, arguments and instants; raises ``ValidationError`` with messages by model field."""
    errors: Errors = {}
    run_at, deadline = delayed.run_at, delayed.deadline
    if isinstance(run_at, datetime) and isinstance(deadline, datetime) and deadline < run_at:
        _add(
            errors,
            "deadline",
            f"deadline {deadline.isoformat()} lies before run at {run_at.isoformat()}",
        )
    if delayed.late_after is not None and delayed.late_after < timedelta(0):
        _add(errors, "late_after", f"late_after is {delayed.late_after}; it must not be negative")
    if delayed.key == "":
        _add(errors, "key", "the key is empty; leave it out (NULL) for none")
    _check_work(delayed, errors, must_run=True)
    _raise(errors)


def shortest_step(rule: Rule, after: datetime) -> timedelta | None:
    """The shortest time between two of the rule's next occurrences; None where there are not two."""
    found = next_occurrences(rule, after, _STEPS)
    return min((b - a for a, b in pairwise(found)), default=None)


def _rule(schedule: Schedule, errors: Errors) -> Rule | None:
    try:
        resolve_zone(schedule.timezone)
    except InvalidRule as error:
        _add(errors, "timezone", str(error))
        return None
    if schedule.kind == "trigger":
        _add(errors, "trigger", f"no trigger {schedule.trigger!r} is registered in this process")
        return None
    if schedule.kind == "interval" and schedule.unit and schedule.unit not in _UNITS:
        _add(errors, "unit", f"{schedule.unit!r} is no unit; choose from {', '.join(_UNITS)}")
        return None
    try:
        return rule_of(schedule)
    except InvalidRule as error:
        part = error.field
        default = "expression" if schedule.kind == "cron" else "every"
        _add(errors, _FIELD_OF.get(part, default), str(error))
    return None


def _check_policies(schedule: Schedule, errors: Errors) -> None:
    values: dict[str, Any] = {
        name: getattr(schedule, name)
        for name in _POLICY_FIELDS
        if getattr(schedule, name) is not None
    }
    for name, kind, value in (
        ("missed", MissedPolicy, schedule.missed_policy),
        ("overlap", OverlapPolicy, schedule.overlap_policy),
    ):
        if value in [one.value for one in kind]:
            values[name] = kind(value)
    try:
        Policies(**values)
    except InvalidPolicy as error:
        _add(errors, _FIELD_OF.get(error.field, error.field), str(error))


def _check_jitter(jitter: timedelta, rule: Rule, errors: Errors) -> None:
    if not jitter:
        return
    step = shortest_step(rule, datetime.now(UTC))
    if step is not None and jitter >= step:
        _add(
            errors,
            "jitter",
            f"jitter is {jitter}; it must be below the rule's shortest step, {step}",
        )


def _check_span(starts_at: Any, ends_at: Any, errors: Errors) -> None:
    if isinstance(starts_at, datetime) and isinstance(ends_at, datetime) and ends_at <= starts_at:
        _add(
            errors,
            "ends_at",
            f"the end {ends_at.isoformat()} is not after the start {starts_at.isoformat()}",
        )


def _check_work(row: Schedule | DelayedRun, errors: Errors, *, must_run: bool) -> None:
    """Task, arguments, backend, queue, priority and the policies of an attempt."""
    if not registry.is_ours(row.backend):
        _add(errors, "backend", f"TASKS has no alias {row.backend!r} with a smallage backend")
    task = registry.tasks().get(row.task)
    if task is not None:
        _check_arguments(row, task, errors)
    elif must_run:
        _add(errors, "task", _unregistered(row.task))
    _check_queue(row, errors)
    low, high = _PRIORITIES
    if row.priority is not None and not low <= row.priority <= high:
        _add(errors, "priority", f"priority is {row.priority}; it must be from {low} to {high}")
    if row.max_attempts is not None and not 1 <= row.max_attempts <= MOST_ATTEMPTS:
        _add(
            errors,
            "max_attempts",
            f"attempts is {row.max_attempts}; it must be from 1 to {MOST_ATTEMPTS}",
        )
    for check in (lambda: retry.parse(row.backoff or ""), lambda: as_timeout(row.timeout)):
        try:
            check()
        except InvalidPolicy as error:
            _add(errors, error.field, str(error))


def _unregistered(path: str) -> str:
    near = get_close_matches(path, registry.tasks(), n=1, cutoff=0.6)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{path!r} is not registered in this process{meant}"


def _check_arguments(row: Schedule | DelayedRun, task: Any, errors: Errors) -> None:
    if not isinstance(row.args, list):
        _add(errors, "args", f"positional arguments are a JSON list, not {type(row.args).__name__}")
    elif not isinstance(row.kwargs, Mapping):
        _add(errors, "kwargs", f"arguments are a JSON object, not {type(row.kwargs).__name__}")
    else:
        try:
            arguments.checked(task.func, task.takes_context, row.args, row.kwargs)
        except InvalidArguments as error:
            _add(errors, "kwargs", str(error))


def _check_queue(row: Schedule | DelayedRun, errors: Errors) -> None:
    if not row.queue:
        return
    try:
        known = set(config().queues)
    except SmallageError:
        # Nothing is known of queues; the system check tells what is wrong with the settings.
        return
    if row.queue not in known:
        _add(
            errors,
            "queue",
            f"queue {row.queue!r} is unknown; choose from {', '.join(sorted(known))}",
        )


def _add(errors: Errors, field: str, message: str) -> None:
    errors.setdefault(field, []).append(message)


def _raise(errors: Errors) -> None:
    if errors:
        raise ValidationError(errors)
