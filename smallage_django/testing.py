"""For a project's own tests: backends that run at once or only collect, and ``drain()``, which works off the rows.

With Django's own immediate and dummy backends ``@task(max_attempts=5)`` would fail at import, and ``policy(...)`` would
be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.db import router

from .compat import DummyBackend as PlatformDummyBackend
from .compat import ImmediateBackend as PlatformImmediateBackend
from .errors import UsageError
from .tasktypes import SmallageTask

if TYPE_CHECKING:
    from .models import Run
    from .ports import Delivery

_BATCH: Final = 100


class ImmediateBackend(PlatformImmediateBackend):
    """Runs a task at once, in the process that enqueues it."""

    task_class = SmallageTask


class DummyBackend(PlatformDummyBackend):
    """Collects what was enqueued in ``results`` and runs nothing."""

    task_class = SmallageTask


def drain(at_most: int = 1000) -> int:
    """Run all work that is due, in this thread and transaction, until nothing is; how many attempts ended.

    Works without Redis and inside ``TestCase``, where nothing is ever committed. Due delayed runs and retries are part
    of it; schedules are not fired. Raises ``UsageError`` after ``at_most`` attempts, as a task may enqueue itself.
    """
    from .models import Run
    from .runner import InlineRunner
    from .store.clock import DatabaseNow
    from .store.scheduling import SchedulingStore
    from .store.working import WorkingStore
    from .worker import Options, Worker

    alias, ended = router.db_for_write(Run), 0
    clock, rows = DatabaseNow(alias), SchedulingStore(alias)
    options = Options(name="drain", queues=(), burst=True)
    worker = Worker(WorkingStore(alias), RowsAsBroker(alias), InlineRunner(), clock, options)
    while ended < at_most:
        now = clock.now()
        rows.fire_delayed(now, 0, _BATCH, ())
        rows.claim_due(now, 0, _BATCH, ())
        worked = worker.work_off()
        if not worked:
            return ended
        ended += worked
    raise UsageError(f"{ended} attempts have ended and there is still work; pass at_most for more")


class RowsAsBroker:
    """``WorkerBroker`` over the rows themselves: what is claimed or enqueued counts as delivered."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        #: Each attempt of each run is handed out once.
        self._seen: set[tuple[int, int]] = set()

    def take(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """The next claimed runs, of every queue, high priority first."""
        from .domain.lifecycle import State
        from .models import Run

        rows = Run.objects.using(self._alias).in_state(State.CLAIMED, State.ENQUEUED)
        fresh = [
            run
            for run in rows.order_by("-priority", "due_at", "id")[: _BATCH + len(self._seen)]
            if (run.pk, run.attempt) not in self._seen
        ][:free]
        self._seen |= {(run.pk, run.attempt) for run in fresh}
        return [_delivery_of(run) for run in fresh]

    def reclaim(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Nobody else holds anything."""
        return []

    def wait(self, queues: Sequence[str], seconds: float) -> bool:
        """Nothing comes by waiting."""
        return False

    def interrupt(self) -> None:
        """Nothing waits."""

    def refresh(self, deliveries: Sequence[Delivery]) -> None:
        """There is no liveness to keep."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """There is no entry to delete."""

    def let_go(self, deliveries: Sequence[Delivery]) -> None:
        """There is no liveness to drop."""

    def bury(self, delivery: Delivery, reason: str, detail: str) -> None:
        """There is no entry to bury; the row says how it ended."""


def _delivery_of(run: Run) -> Delivery:
    from .domain.envelope import VERSION
    from .domain.identity import epoch_ms
    from .ports import Delivery

    due = epoch_ms(run.due_at)
    fields: Iterable[tuple[str, Any]] = (
        ("id", run.fire_id),
        ("task", run.task),
        ("payload", "{}"),
        ("enqueued_at", epoch_ms(run.scheduled_for)),
        ("attempt", run.attempt),
    )
    encoded = {name.encode(): str(value).encode() for name, value in fields}
    return Delivery(f"drain:{run.queue}", f"{due}-{run.pk}", {b"v": VERSION, **encoded})
