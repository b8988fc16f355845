"""The rules of schedules in code: ``Cron`` and ``Every``. Importing this reads no settings."""

from __future__ import annotations

from .domain.recurrence import Cron, Every

__all__ = ["Cron", "Every"]
