"""The rows as a worker changes them: begin, finish, give back, fail, beat.

The ordinary path is one statement for a whole read (``store/bulk``). Entries that it did not begin are looked at one
by one, and each change there is again a conditional update whose row count is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction
from django.db.models import F, Q

from ..domain import identity
from ..domain.lifecycle import Ending, State
from ..domain.retry import DEFAULT_ATTEMPTS
from ..domain.texts import clean, shorten
from ..models import Attempt, HeartbeatRole, Run
from ..ports import Beginning, Begun, Delivery, Finish
from .bulk import portable_working, postgres_working
from .bulk.portable_working import Entry
from .guard import guarded
from .heartbeats import record_beat
from .unusual import Pair, Reading, Unusual, begun_from, fail_waiting, row_id

#: Deliveries of one entry that nobody begins, after which it is called poison.
MOST_DELIVERIES: Final = 5
ERROR_LENGTH: Final = 2_000
TRACEBACK_LENGTH: Final = 32_000
_REASON_LENGTH: Final = 1_000


class WorkingStore:
    """``WorkerStore`` over the ORM. ``alias`` is the database of the runs."""

    def __init__(
        self,
        alias: str = "default",
        *,
        silent_after: timedelta = timedelta(seconds=6),
        max_deliveries: int = MOST_DELIVERIES,
        default_attempts: int = DEFAULT_ATTEMPTS,
    ) -> None:
        self.alias = alias
        self._max_deliveries = max_deliveries
        self._unusual = Unusual(alias, silent_after, max_deliveries, default_attempts)
        connection = connections[alias]
        self._bulk: Any = (
            postgres_working if connection.vendor == "postgresql" else portable_working
        )

    # -- begin ------------------------------------------------------------------------------------------------------

    @guarded
    def begin(
        self, deliveries: Sequence[Pair], worker: str, token: str, now: datetime
    ) -> Beginning:
        """Take what may run, and tell what became of the rest. See the port."""
        ordinary: dict[str, Pair] = {}
        for pair in deliveries:
            if pair[0].deliveries <= self._max_deliveries:
                ordinary.setdefault(row_id(pair[1]), pair)
        begun = self._take(ordinary, worker, token, now)
        if len(begun) == len(deliveries):
            return Beginning(begun=begun)
        held = {id(item.delivery) for item in begun}
        rest = [pair for pair in deliveries if id(pair[0]) not in held]
        reading = Reading(worker, token, now)
        foreign, poison = self._unusual.adopt(rest, reading)
        begun += self._take(foreign, worker, token, now)
        held |= {id(item.delivery) for item in begun} | {id(item[0]) for item in poison}
        rest = [pair for pair in rest if id(pair[0]) not in held]
        sorted_out = self._unusual.sort(rest, reading)
        return replace(
            sorted_out,
            begun=[*begun, *sorted_out.begun],
            poison=[*poison, *sorted_out.poison],
        )

    def _take(
        self, pairs: Mapping[str, Pair], worker: str, token: str, now: datetime
    ) -> list[Begun]:
        if not pairs:
            return []
        entries = [
            Entry(fire_id, pair[0].stream, pair[0].entry_id, _added_at(pair[0], now))
            for fire_id, pair in pairs.items()
        ]
        connection = connections[self.alias]
        if self._bulk is postgres_working:
            rows = self._bulk.begin(connection, entries, worker, token, now)
        else:
            with transaction.atomic(using=self.alias):
                rows = self._bulk.begin(connection, entries, worker, token, now)
        found = {row[1]: row for row in rows}
        return [
            begun_from(pair[0], found[fire_id])
            for fire_id, pair in pairs.items()
            if fire_id in found
        ]

    # -- finish -----------------------------------------------------------------------------------------------------

    @guarded
    def finish(self, finishes: Sequence[Finish]) -> set[int]:
        """Record outcomes where the attempt is still ours; the run ids that were accepted."""
        fit = [_storable(item) for item in finishes]
        try:
            return self._finish(fit)
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, ValueError, TypeError) as error:
            if len(fit) > 1:
                raise
            # Its outcome is worth more than its details.
            return self._finish([_without_details(fit[0], error)])

    def _finish(self, finishes: Sequence[Finish]) -> set[int]:
        connection = connections[self.alias]
        attempts = [
            _attempt(item) for item in finishes if item.outcome.ending is not Ending.SUCCEEDED
        ]
        alone = self._bulk is postgres_working and not connection.in_atomic_block
        if alone and not attempts:
            accepted: set[int] = self._bulk.finish(connection, finishes)
        else:
            with transaction.atomic(using=self.alias):
                accepted = self._bulk.finish(connection, finishes)
                Attempt.objects.using(self.alias).bulk_create(
                    [attempt for attempt in attempts if attempt.run_id in accepted],
                    ignore_conflicts=True,
                )
        if len(accepted) < len(finishes):
            missing = [item for item in finishes if item.begun.run_id not in accepted]
            accepted |= portable_working.recorded(self.alias, missing)
        return accepted

    # -- the rest ---------------------------------------------------------------------------------------------------

    @guarded
    def fail_unstarted(self, fire_id: str, now: datetime, reason_code: str, reason: str) -> bool:
        """End a run that no attempt will start, unless one has or it is over."""
        return fail_waiting(self.alias, Q(fire_id=fire_id), now, reason_code, reason) > 0

    @guarded
    def give_back(self, begun: Sequence[Begun], now: datetime) -> int:
        """Return runs whose code never ran: the attempt does not count, and their entry may be begun again."""
        given = 0
        for item in begun:
            first = item.attempt == 1
            given += (
                Run.objects.using(self.alias)
                .filter(
                    pk=item.run_id,
                    state=State.RUNNING.value,
                    token=item.token,
                    attempt=item.attempt,
                )
                .update(
                    state=State.CLAIMED.value,
                    claimed_at=now,
                    attempt=F("attempt") - 1,
                    token="",
                    worker="",
                    started_at=None,
                    **({"first_started_at": None, "start_lag_ms": None} if first else {}),
                )
            )
        return given

    @guarded
    def beat(self, facts: Mapping[str, Any], now: datetime) -> None:
        """Record the heartbeat of a worker process."""
        record_beat(self.alias, HeartbeatRole.WORKER, facts, now)

    def close(self) -> None:
        """Close the calling thread's connection."""
        connections[self.alias].close()


def _added_at(delivery: Delivery, now: datetime) -> datetime:
    """When the entry was added: the milliseconds in its id."""
    milliseconds = delivery.entry_id.partition("-")[0]
    return identity.from_epoch_ms(int(milliseconds)) if milliseconds.isdigit() else now


def _attempt(finish: Finish) -> Attempt:
    begun, outcome = finish.begun, finish.outcome
    return Attempt(
        run_id=begun.run_id,
        number=begun.attempt,
        worker=begun.worker,
        started_at=begun.started_at,
        finished_at=finish.finished_at,
        ending=outcome.ending.value,
        error_class=outcome.error_class,
        error=outcome.error,
        traceback=outcome.traceback,
    )


def _storable(finish: Finish) -> Finish:
    """The same outcome with its texts bounded and free of what a column refuses."""
    outcome = finish.outcome
    if outcome.ending is Ending.SUCCEEDED and not finish.reason:
        return finish
    return replace(
        finish,
        reason=clean(finish.reason, _REASON_LENGTH),
        outcome=replace(
            outcome,
            error_class=clean(outcome.error_class, 255),
            error=clean(outcome.error, ERROR_LENGTH),
            traceback=shorten(outcome.traceback, TRACEBACK_LENGTH),
        ),
    )


def _without_details(finish: Finish, error: Exception) -> Finish:
    told = clean(f"its details could not be stored: {error}", _REASON_LENGTH)
    outcome = replace(finish.outcome, result=None, error=told, traceback="")
    return replace(finish, outcome=outcome, reason=finish.reason or told)
