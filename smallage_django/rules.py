"""A schedule's columns as a recurrence rule: one reading for the form, the Python side and the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from .domain.recurrence import Cron, Every, Rule
from .errors import InvalidRule


def rule_of(row: Any) -> Rule:
    """The recurrence rule of a row. Raises ``InvalidRule`` naming the part that cannot be.

    ``row`` is a ``Schedule`` or whatever else has its columns: the store reads them without making a model instance.
    An interval without an anchor counts from the row's creation; one that is not saved yet is read as created now.
    """
    if row.kind == "cron":
        key = row.uid.hex if "#" in str(row.expression) else None
        return _cron(row.expression, row.timezone, key, row.gap_policy, row.fold_policy)
    if row.kind != "interval":
        raise InvalidRule(f"kind {row.kind!r} has no rule of its own", field="kind")
    if row.every is None or not row.unit:
        raise InvalidRule("an interval needs a number (every) and a unit", field="interval")
    created = row.created_at if isinstance(row.created_at, datetime) else datetime.now(UTC)
    return _every(row.every, row.unit, row.timezone, row.anchor or created)


@lru_cache(maxsize=20_000)
def _cron(expression: str, zone: str, key: str | None, gap: str, fold: str) -> Rule:
    return Cron(expression, tz=zone, key=key, gap=gap, fold=fold)


@lru_cache(maxsize=20_000)
def _every(number: int, unit: str, zone: str, anchor: datetime) -> Rule:
    every: Callable[..., Rule] = Every
    return every(**{unit: number}, tz=zone, anchor=anchor)
