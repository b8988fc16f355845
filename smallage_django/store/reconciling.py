"""What SQL says is in Redis, held against what is there: lost entries are claimed again, leftovers named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from ..domain.lifecycle import TERMINAL, Ending, Reason, State
from ..errors import WorkerLost
from ..models import Attempt, Heartbeat, HeartbeatRole, Run, RunEvent
from ..ports import Order, Presence
from .guard import guarded
from .orders import ORDERED, order_of

_OPEN: Final = (State.ENQUEUED, State.RUNNING)
_PRESENT: Final = ("id", "fire_id", "state", "stream", "entry_id", "attempt", "max_attempts")


class Reconciling:
    """Step 6 of the scheduler, as far as it is reads and writes of rows."""

    alias: str

    @guarded
    def presences(
        self, after_id: int, limit: int, owner_silent_since: datetime
    ) -> Sequence[Presence]:
        """A page of runs that should have an entry. See the port."""
        owner = Heartbeat.objects.filter(
            name=OuterRef("worker"),
            role=HeartbeatRole.WORKER.value,
            beat_at__gte=owner_silent_since,
            stopped_at__isnull=True,
        )
        rows = (
            Run.objects.using(self.alias)
            .in_state(*_OPEN)
            .filter(Q(state=State.ENQUEUED.value) | ~Exists(owner), pk__gt=after_id)
            .order_by("pk")
            .values_list(*_PRESENT)
        )
        return [
            Presence(pk, fire_id, State(state), stream, entry_id, attempt < most)
            for pk, fire_id, state, stream, entry_id, attempt, most in rows[:limit]
        ]

    @guarded
    def reclaim_missing(
        self, missing: Sequence[Presence], now: datetime, fence: int
    ) -> Sequence[Order]:
        """Claim rows again whose entry is gone. See the port."""
        lost = {presence.run_id: presence for presence in missing}
        with transaction.atomic(using=self.alias):
            claimed = [
                presence.run_id for presence in missing if self._claim_again(presence, now, fence)
            ]
            RunEvent.objects.using(self.alias).bulk_create(
                RunEvent(
                    run_id=pk,
                    at=now,
                    kind="reconciled",
                    actor="scheduler",
                    detail=f"entry {lost[pk].entry_id} of {lost[pk].stream} was gone",
                )
                for pk in claimed
            )
            rows = list(Run.objects.using(self.alias).filter(pk__in=claimed).only("id", *ORDERED))
        return [
            order_of(
                run,
                run.pk,
                attempt=run.attempt,
                promotion=run.promotion,
                lost_entry=lost[run.pk].entry_id,
            )
            for run in rows
        ]

    @guarded
    def terminal_among(self, fire_ids: Sequence[str]) -> set[str]:
        """Which of these runs are over."""
        over = Run.objects.using(self.alias).in_state(*sorted(TERMINAL))
        return set(over.filter(fire_id__in=fire_ids).values_list("fire_id", flat=True))

    def _claim_again(self, presence: Presence, now: datetime, fence: int) -> bool:
        """Compare and set on the lost entry: whoever moved the row on meanwhile is right."""
        if presence.state is State.RUNNING:
            return self._lose_attempt(presence, now, fence)
        row = Run.objects.using(self.alias).filter(
            pk=presence.run_id, state=State.ENQUEUED.value, entry_id=presence.entry_id
        )
        return bool(
            row.update(
                state=State.CLAIMED.value,
                promotion=F("promotion") + 1,
                fence=fence,
                claimed_at=now,
            )
        )

    def _lose_attempt(self, presence: Presence, now: datetime, fence: int) -> bool:
        """Count the attempt of a silent owner as lost; claim the next one, or end the run where none is left."""
        runs = Run.objects.using(self.alias)
        running = runs.filter(
            pk=presence.run_id, state=State.RUNNING.value, entry_id=presence.entry_id
        )
        run = running.first()
        if run is None:
            return False
        sentence = f"worker {run.worker} went silent, and the entry of the run is gone"
        if presence.attempts_left:
            changed = running.filter(token=run.token).update(
                state=State.CLAIMED.value,
                promotion=F("promotion") + 1,
                fence=fence,
                claimed_at=now,
            )
        else:
            changed = running.filter(token=run.token).update(
                state=State.FAILED.value,
                reason_code=Reason.WORKER_LOST.value,
                reason=sentence,
                error=sentence,
                finished_at=now,
            )
        if changed:
            Attempt.objects.using(self.alias).bulk_create(
                [
                    Attempt(
                        run_id=run.pk,
                        number=run.attempt,
                        worker=run.worker,
                        started_at=run.started_at,
                        finished_at=now,
                        ending=Ending.LOST.value,
                        error_class=f"{WorkerLost.__module__}.{WorkerLost.__qualname__}",
                        error=sentence,
                    )
                ],
                ignore_conflicts=True,
            )
        return bool(changed) and presence.attempts_left
