"""Which tasks there are, by import path: the only functions that a row or a stream entry can name.

A schedule may be given every task that an installed app has in its ``tasks`` module on an alias of ours. A run may
name any task that imports, so that what was enqueued from elsewhere in the project runs too; whatever a path names
that is not a task is never called.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

from django.apps import apps
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import autodiscover_modules

from .compat import AVAILABLE, InvalidTaskBackend, Task, task_backends
from .errors import UnknownTask
from .tasktypes import SmallageTask

_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_resolved: dict[str, Any] = {}


def resolve(path: str) -> Any:
    """The ``Task`` at an import path. Raises ``UnknownTask``, also where the module cannot be imported."""
    task = _resolved.get(path)
    if task is None:
        task = _resolved[path] = _import(path)
    return task


def tasks() -> Mapping[str, Any]:
    """Every task that may be scheduled, by path, sorted: those of installed apps' ``tasks`` modules, on our aliases."""
    return _discovered() if AVAILABLE else {}


def is_registered(path: str) -> bool:
    """Whether a schedule may name ``path``."""
    return path in tasks()


def is_ours(alias: str) -> bool:
    """Whether a ``TASKS`` alias makes tasks of ours; False for an alias that is missing or cannot be built."""
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend:
        return False
    return issubclass(backend.task_class, SmallageTask)


def aliases() -> list[str]:
    """The ``TASKS`` aliases that are ours."""
    return [alias for alias in task_backends if is_ours(alias)]


def refuse_unresolvable(task: Any) -> None:
    """Raise ``UnknownTask`` where a worker could not find ``task`` by its path.

    That is so when the decorated function was given another name than its own.
    """
    path = task.module_path
    if path not in _resolved:
        resolve(path)


def _import(path: str) -> Any:
    if len(path) > 255 or not _PATH.fullmatch(path):
        raise UnknownTask(f"{path[:255]!r} is no import path of a task")
    module_name, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module_name), name, None)
    except (Exception, SystemExit) as error:
        raise UnknownTask(f"{path} is not registered in this process: {error!r}") from error
    if not isinstance(found, Task):
        raise UnknownTask(f"{path} is not registered in this process: it is no task")
    return found


@lru_cache(maxsize=1)
def _discovered() -> Mapping[str, Any]:
    autodiscover_modules("tasks")
    found: dict[str, Any] = {}
    for app in apps.get_app_configs():
        module = sys.modules.get(f"{app.name}.tasks")
        for value in list(vars(module).values()) if module is not None else ():
            if isinstance(value, Task) and is_ours(value.backend):
                found[value.module_path] = value
    return MappingProxyType({path: task for path, task in sorted(found.items()) if _resolves(path)})


def _resolves(path: str) -> bool:
    try:
        resolve(path)
    except UnknownTask:
        return False
    return True


@receiver(setting_changed, dispatch_uid="smallage_django.registry")
def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("INSTALLED_APPS", "TASKS"):
        _discovered.cache_clear()
        _resolved.clear()
