"""What a task asks for when it fails or takes too long: ``policy`` and ``backoff``, and the policy a run is given.

A policy is a frozen value that is also a decorator. It works above and below ``@task``, and leaves tasks on other
backends as they are::

    @task(queue_name="mail")
    @policy(max_attempts=5, backoff=backoff.exponential(2, cap=300), timeout=60)
    def send_reminder(class_id: int) -> str: ...

    policy(max_attempts=1)(send_reminder).enqueue(class_id=7)   # for this call only
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from django.core.signals import setting_changed
from django.dispatch import receiver

from .compat import Task, task_backends
from .domain import retry
from .domain.retry import Backoff
from .errors import InvalidConfiguration, InvalidPolicy

T = TypeVar("T")

#: What a small positive integer column holds on every database, and more than any budget needs.
MOST_ATTEMPTS: Final = 32767
_MARK: Final = "_smallage_policy"
_FIELDS: Final = ("max_attempts", "backoff", "timeout")
#: The three of them, in this order.
_Terms = tuple[int | None, Any, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """Attempts in all, waits between them and the limit of one attempt. None leaves it to whoever is asked next.

    ``backoff`` is a preset, its text, or a function of the exception and the task result that returns seconds, a
    timedelta, or None for no other attempt. ``timeout`` is seconds or a timedelta. Raises ``InvalidPolicy``.
    """

    max_attempts: int | None = None
    backoff: Backoff | Callable[..., Any] | str | None = None
    timeout: int | float | timedelta | None = None

    def __post_init__(self) -> None:
        """Check the ranges; raises ``InvalidPolicy`` naming the field."""
        attempts = self.max_attempts
        if attempts is not None and (
            type(attempts) is not int or not 1 <= attempts <= MOST_ATTEMPTS
        ):
            raise InvalidPolicy(
                f"max_attempts is {attempts!r}; it must be a whole number from 1 to {MOST_ATTEMPTS}",
                field="max_attempts",
            )
        if isinstance(self.backoff, str):
            object.__setattr__(self, "backoff", retry.parse(self.backoff))
        if not (
            self.backoff is None or isinstance(self.backoff, Backoff) or callable(self.backoff)
        ):
            raise InvalidPolicy(
                f"backoff is {self.backoff!r}; use one of smallage_django.backoff or a function",
                field="backoff",
            )
        as_timeout(self.timeout)

    def __call__(self, target: T) -> T:
        """Give the policy to a function or to a task of ours; a task of another backend comes back unchanged."""
        if isinstance(target, Task):
            from .tasktypes import SmallageTask, with_policy

            ours: Any = target
            return with_policy(ours, self) if isinstance(target, SmallageTask) else target  # type: ignore[return-value]
        inner = mark_of(target)
        setattr(target, _MARK, self if inner is None else self.over(inner))
        return target

    def over(self, other: Policy) -> Policy:
        """This policy where it says something, ``other`` where it does not."""
        return Policy(
            *(
                getattr(self, name) if getattr(self, name) is not None else getattr(other, name)
                for name in _FIELDS
            )
        )


def policy(
    *,
    max_attempts: int | None = None,
    backoff: Backoff | Callable[..., Any] | str | None = None,
    timeout: float | timedelta | None = None,
) -> Policy:
    """A policy, to be used as a decorator of a function or task. Raises ``InvalidPolicy``."""
    return Policy(max_attempts, backoff, timeout)


def _exponential(base: float = 1, *, cap: float = 300, jitter: float = 0.2) -> Backoff:
    """``base`` seconds, twice as long after each failure, at most ``cap`` seconds."""
    return Backoff("exponential", base, cap, jitter)


def _linear(step: float, *, cap: float = 300, jitter: float = 0.2) -> Backoff:
    """``step`` seconds longer after each failure, at most ``cap`` seconds."""
    return Backoff("linear", step, cap, jitter)


def _constant(seconds: float, *, jitter: float = 0.2) -> Backoff:
    """Always ``seconds``."""
    return Backoff("constant", seconds, max(seconds, 300), jitter)


#: The presets: ``backoff.exponential(1, cap=300)``, ``backoff.linear(10)``, ``backoff.constant(30)``.
backoff: Final = SimpleNamespace(exponential=_exponential, linear=_linear, constant=_constant)


@dataclass(frozen=True, slots=True)
class FrozenPolicy:
    """What a run keeps from its creation on, so that a deploy does not change what is in flight."""

    max_attempts: int
    timeout: timedelta | None
    #: A preset's text; empty where the task's code has a function, or for the default.
    backoff: str


def mark_of(func: Any) -> Policy | None:
    """The policy that a decorator left on a function."""
    mark = getattr(func, _MARK, None)
    return mark if isinstance(mark, Policy) else None


def as_timeout(value: float | timedelta | None) -> timedelta | None:
    """A timeout as a timedelta. Raises ``InvalidPolicy`` unless it is above zero and below a year."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidPolicy(
            f"timeout is {value!r}; it must be seconds or a timedelta", field="timeout"
        )
    else:
        seconds = value
    if not 0 < seconds <= 366 * 86400:
        raise InvalidPolicy(
            f"timeout is {value}; it must be above 0 and at most a year", field="timeout"
        )
    return timedelta(seconds=seconds)


def frozen_policy(task: Any | None, schedule: Any | None = None, alias: str = "") -> FrozenPolicy:
    """The policy of a new run: the row's, then the task's, then that of the backend's ``OPTIONS``, then ours.

    ``task`` may be None where this process does not have it, or a ``Task`` of any kind; ``schedule`` is a schedule or
    delayed row with ``max_attempts``, ``timeout`` and ``backoff``.
    """
    name = alias or getattr(schedule, "backend", "") or getattr(task, "backend", "default")
    path = getattr(schedule, "task", "") or getattr(task, "module_path", "")
    row: _Terms = (None, None, None)
    if schedule is not None:
        row = (schedule.max_attempts, schedule.backoff or None, schedule.timeout)
    return _frozen(row, _own(task), name, path)


@lru_cache(maxsize=4096)
def _frozen(row: _Terms, own: _Terms, alias: str, path: str) -> FrozenPolicy:
    wanted = Policy(*row).over(Policy(*own)).over(_backend_policy(alias, path))
    waits = wanted.backoff
    return FrozenPolicy(
        wanted.max_attempts or retry.DEFAULT_ATTEMPTS,
        as_timeout(wanted.timeout),
        str(waits) if isinstance(waits, Backoff) else "",
    )


def options_policy(options: Mapping[str, Any]) -> Policy:
    """The defaults in a backend's ``OPTIONS``. Raises ``InvalidPolicy``."""
    return Policy(options.get("MAX_ATTEMPTS"), options.get("BACKOFF"), options.get("TIMEOUT"))


def named_policy(options: Mapping[str, Any], path: str) -> Policy:
    """What ``OPTIONS["POLICIES"]`` gives to one task. Raises ``InvalidPolicy``, ``InvalidConfiguration``."""
    values = options.get("POLICIES", {}).get(path)
    if values is None:
        return Policy()
    if isinstance(values, Policy):
        return values
    unknown = set(values) - set(_FIELDS)
    if unknown:
        raise InvalidConfiguration(
            f"OPTIONS['POLICIES'][{path!r}] has {sorted(unknown)}; known are {', '.join(_FIELDS)}"
        )
    return Policy(**values)


def _own(task: Any | None) -> _Terms:
    # A task declared on another backend and rebound to ours keeps its class, and its function the mark.
    holder = task if hasattr(task, "max_attempts") else mark_of(getattr(task, "func", None))
    return (
        (None, None, None)
        if holder is None
        else (holder.max_attempts, holder.backoff, holder.timeout)
    )


def _backend_policy(alias: str, path: str) -> Policy:
    try:
        options = task_backends[alias].options
    except Exception:  # noqa: BLE001 - a backend that cannot be built must not stop what is already promised
        return Policy()
    return named_policy(options, path).over(options_policy(options))


@receiver(setting_changed, dispatch_uid="smallage_django.taskpolicy")
def _forget(*, setting: str, **_: Any) -> None:
    if setting == "TASKS":
        _frozen.cache_clear()
