"""The one place that joins configuration, adapters and loops."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.core.signals import setting_changed
from django.db import router
from django.dispatch import receiver

from . import __version__
from .broker import RedisBroker, Times
from .conf import config, duration, lease_rule
from .domain.recurrence import zone_data_version
from .errors import InvalidConfiguration
from .models import Run
from .ports import Clock
from .registry import tasks
from .runner import TaskRunner
from .scheduler import Options as SchedulerOptions
from .scheduler import Scheduler
from .store.clock import CalibratedClock, DatabaseNow
from .store.scheduling import SchedulingStore
from .store.working import WorkingStore
from .worker import Options as WorkerOptions
from .worker import Worker


def alias() -> str:
    """The database that holds the runs, as the project's routers say."""
    return router.db_for_write(Run)


@lru_cache(maxsize=4)
def _broker(pid: int) -> RedisBroker:  # noqa: ARG001 - no connection crosses a fork
    settings = config()
    return RedisBroker(
        settings.redis_url,
        settings.namespace,
        shards=settings.shards,
        times=Times(settings.marker_ttl, settings.alive_ttl, settings.reclaim_grace),
    )


def broker() -> RedisBroker:
    """This process's broker for the configuration in force."""
    return _broker(os.getpid())


def clock() -> Clock:
    """The clock that all processes agree on: the database's, or Redis's where ``CLOCK`` says so."""
    return RedisNow(broker()) if config().clock == "redis" else DatabaseNow(alias())


class RedisNow:
    """Redis's TIME as a ``Clock``. Raises ``BrokerUnavailable``."""

    def __init__(self, source: RedisBroker) -> None:
        self._source = source

    def now(self) -> Any:
        return self._source.time()


def scheduler(
    *, interval: float | None = None, lease_ttl: float | None = None, name: str | None = None
) -> Scheduler:
    """A scheduler for the configuration in force; ``interval`` and ``lease_ttl`` (seconds) override it.

    Raises ``InvalidConfiguration`` where the lease would not outlast the passes.
    """
    settings = config()
    pause = settings.interval if interval is None else duration(interval)
    ttl = settings.lease_ttl if lease_ttl is None else duration(lease_ttl)
    _check_lease(pause, ttl)
    options = SchedulerOptions(
        name=name or identity(),
        interval=pause,
        lease_ttl=ttl,
        batch=settings.batch,
        max_backlog=settings.max_backlog,
        recover_after=settings.recover_after,
        silent_after=settings.alive_ttl,
        queues=settings.queues,
        facts=facts(),
    )
    return Scheduler(SchedulingStore(alias()), broker().scheduler(), clock(), options)


def worker(
    *,
    queues: Sequence[str] | None = None,
    threads: int = 10,
    burst: bool = False,
    name: str | None = None,
) -> Worker:
    """A worker for the configuration in force. Raises ``InvalidConfiguration`` for a queue not in ``QUEUES``."""
    settings = config()
    served = tuple(queues) if queues else settings.queues
    unknown = sorted(set(served) - set(settings.queues))
    if unknown:
        raise InvalidConfiguration(
            f"{', '.join(unknown)} not in SMALLAGE['QUEUES']; known are {', '.join(settings.queues)}"
        )
    options = WorkerOptions(
        name=name or identity(),
        queues=served,
        alive_ttl=settings.alive_ttl,
        drain_timeout=settings.drain_timeout,
        burst=burst,
        facts={**facts(), "threads": threads, "queues": list(served), "tasks": sorted(tasks())},
    )
    store = WorkingStore(alias(), silent_after=settings.alive_ttl)
    return Worker(
        store,
        broker().worker(),
        TaskRunner(threads),
        CalibratedClock(clock().now),
        options,
    )


def identity() -> str:
    """A name that no other start of any process has."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def facts() -> Mapping[str, Any]:
    """What a process tells of itself."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
        "zone_data": zone_data_version(),
    }


def endpoints() -> str:
    """The servers in use, for a start line: no user, no password."""
    settings = config()
    address = settings.redis_url.rpartition("@")[2]
    if "//" not in address:
        address = f"{settings.redis_url.partition('://')[0]}://{address}"
    python = sys.version.split()[0]
    return f"Python {python}, database {alias()!r}, {address}, namespace {settings.namespace!r}"


def _check_lease(interval: timedelta, ttl: timedelta) -> None:
    try:
        replace(config(), interval=interval, lease_ttl=ttl)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(lease_rule(ttl, interval)) from error


@receiver(setting_changed, dispatch_uid="smallage_django.wiring")
def _drop(*, setting: str, **_: Any) -> None:
    if setting == "SMALLAGE":
        _broker.cache_clear()
