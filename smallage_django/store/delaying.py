"""Due delayed runs become run rows; those past their deadline become expired ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import connections, transaction
from django.db.models import Q

from ..domain import identity
from ..domain.lifecycle import Kind, Reason, State
from ..errors import UnknownTask
from ..models import DelayedRun, DelayedState
from ..ports import Fired
from ..registry import resolve
from ..taskpolicy import frozen_policy
from .bulk.drafts import RunDraft
from .bulk.selection import bulk_of
from .guard import guarded
from .isolation import row_by_row
from .orders import order_of
from .reading import BROKEN, UNREADABLE_ROW, check_queue, read_rows


class Delaying:
    """Step 2 of the scheduler, for single instants."""

    alias: str

    @guarded
    def fire_delayed(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        """Fire one batch of due delayed runs. See the port."""

        def put_aside(pk: int, reason: str) -> Fired:
            self._put_aside({pk: reason})
            return Fired(examined=1, broken=[f"delayed run {pk}: {reason}"])

        features = connections[self.alias].features
        due = (
            DelayedRun.objects.using(self.alias)
            .select_for_update(skip_locked=features.has_select_for_update_skip_locked)
            .due(now)
            .annotate(bounded=Q(deadline__isnull=False))
        )
        draft = partial(_draft, now=now, fence=fence, full_queues=full_queues)
        return row_by_row(
            lambda: self._fire_delayed(due, draft, limit),
            lambda: list(due.values_list("pk", flat=True)[:limit]),
            lambda pk: self._fire_delayed(due.filter(pk=pk), draft, 1),
            put_aside,
        )

    def _fire_delayed(
        self, due: Any, draft_of: Callable[[DelayedRun], RunDraft], limit: int
    ) -> Fired:
        """Insert the runs and settle the promises: one transaction."""
        bulk, connection = bulk_of(self.alias), connections[self.alias]
        with transaction.atomic(using=self.alias):
            rows, unreadable = _read(due, limit)
            aside = dict.fromkeys(unreadable, UNREADABLE_ROW)
            drafts: list[RunDraft] = []
            for row in list(rows):
                try:
                    drafts.append(draft_of(row))
                except BROKEN as error:
                    rows.remove(row)
                    aside[row.pk] = str(error)
            self._put_aside(aside)
            examined = len(rows) + len(aside)
            told = [f"delayed run {pk}: {reason}" for pk, reason in aside.items()]
            if not rows:
                return Fired(examined=examined, broken=told)
            ids = bulk.insert_runs(connection, drafts)
            settled = bulk.settle_delayed(connection, _settlements(rows, drafts, ids))
        orders = [
            order_of(draft, ids[draft.fire_id])
            for draft in drafts
            if draft.state == State.CLAIMED.value and draft.fire_id in ids
        ]
        expired = sum(draft.state == State.EXPIRED.value for draft in drafts)
        return Fired(orders, settled, expired, examined, told)

    def _put_aside(self, aside: Mapping[int, str]) -> None:
        """Cancel promises that cannot be kept, with the reason; their rows stay for whoever mends them."""
        for pk, reason in aside.items():
            DelayedRun.objects.using(self.alias).filter(
                pk=pk, state=DelayedState.WAITING.value
            ).update(state=DelayedState.CANCELLED.value, key=None, reason=reason)


def _read(due: Any, limit: int) -> tuple[list[DelayedRun], list[int]]:
    """Due rows, and the ids of those with an instant that is set and cannot be read."""
    rows, unreadable = read_rows(due, limit)
    spoilt = {
        row.pk for row in rows if row.run_at is None or (row.bounded and row.deadline is None)
    }
    return [row for row in rows if row.pk not in spoilt], [*unreadable, *sorted(spoilt)]


def _settlements(
    rows: Sequence[DelayedRun], drafts: Sequence[RunDraft], ids: dict[str, int]
) -> list[tuple[int, str, int | None, str]]:
    """(delayed id, state, run id, reason) of each row that was fired or that expired."""
    return [
        (
            row.pk,
            (
                DelayedState.EXPIRED if draft.state == State.EXPIRED.value else DelayedState.FIRED
            ).value,
            ids.get(draft.fire_id),
            draft.reason,
        )
        for row, draft in zip(rows, drafts, strict=True)
    ]


def _draft(row: DelayedRun, now: datetime, fence: int, full_queues: Collection[str]) -> RunDraft:
    check_queue(row.queue)
    state = State.PENDING if row.queue in full_queues else State.CLAIMED
    reason = ""
    if row.deadline is not None and row.deadline < now:
        state = State.EXPIRED
        reason = f"it was useful until {row.deadline:%Y-%m-%d %H:%M:%S}Z"
    frozen = frozen_policy(_task_or_none(row.task), row)
    return RunDraft(
        fire_id=identity.once(row.uid),
        kind=Kind.DELAYED.value,
        state=state.value,
        task=row.task,
        backend=row.backend,
        args=row.args,
        kwargs=row.kwargs,
        queue=row.queue,
        priority=row.priority,
        scheduled_for=row.run_at,
        due_at=row.run_at,
        max_attempts=frozen.max_attempts,
        timeout=frozen.timeout,
        backoff=frozen.backoff,
        reason_code=Reason.DEADLINE.value if state is State.EXPIRED else "",
        reason=reason,
        start_deadline_at=row.deadline,
        late_at=None if row.late_after is None else row.run_at + row.late_after,
        fence=fence,
        claimed_at=now if state is State.CLAIMED else None,
        finished_at=now if state is State.EXPIRED else None,
        traceparent=row.traceparent,
    )


def _task_or_none(path: str) -> Any | None:
    try:
        return resolve(path)
    except UnknownTask:
        # The promise is older than this process's code; the worker says what is wrong with it.
        return None
