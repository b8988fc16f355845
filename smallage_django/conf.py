"""The ``SMALLAGE`` setting as one frozen value, checked when it is built and dropped when the setting changes.

Nothing is read at import time. Durations are given as seconds, as a ``timedelta`` or as text with a unit (``"7d"``,
``"90s"``, ``"250ms"``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from .domain.lifecycle import TERMINAL
from .errors import InvalidConfiguration

#: A lease must outlast this many pauses between passes, or leadership flaps between schedulers.
LEASE_INTERVALS: Final = 3
#: What ``{ns}`` and queue names are made of: they become parts of Redis keys and of file names.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
NAME_RULE: Final = "letters, digits, '_', '.' and '-' are allowed, at most 64"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)?")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_CLOCKS = ("database", "redis")
_SCHEDULABLE = ("all", "marked")
_SCHEMES = ("redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set, with its default. Field names are the setting's keys in lower case."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    namespace: str = "smallage"
    queues: tuple[str, ...] = ("default",)
    shards: int = 1
    interop: bool = False
    clock: str = "database"
    interval: timedelta = timedelta(seconds=1)
    lease_ttl: timedelta = timedelta(seconds=5)
    batch: int = 1000
    max_backlog: int = 10_000
    catch_up_rate: float | None = None
    recover_after: timedelta = timedelta(seconds=5)
    marker_ttl: timedelta = timedelta(days=7)
    alive_ttl: timedelta = timedelta(seconds=6)
    reclaim_grace: timedelta = timedelta(seconds=5)
    drain_timeout: timedelta = timedelta(seconds=20)
    max_payload: int = 128 * 1024
    schedule_defaults: Mapping[str, Any] = field(default_factory=dict)
    retention: Mapping[str, timedelta] = field(default_factory=dict)
    redact: tuple[str, ...] = ("password", "secret", "token", "api_key")
    schedulable: str = "all"

    def __post_init__(self) -> None:
        """Check the values against one another; raises ``InvalidConfiguration`` naming the key."""
        for problem in self.problems():
            raise InvalidConfiguration(problem)

    def problems(self) -> list[str]:
        """Every rule that these values break, in words; empty when they can work."""
        found: list[str] = []
        if not self.redis_url.startswith(_SCHEMES):
            found.append(f"REDIS_URL is {self.redis_url!r}; it must begin with one of {_SCHEMES}")
        for key, names in (("NAMESPACE", (self.namespace,)), ("QUEUES", self.queues)):
            found += [f"{key} has {name!r}; {NAME_RULE}" for name in names if not is_name(name)]
        if len(set(self.queues)) != len(self.queues) or not self.queues:
            found.append(f"QUEUES is {list(self.queues)}; it must name each queue once")
        for key in ("shards", "batch", "max_backlog", "max_payload"):
            if getattr(self, key) < 1:
                found.append(f"{key.upper()} is {getattr(self, key)}; it must be 1 or more")
        if self.clock not in _CLOCKS:
            found.append(f"CLOCK is {self.clock!r}; it must be one of {_CLOCKS}")
        if self.schedulable not in _SCHEDULABLE:
            found.append(f"SCHEDULABLE is {self.schedulable!r}; it must be one of {_SCHEDULABLE}")
        if self.catch_up_rate is not None and self.catch_up_rate <= 0:
            found.append(f"CATCH_UP_RATE is {self.catch_up_rate}; it must be above 0, or None")
        found += self._problems_of_time()
        return found

    def _problems_of_time(self) -> list[str]:
        found: list[str] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, timedelta) and value <= timedelta(0):
                found.append(f"{item.name.upper()} is {value}; it must be longer than nothing")
        if self.lease_ttl < LEASE_INTERVALS * self.interval:
            found.append(lease_rule(self.lease_ttl, self.interval))
        if self.marker_ttl <= self.recover_after:
            found.append(
                "MARKER_TTL must be longer than RECOVER_AFTER: a marker is what makes recovery safe"
            )
        return found


def lease_rule(ttl: timedelta, interval: timedelta) -> str:
    """The sentence that refuses a lease which a slow pass would outlive."""
    return (
        f"LEASE_TTL is {ttl.total_seconds():g} s and INTERVAL {interval.total_seconds():g} s; the lease must outlast "
        f"{LEASE_INTERVALS} intervals, so set LEASE_TTL to {LEASE_INTERVALS * interval.total_seconds():g} s or more"
    )


def is_name(name: object) -> bool:
    """Whether a namespace or queue may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def duration(value: Any) -> timedelta:
    """A ``timedelta`` from seconds, a ``timedelta`` or text with a unit. Raises ``ValueError``."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no duration; write seconds, or text such as '90s' or '7d'")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} is no list of names")
    return tuple(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _rate(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number of runs a second")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither True nor False")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no dictionary")
    return dict(value)


def _retention(value: Any) -> Mapping[str, timedelta]:
    by_state = {state: duration(time) for state, time in _mapping(value).items()}
    known = sorted(state.value for state in TERMINAL)
    for state in by_state:
        if state not in known:
            raise ValueError(f"{state!r} is no final state; choose from {known}")
    return by_state


_READERS: dict[str, Callable[[Any], Any]] = {
    "redis_url": _text,
    "namespace": _text,
    "queues": _names,
    "shards": _whole,
    "interop": _flag,
    "clock": _text,
    "batch": _whole,
    "max_backlog": _whole,
    "catch_up_rate": _rate,
    "max_payload": _whole,
    "schedule_defaults": _mapping,
    "retention": _retention,
    "redact": _names,
    "schedulable": _text,
}


def read(raw: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values that can be read from a raw ``SMALLAGE`` dictionary, and what is wrong with the others."""
    known = {item.name for item in fields(Config)}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in raw.items():
        name = key.lower() if isinstance(key, str) and key.isupper() else ""
        if name not in known:
            problems.append(f"SMALLAGE has the unknown key {key!r}; known are {_known_keys()}")
            continue
        try:
            reader: Callable[[Any], Any] = _READERS.get(name, duration)
            values[name] = reader(value)
        except (ValueError, TypeError) as error:
            problems.append(f"SMALLAGE[{key!r}]: {error}")
    return values, problems


def build(raw: Mapping[str, Any]) -> Config:
    """A checked configuration. Raises ``InvalidConfiguration`` with every problem of reading it."""
    values, problems = read(raw)
    if problems:
        raise InvalidConfiguration("; ".join(problems))
    return Config(**values)


@lru_cache(maxsize=1)
def config() -> Config:
    """The configuration in force. Raises ``InvalidConfiguration``."""
    raw = getattr(settings, "SMALLAGE", {})
    if not isinstance(raw, Mapping):
        raise InvalidConfiguration(f"SMALLAGE is {raw!r}; it must be a dictionary")
    return build(raw)


def _known_keys() -> str:
    return ", ".join(item.name.upper() for item in fields(Config))


@receiver(setting_changed, dispatch_uid="smallage_django.conf")
def _drop(*, setting: str, **_: Any) -> None:
    if setting == "SMALLAGE":
        config.cache_clear()
