"""The admin's pages, a module each. Importing the package registers them on the default admin site.

A site of one's own registers the classes itself: ``site.register(Run, RunAdmin)``.
"""

from __future__ import annotations

from .delayed import DelayedRunAdmin
from .runs import RunAdmin
from .schedules import ScheduleAdmin

__all__ = ["DelayedRunAdmin", "RunAdmin", "ScheduleAdmin"]
