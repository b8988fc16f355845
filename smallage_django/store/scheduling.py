"""``SchedulerStore`` over the ORM, put together from its steps."""

from __future__ import annotations

from .claiming import Claiming
from .delaying import Delaying
from .firing import Firing
from .reconciling import Reconciling
from .standing import Standings
from .terms import Terms


class SchedulingStore(Terms, Standings, Firing, Delaying, Claiming, Reconciling):
    """The rows as the scheduler changes them. ``alias`` is the database of schedules and runs."""

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
