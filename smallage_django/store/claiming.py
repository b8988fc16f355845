"""Claim, recover, mark: rows on their way to a stream, and back when they did not arrive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connections, transaction
from django.db.models import Q

from ..domain.identity import from_epoch_ms
from ..domain.lifecycle import CLAIMABLE, Kind, Reason, State, sources
from ..models import Run
from ..ports import Fired, Order, Receipt, Survey
from .bulk.drafts import Mark
from .bulk.selection import bulk_of
from .guard import guarded
from .orders import ORDERED, order_of
from .reading import UNREADABLE_ROW, read_rows
from .surveying import survey

_READ: Final = ("id", "due_at", "start_deadline_at", "first_started_at", "kind")
_EXPIRABLE: Final = tuple(sorted(state.value for state in CLAIMABLE & sources(State.EXPIRED)))


class Claiming:
    """Steps 3, 5 and 6 of the scheduler, as far as they are writes of rows."""

    alias: str

    @guarded
    def survey(self) -> Survey:
        """What waits, in one query. See the port."""
        return survey(self.alias)

    @guarded
    def claim_due(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        """Claim one batch of due runs; what is too late to start expires instead. See the port."""
        with transaction.atomic(using=self.alias):
            due = self._lockable_runs().claimable(now).exclude(queue__in=list(full_queues))
            rows, unreadable = self._read(due, now, limit)
            late = [run for run in rows if _too_late(run, now)]
            expired = self._expire(late, now)
            rows = [run for run in rows if not _too_late(run, now)]
            self._claim(rows, tuple(sorted(CLAIMABLE)), now, fence)
        orders = [_order(run) for run in rows]
        told = [f"run {pk}: {UNREADABLE_ROW}" for pk in unreadable]
        examined = len(rows) + len(late) + len(unreadable)
        return Fired(orders, expired=expired, examined=examined, broken=told)

    @guarded
    def recover_claims(
        self, before: datetime, now: datetime, fence: int, limit: int
    ) -> Sequence[Order]:
        """Take over old claims under this fence. See the port."""
        with transaction.atomic(using=self.alias):
            # Claimed at no time, which only a hand in the database can write, is claimed long ago.
            old = Q(claimed_at__lt=before) | Q(claimed_at__isnull=True)
            claims = self._lockable_runs().in_state(State.CLAIMED).filter(old)
            rows, _ = self._read(claims.order_by("-priority", "due_at", "id"), now, limit)
            self._claim(rows, (State.CLAIMED,), now, fence)
        return [_order(run) for run in rows]

    @guarded
    def mark_enqueued(self, fence: int, receipts: Sequence[Receipt]) -> int:
        """Record the entries of what was handed over. See the port."""
        marks = [
            Mark(
                receipt.run_id,
                receipt.stream,
                receipt.entry_id,
                from_epoch_ms(int(receipt.entry_id.partition("-")[0])),
            )
            for receipt in receipts
            if not receipt.error
        ]
        if not marks:
            return 0
        with transaction.atomic(using=self.alias):
            marked: int = bulk_of(self.alias).mark(connections[self.alias], marks, fence)
        return marked

    @guarded
    def fail_unwritable(self, fence: int, receipts: Sequence[Receipt], now: datetime) -> int:
        """End runs whose entry Redis refused, each with its own error."""
        failed = 0
        for receipt in receipts:
            failed += (
                Run.objects.using(self.alias)
                .filter(pk=receipt.run_id, state=State.CLAIMED.value, fence=fence)
                .update(
                    state=State.FAILED.value,
                    reason_code=Reason.UNWRITABLE.value,
                    reason=f"Redis refused the entry: {receipt.error}",
                    error=receipt.error,
                    finished_at=now,
                )
            )
        return failed

    def _read(self, runs: Any, now: datetime, limit: int) -> tuple[list[Run], list[int]]:
        """Rows of a query, and the ids of those that have just failed because they cannot be read."""
        rows, unreadable = read_rows(runs.only(*_READ, *ORDERED), limit)
        unreadable += [run.pk for run in rows if run.due_at is None or run.scheduled_for is None]
        if unreadable:
            Run.objects.using(self.alias).filter(
                pk__in=unreadable, state__in=[state.value for state in sources(State.FAILED)]
            ).update(
                state=State.FAILED.value,
                reason_code=Reason.UNWRITABLE.value,
                reason=UNREADABLE_ROW,
                error=UNREADABLE_ROW,
                finished_at=now,
            )
        put_aside = set(unreadable)
        return [run for run in rows if run.pk not in put_aside], unreadable

    def _lockable_runs(self) -> Any:
        features = connections[self.alias].features
        return Run.objects.using(self.alias).select_for_update(
            skip_locked=features.has_select_for_update_skip_locked
        )

    def _claim(
        self, rows: Sequence[Run], states: Sequence[State], now: datetime, fence: int
    ) -> None:
        """Move locked rows to claimed; without row locks the transaction itself began with a write lock."""
        if rows:
            Run.objects.using(self.alias).filter(
                pk__in=[run.pk for run in rows], state__in=[state.value for state in states]
            ).update(
                state=State.CLAIMED.value,
                fence=fence,
                claimed_at=now,
                reason_code="",
                reason="",
            )

    def _expire(self, rows: Sequence[Run], now: datetime) -> int:
        expired = 0
        for kind, code in ((True, Reason.DEADLINE), (False, Reason.START_DEADLINE)):
            ids = [run.pk for run in rows if (run.kind == Kind.DELAYED) is kind]
            if ids:
                expired += (
                    Run.objects.using(self.alias)
                    .filter(Q(pk__in=ids), state__in=_EXPIRABLE)
                    .update(
                        state=State.EXPIRED.value,
                        reason_code=code.value,
                        reason="it could not be handed over before its deadline",
                        finished_at=now,
                    )
                )
        return expired


def _too_late(run: Run, now: datetime) -> bool:
    """Whether a run that never started would start after its deadline."""
    deadline = run.start_deadline_at
    return deadline is not None and deadline < now and run.first_started_at is None


def _order(run: Run) -> Order:
    return order_of(run, run.pk, attempt=run.attempt, promotion=run.promotion)
