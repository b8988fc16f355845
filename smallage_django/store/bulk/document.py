"""Rows as one JSON document, which PostgreSQL turns back into rows.

A document rather than arrays: the driver writes arrays value by value in Python, which for a thousand rows of thirty
columns takes longer than the server needs for the whole statement.

Conditions on the table's own columns are written so that they mention the document too (``CASE WHEN d.id ...``). The
planner then cannot use them to choose its way into the table: with stale statistics it would take the index on the
state and compare every row with every line of the document.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any


def document(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of a JSON document for ``json_to_recordset``."""
    return json.dumps(rows, default=_plain, ensure_ascii=False)


def rows_of(names: Sequence[str], items: Sequence[Any]) -> list[dict[str, Any]]:
    """Each item as a row; what is None is left out, since a missing name reads as NULL."""
    values_of = attrgetter(*names)
    return [
        {
            name: value
            for name, value in zip(names, values_of(item), strict=True)
            if value is not None
        }
        for item in items
    ]


def _plain(value: Any) -> str:
    """What JSON has no type for, as text that PostgreSQL reads."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)} microseconds"
    if isinstance(value, uuid.UUID):
        return value.hex
    raise TypeError(f"{value!r} cannot be given to the database")
