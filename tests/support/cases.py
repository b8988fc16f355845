"""The case banks of recurrence: the project's shared ones where they are at hand, else the copy in ``tests/cases``."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

COPY = Path(__file__).resolve().parent.parent / "cases"
SHARED = COPY.parent.parent.parent / "shared" / "cases"
BANKS = ("cron", "interval", "cron-validation", "cron-hashed")


def bank(name: str) -> list[dict[str, Any]]:
    """The cases of one bank."""
    folder = SHARED if SHARED.is_dir() else COPY
    cases: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return cases


def instant(text: str | None) -> datetime | None:
    """An instant as the banks write it."""
    return None if text is None else datetime.fromisoformat(text)


def written(at: datetime) -> str:
    """The banks' spelling of an instant."""
    return at.isoformat().replace("+00:00", "Z")
