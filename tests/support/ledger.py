"""What real processes did, held against what was promised: rows, effects of user code, and what is left in Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import redis

from smallage_django.domain.lifecycle import TERMINAL, State
from smallage_django.models import Attempt, DelayedRun, Heartbeat, LeaderTerm, Run, Schedule
from tests.app.models import Effect
from tests.support.processes import Process
from tests.support.waiting import wait_until

RECORD: Final = "tests.app.tasks.record"
HOLD: Final = "tests.app.tasks.record_and_hold"
#: A crash is noticed within a second or two, so that a scenario with several of them stays short.
QUICK: Final[dict[str, float]] = {
    "INTERVAL": 0.2,
    "LEASE_TTL": 2,
    "RECOVER_AFTER": 1,
    "ALIVE_TTL": 3,
    "RECLAIM_GRACE": 1,
}
#: Looking at the rows more often would take from the processes what they need to move them.
_LOOK_S: Final = 0.05
_TERMINAL: Final = [state.value for state in TERMINAL]


class Ledger:
    """The accounts of one test: ``settle`` closes them."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace

    # -- while it goes on -------------------------------------------------------------------------------------------

    def succeeded(self) -> int:
        """How many runs have a recorded success."""
        return Run.objects.filter(state=State.SUCCEEDED.value).count()

    def wait_for_successes(self, count: int, timeout: float = 30.0) -> None:
        """Wait until at least so many runs have succeeded."""
        wait_until(lambda: self.succeeded() >= count, timeout, interval=_LOOK_S, message=self.tell)

    def wait_for_attempt(self, fire_id: str, number: int, timeout: float = 30.0) -> Run:
        """Wait until this attempt of a run has begun, and return the row."""
        rows = Run.objects.filter(
            fire_id=fire_id, attempt__gte=number, state=State.RUNNING.value
        ).exclude(worker="")
        return wait_until(rows.first, timeout, interval=_LOOK_S, message=self.tell)  # type: ignore[return-value]

    def leader(self, *among: Process, timeout: float = 20.0) -> Process:
        """Which of these schedulers leads now; waits for one to."""

        def look() -> Process | None:
            term = LeaderTerm.objects.filter(ended_at__isnull=True).order_by("-epoch").first()
            return next((one for one in among if term is not None and one.pid == term.pid), None)

        found = wait_until(look, timeout, interval=_LOOK_S, message=self.tell)
        assert found is not None
        return found

    def wait_for_worker(self, process: Process, timeout: float = 20.0) -> str:
        """Wait until a worker process has shown itself, and return its name."""
        beats = Heartbeat.objects.filter(pid=process.pid, role="worker", stopped_at__isnull=True)
        beat = wait_until(beats.first, timeout, message=process.tail)
        assert beat is not None
        return str(beat.name)

    # -- at the end -------------------------------------------------------------------------------------------------

    def settle(self, runs: int, *, twice: Collection[str] = (), timeout: float = 30.0) -> list[Run]:
        """Wait until all is over, then hold that each of so many runs succeeded once, with one effect.

        ``twice`` names the fire ids whose effect came twice, as promised: their worker was lost after it.
        """
        rows = self.settle_rows(runs, timeout=timeout)
        expected = {run.fire_id: 2 if run.fire_id in twice else 1 for run in rows}
        assert self.effects() == expected, self.tell()
        return rows

    def settle_rows(self, runs: int, *, timeout: float = 30.0) -> list[Run]:
        """As :meth:`settle`, for runs that may have been lost anywhere: no effect without an attempt that began."""
        wait_until(lambda: self._is_over(runs), timeout, interval=_LOOK_S, message=self.tell)
        rows = list(Run.objects.order_by("scheduled_for", "id"))
        assert len(rows) == len({run.fire_id for run in rows}) == runs, self.tell()
        assert {run.state for run in rows} == {State.SUCCEEDED.value}, self.tell()
        effects = self.effects()
        assert all(1 <= effects[run.fire_id] <= run.attempt for run in rows), self.tell()
        assert effects.keys() == {run.fire_id for run in rows}, self.tell()
        assert not DelayedRun.objects.filter(state="waiting").exists()
        return rows

    def effects(self) -> Counter[str]:
        """How often user code ran, by fire id."""
        return Counter(Effect.objects.values_list("fire_id", flat=True))

    def losses(self) -> list[tuple[str, int]]:
        """The attempts whose worker was lost: fire id and number."""
        lost = Attempt.objects.filter(ending="lost").order_by("run__fire_id", "number")
        return list(lost.values_list("run__fire_id", "number"))

    def in_redis(self) -> dict[str, tuple[int, int]]:
        """Entries and pending entries of every stream that has any."""
        found: dict[str, tuple[int, int]] = {}
        with redis.Redis.from_url(self._url, socket_timeout=5) as client:
            for key in client.scan_iter(f"{{{self._namespace}}}:q:*"):
                groups: Any = client.xinfo_groups(key)
                waiting = (int(client.xlen(key)), sum(int(group["pending"]) for group in groups))
                if any(waiting):
                    found[key.decode()] = waiting
        return found

    def tell(self) -> str:
        """The state of things, for messages of failed assertions."""
        open_runs = Run.objects.exclude(state=State.SUCCEEDED.value).values_list(
            "fire_id", "state", "attempt", "worker", "reason_code", "error"
        )
        return (
            f"runs {dict(Counter(Run.objects.values_list('state', flat=True)))}, "
            f"delayed {dict(Counter(DelayedRun.objects.values_list('state', flat=True)))}, "
            f"effects {Effect.objects.count()}, losses {self.losses()}, open {list(open_runs[:10])}"
        )

    def _is_over(self, runs: int) -> bool:
        counts = Counter(Run.objects.values_list("state", flat=True))
        open_runs = sum(count for state, count in counts.items() if state not in _TERMINAL)
        return counts.total() >= runs and not open_runs and not self.in_redis()


def every_second(name: str = "ticker", **values: Any) -> Schedule:
    """A schedule that is due each second from now on."""
    defaults: dict[str, Any] = {
        "kind": "interval",
        "every": 1,
        "unit": "seconds",
        "task": RECORD,
        "kwargs": {"key": name},
        "overlap_policy": "allow",
    }
    return Schedule.objects.create(name=name, **{**defaults, **values})


def one_offs(
    count: int, first: datetime, step: timedelta = timedelta(0), **values: Any
) -> list[DelayedRun]:
    """So many promises, ``step`` apart, each with a key of its own for its effect."""
    made = [
        DelayedRun(
            run_at=first + number * step,
            **{"task": RECORD, "kwargs": {"key": f"one-off {number}"}, **values},
        )
        for number in range(count)
    ]
    return DelayedRun.objects.bulk_create(made)


def assert_every_second(runs: Collection[Run]) -> None:
    """Hold that the runs of one schedule account for each second between the first and the last of them."""
    at = sorted(run.scheduled_for for run in runs)
    gaps = {later - earlier for earlier, later in pairwise(at)}
    assert gaps <= {timedelta(seconds=1)}, gaps
