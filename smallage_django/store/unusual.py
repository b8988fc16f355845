"""Deliveries that the ordinary begin did not take: foreign, too late, poison, over, or another worker's.

They are looked at one by one. Each change is again a conditional update whose row count is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q

from ..domain import identity
from ..domain.envelope import Envelope
from ..domain.lifecycle import ACTIVE, Ending, Kind, Reason, State
from ..domain.texts import clean
from ..errors import WorkerLost
from ..models import Attempt, Heartbeat, Run, RunEvent
from ..ports import Beginning, Begun, Delivery
from .bulk.columns import BEGUN
from .bulk.portable_working import BEGINNABLE

REASON_LENGTH: Final = 1_000
_LOST_CLASS: Final = f"{WorkerLost.__module__}.{WorkerLost.__qualname__}"
_FACTS: Final = (
    "id",
    "fire_id",
    "kind",
    "state",
    "worker",
    "token",
    "stream",
    "entry_id",
    "attempt",
    "max_attempts",
    "started_at",
    "start_deadline_at",
)

Pair = tuple[Delivery, Envelope]
Row = Mapping[str, Any]
#: Deliveries that can never be begun, with a reason code and the facts.
Poison = list[tuple[Delivery, str, str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Who reads, under which token, at which instant of the agreed clock."""

    worker: str
    token: str
    now: datetime


@dataclass(slots=True)
class _Sorted:
    begun: list[Begun] = field(default_factory=list)
    over: list[Delivery] = field(default_factory=list)
    elsewhere: list[Delivery] = field(default_factory=list)
    poison: Poison = field(default_factory=list)


class Unusual:
    """Settles deliveries against their rows."""

    def __init__(
        self, alias: str, silent_after: timedelta, max_deliveries: int, default_attempts: int
    ) -> None:
        self.alias = alias
        self._silent_after = silent_after
        self._max_deliveries = max_deliveries
        self._default_attempts = default_attempts

    def adopt(self, pairs: Sequence[Pair], reading: Reading) -> tuple[dict[str, Pair], Poison]:
        """Give entries of other producers rows of their own: what may be begun now, by fire id, and what never can."""
        rows = self._facts([row_id(pair[1]) for pair in pairs])
        foreign = {
            row_id(pair[1]): pair
            for pair in reversed(pairs)
            if row_id(pair[1]) not in rows and pair[0].deliveries <= self._max_deliveries
        }
        poison: Poison = []
        if not foreign:
            return {}, poison
        # Together, or a crash in between would leave a row that runs without its arguments.
        with transaction.atomic(using=self.alias):
            made = [self._foreign(fire_id, *pair, reading) for fire_id, pair in foreign.items()]
            Run.objects.using(self.alias).bulk_create(made, ignore_conflicts=True)
            for fire_id, (delivery, letter) in list(foreign.items()):
                told = _unreadable(letter)
                if told is not None:
                    code = Reason.BAD_ARGUMENTS.value
                    fail_waiting(self.alias, Q(fire_id=fire_id), reading.now, code, told)
                    poison.append((delivery, code, told))
                    del foreign[fire_id]
        return foreign, poison

    def sort(self, pairs: Sequence[Pair], reading: Reading) -> Beginning:
        """Say of each delivery what is to be done with it."""
        found = _Sorted()
        rows = self._facts([row_id(pair[1]) for pair in pairs])
        living = self._living({row["worker"] for row in rows.values()}, reading.now)
        for delivery, letter in pairs:
            row = rows.get(row_id(letter))
            if row is not None and row["state"] == State.RUNNING:
                self._settle_running(row, delivery, reading, living, found)
                # Another entry of this fire in the same read has to see what was just done.
                rows |= self._facts([row["fire_id"]])
            else:
                self._settle_waiting(row, delivery, reading.now, found)
        return Beginning(found.begun, found.over, found.elsewhere, found.poison)

    def _facts(self, fire_ids: Sequence[str]) -> dict[str, Row]:
        rows = Run.objects.using(self.alias).filter(fire_id__in=fire_ids).values(*_FACTS)
        return {row["fire_id"]: row for row in rows}

    def _foreign(self, fire_id: str, delivery: Delivery, letter: Envelope, reading: Reading) -> Run:
        ideal = identity.from_epoch_ms(letter.enqueued_at)
        return Run(
            fire_id=fire_id,
            kind=Kind.ENQUEUE.value,
            task=letter.task[:255],
            kwargs=_arguments(letter.payload) or {},
            payload_ref=letter.payload_ref[:255],
            queue=_queue_of(delivery.stream),
            scheduled_for=ideal,
            due_at=ideal,
            state=State.CLAIMED.value,
            claimed_at=reading.now,
            # A stock worker's retries go on where they are; its budget is counted from the first attempt.
            attempt=letter.attempt,
            max_attempts=max(self._default_attempts, letter.attempt + 1),
            traceparent=letter.traceparent[:64],
        )

    def _living(self, workers: set[str], now: datetime) -> set[str]:
        beats = Heartbeat.objects.using(self.alias).filter(
            name__in=workers - {""},
            stopped_at__isnull=True,
            beat_at__gte=now - self._silent_after,
        )
        return set(beats.values_list("name", flat=True))

    def _settle_running(
        self, row: Row, delivery: Delivery, reading: Reading, living: set[str], found: _Sorted
    ) -> None:
        same = (row["stream"], row["entry_id"]) == (delivery.stream, delivery.entry_id)
        if row["token"] == reading.token:
            # Begun by an earlier call whose answer was lost, or by another entry of the same read.
            if same:
                found.begun.append(self._begun(row["id"], delivery))
            else:
                found.over.append(delivery)
            return
        silent = row["worker"] not in living
        if row["worker"] == reading.worker:
            # The caller holds none of these entries: an earlier start of the same name began this one.
            silent = same
        if silent:
            self._take_over(row, delivery, reading, found)
        elif same:
            found.elsewhere.append(delivery)
        else:
            found.over.append(delivery)

    def _settle_waiting(
        self, row: Row | None, delivery: Delivery, now: datetime, found: _Sorted
    ) -> None:
        told = f"delivered {delivery.deliveries} times and never begun"
        poison = (delivery, Reason.TOO_MANY_DELIVERIES.value, told)
        if row is None:
            found.poison.append(poison)
        elif row["state"] not in BEGINNABLE:
            found.over.append(delivery)
        elif row["start_deadline_at"] is not None and row["start_deadline_at"] < now:
            expired = self._expire(row, now)
            (found.over if expired else found.elsewhere).append(delivery)
        elif delivery.deliveries > self._max_deliveries:
            fail_waiting(self.alias, Q(pk=row["id"]), now, poison[1], told)
            found.poison.append(poison)
        else:
            found.elsewhere.append(delivery)

    def _expire(self, row: Row, now: datetime) -> int:
        delayed = row["kind"] == Kind.DELAYED
        reason = Reason.DEADLINE if delayed else Reason.START_DEADLINE
        late = (now - row["start_deadline_at"]).total_seconds()
        runs = Run.objects.using(self.alias).filter(pk=row["id"], state__in=BEGINNABLE)
        return runs.update(
            state=State.EXPIRED.value,
            finished_at=now,
            reason_code=reason.value,
            reason=f"picked up {late:.1f} s after its deadline",
        )

    def _take_over(self, row: Row, delivery: Delivery, reading: Reading, found: _Sorted) -> None:
        """Count the attempt of an owner that went silent as lost, and begin the next or end the run."""
        told = f"{row['worker'] or 'its worker'} went silent during attempt {row['attempt']}"
        spent = row["attempt"] >= row["max_attempts"]
        with transaction.atomic(using=self.alias):
            run = Run.objects.using(self.alias).filter(
                pk=row["id"],
                state=State.RUNNING.value,
                token=row["token"],
                attempt=row["attempt"],
            )
            won = self._end(run, told, reading) if spent else self._move(run, delivery, reading)
            if won:
                self._record_loss(row, told, reading.now)
        if not won:
            found.elsewhere.append(delivery)
        elif spent:
            found.over.append(delivery)
        else:
            found.begun.append(self._begun(row["id"], delivery))

    @staticmethod
    def _end(run: Any, told: str, reading: Reading) -> int:
        ended: int = run.update(
            state=State.FAILED.value,
            finished_at=reading.now,
            reason_code=Reason.WORKER_LOST.value,
            reason=told,
            error=told,
        )
        return ended

    @staticmethod
    def _move(run: Any, delivery: Delivery, reading: Reading) -> int:
        moved: int = run.update(
            attempt=F("attempt") + 1,
            token=reading.token,
            worker=reading.worker,
            started_at=reading.now,
            stream=delivery.stream,
            entry_id=delivery.entry_id,
        )
        return moved

    def _record_loss(self, row: Row, told: str, now: datetime) -> None:
        lost = Attempt(
            run_id=row["id"],
            number=row["attempt"],
            worker=row["worker"],
            started_at=row["started_at"],
            finished_at=now,
            ending=Ending.LOST.value,
            error_class=_LOST_CLASS,
            error=told,
        )
        Attempt.objects.using(self.alias).bulk_create([lost], ignore_conflicts=True)
        RunEvent.objects.using(self.alias).create(
            run_id=row["id"], at=now, kind="lost", actor=row["worker"], detail=told
        )

    def _begun(self, pk: int, delivery: Delivery) -> Begun:
        return begun_from(delivery, Run.objects.using(self.alias).values_list(*BEGUN).get(pk=pk))


def fail_waiting(alias: str, which: Q, now: datetime, reason_code: str, reason: str) -> int:
    """Fail runs that no attempt has begun and none will; how many were still waiting."""
    waiting = [state.value for state in ACTIVE - {State.RUNNING, State.HELD}]
    return (
        Run.objects.using(alias)
        .filter(which, state__in=waiting)
        .update(
            state=State.FAILED.value,
            finished_at=now,
            reason_code=reason_code,
            reason=clean(reason, REASON_LENGTH),
        )
    )


def row_id(letter: Envelope) -> str:
    """The fire id of an entry's row: its own id, or one made from it where that is too long for the column."""
    if len(letter.id) <= identity.MAX_LENGTH:
        return letter.id
    return f"{letter.id[:30]}~{sha256(letter.id.encode()).hexdigest()[:32]}"


def begun_from(delivery: Delivery, row: Sequence[Any]) -> Begun:
    """The value of a row that was read back."""
    values = dict(zip(BEGUN, row, strict=True))
    values["run_id"] = values.pop("id")
    del values["stream"], values["entry_id"]
    return Begun(delivery=delivery, **values)


def _queue_of(stream: str) -> str:
    """``{ns}:q:<queue>[@<priority>]:<shard>`` names its queue."""
    name = stream.partition(":q:")[2].rpartition(":")[0]
    return name.partition("@")[0][:64] or "default"


def _arguments(payload: bytes) -> dict[str, Any] | None:
    try:
        arguments = json.loads(payload or b"{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def _unreadable(letter: Envelope) -> str | None:
    """Why the arguments of an entry cannot be read; None where they can."""
    if letter.payload_ref:
        return f"its payload is at {letter.payload_ref}, which this worker does not read"
    return None if _arguments(letter.payload) is not None else "its payload is no JSON object"
