"""Due schedules and delayed runs become run rows: lock, plan purely, insert, advance, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connections, transaction
from django.db.models import OuterRef, Subquery

from ..domain.lifecycle import Kind, State
from ..domain.planning import Blocker, Fire, Plan, plan
from ..domain.planning import Outage as OutageValue
from ..domain.policies import OverlapPolicy
from ..models import Outage, Run, Schedule, ScheduleRevision
from ..ports import Fired, Order
from ..registry import resolve
from ..taskpolicy import frozen_policy
from .bulk.drafts import Advance, RunDraft
from .bulk.selection import bulk_of
from .guard import guarded
from .isolation import row_by_row
from .orders import order_of
from .reading import (
    BROKEN,
    COLUMNS,
    UNREADABLE_ROW,
    ScheduleRow,
    check_arguments,
    check_queue,
    policies_of,
    read_rows,
    standing_of,
)
from .standing import mark_broken

#: Passes follow one another within seconds: only a batch that waited for longer can hold a missed occurrence.
_RECENT: Final = timedelta(seconds=2)
_MOST_OUTAGES: Final = 1000


@dataclass(slots=True)
class _Batch:
    """What one batch of schedules comes to."""

    now: datetime
    fence: int
    full_queues: Collection[str]
    outages: Sequence[OutageValue] = ()
    plain: list[RunDraft] = field(default_factory=list)
    #: Drafts that point at another run of the batch, by its fire id, with the column that does.
    pointing: list[tuple[RunDraft, str, str]] = field(default_factory=list)
    advances: list[Advance] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)


class Firing:
    """Step 2 of the scheduler."""

    alias: str

    @guarded
    def fire_schedules(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        """Fire one batch of due schedules. See the port."""

        def put_aside(pk: int, reason: str) -> Fired:
            mark_broken(self.alias, {pk: reason})
            return Fired(examined=1, broken=[f"schedule {pk}: {reason}"])

        return row_by_row(
            lambda: self._fire(self._due(now), _Batch(now, fence, full_queues), limit),
            lambda: list(self._due(now).values_list("pk", flat=True)[:limit]),
            lambda pk: self._fire(self._due(now).filter(pk=pk), _Batch(now, fence, full_queues), 1),
            put_aside,
        )

    def _fire(self, due: Any, batch: _Batch, limit: int) -> Fired:
        """Plan, insert and advance what is due: one transaction."""
        bulk, connection = bulk_of(self.alias), connections[self.alias]
        with transaction.atomic(using=self.alias):
            rows, unreadable = _read_due(due, limit)
            batch.outages = self._outages(rows, batch.now)
            blockers = self._blockers(rows)
            for row in rows:
                _plan_one(batch, row, blockers.get(row[0]))
            ids = bulk.insert_runs(connection, batch.plain) if batch.plain else {}
            if batch.pointing:
                ids |= bulk.insert_runs(connection, _pointed(batch.pointing, ids))
            if batch.advances:
                bulk.advance(connection, batch.advances)
            batch.broken |= dict.fromkeys(unreadable, UNREADABLE_ROW)
            mark_broken(self.alias, batch.broken)
        drafts = [*batch.plain, *(item[0] for item in batch.pointing)]
        # A schedule that owes more than one plan holds is due again: the batch counts as full.
        owing = any(
            item.next_due_at is not None and item.next_due_at <= batch.now
            for item in batch.advances
        )
        return Fired(
            orders=_orders(drafts, ids),
            inserted=len(ids),
            examined=limit if owing else len(rows) + len(unreadable),
            broken=[f"schedule {pk}: {reason}" for pk, reason in batch.broken.items()],
        )

    def _due(self, now: datetime) -> Any:
        features = connections[self.alias].features
        latest = (
            ScheduleRevision.objects.filter(schedule_uid=OuterRef("uid"))
            .order_by("-number")
            .values("pk")[:1]
        )
        return (
            Schedule.objects.using(self.alias)
            .select_for_update(skip_locked=features.has_select_for_update_skip_locked)
            .due(now)
            .filter(is_stale=False)
            .annotate(revision=Subquery(latest))
        )

    def _outages(self, rows: Sequence[tuple[Any, ...]], now: datetime) -> Sequence[OutageValue]:
        at = COLUMNS.index("next_due_at")
        oldest = min((row[at] for row in rows), default=now)
        if oldest > now - _RECENT:
            return ()
        known = Outage.objects.using(self.alias).filter(ended_at__gt=oldest)
        known = known.order_by("-ended_at")[:_MOST_OUTAGES]
        return [OutageValue(*span) for span in known.values_list("started_at", "ended_at")]

    def _blockers(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, Blocker]:
        at = COLUMNS.index("overlap_policy")
        asking = [row[0] for row in rows if row[at] != OverlapPolicy.ALLOW]
        if not asking:
            return {}
        active = Run.objects.using(self.alias).active_of(asking).order_by("-id")
        return {
            schedule: Blocker(pk, fire_id)
            for schedule, pk, fire_id in active.values_list("schedule_id", "id", "fire_id")
        }


def _read_due(due: Any, limit: int) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Due rows as tuples, and the ids of those that cannot be read."""
    rows, unreadable = read_rows(due.values_list(*COLUMNS, "revision"), limit)
    at = COLUMNS.index("next_due_at")
    # SQLite's text can hold what is due in its order and reads as None.
    unreadable += [row[0] for row in rows if row[at] is None]
    return [row for row in rows if row[at] is not None], unreadable


def _plan_one(batch: _Batch, values: tuple[Any, ...], blocker: Blocker | None) -> None:
    row, revision = ScheduleRow(*values[:-1]), values[-1]
    try:
        check_arguments(row)
        task = resolve(row.task)
        decided = plan(standing_of(row, blocker), batch.outages, batch.now)
        terms = _terms(row, task)
        drafts = [_draft(batch, row, fire, terms) for fire in decided.fires]
    except BROKEN as error:
        batch.broken[row.id] = str(error)
        return
    for fire, draft in zip(decided.fires, drafts, strict=True):
        draft.revision_id = revision
        if fire.merged_into:
            batch.pointing.append((draft, "merged_into_id", fire.merged_into))
        elif fire.blocked_by is not None and not fire.blocked_by.run_id:
            batch.pointing.append((draft, "blocked_by_id", fire.blocked_by.fire_id))
        else:
            batch.plain.append(draft)
    batch.advances.append(_advance(row, decided))


def _advance(row: ScheduleRow, decided: Plan) -> Advance:
    return Advance(
        schedule_id=row.id,
        was_due_at=row.next_due_at,
        next_due_at=decided.next_due_at,
        accounted_until=decided.accounted_until,
        runs=decided.runs,
        state=decided.state or "active",
        state_reason=decided.reason,
    )


@dataclass(frozen=True, slots=True)
class _Terms:
    """Under which terms the runs of one schedule are made: the row's own, then the task's."""

    queue: str
    priority: int
    max_attempts: int
    timeout: timedelta | None
    backoff: str


def _terms(row: ScheduleRow, task: Any) -> _Terms:
    frozen = frozen_policy(task, row)
    check_queue(row.queue or task.queue_name)
    return _Terms(
        row.queue or task.queue_name,
        task.priority if row.priority is None else row.priority,
        frozen.max_attempts,
        frozen.timeout,
        frozen.backoff,
    )


def _draft(batch: _Batch, row: ScheduleRow, fire: Fire, terms: _Terms) -> RunDraft:
    state = fire.state
    if state is State.CLAIMED and terms.queue in batch.full_queues:
        state = State.PENDING
    claimed = state is State.CLAIMED
    over = state in (State.MISSED, State.SKIPPED, State.EXPIRED)
    policies = policies_of(row)
    deadline, late = policies.start_deadline, policies.late_after
    return RunDraft(
        fire_id=fire.fire_id,
        kind=Kind.SCHEDULE.value,
        state=state.value,
        task=row.task,
        backend=row.backend,
        args=row.args,
        kwargs=row.kwargs,
        queue=terms.queue,
        priority=terms.priority,
        scheduled_for=fire.scheduled_for,
        due_at=fire.due_at,
        max_attempts=terms.max_attempts,
        timeout=terms.timeout,
        backoff=terms.backoff,
        schedule_id=row.id,
        schedule_uid=row.uid,
        schedule_name=row.name,
        blocked_by_id=(fire.blocked_by.run_id or None) if fire.blocked_by else None,
        first_scheduled_for=fire.first_scheduled_for,
        occurrence_count=fire.count,
        reason_code=fire.reason_code,
        reason=fire.reason,
        start_deadline_at=None if deadline is None else fire.due_at + deadline,
        late_at=None if late is None else fire.due_at + late,
        fence=batch.fence,
        claimed_at=batch.now if claimed else None,
        finished_at=batch.now if over else None,
    )


def _pointed(pointing: Sequence[tuple[RunDraft, str, str]], ids: dict[str, int]) -> list[RunDraft]:
    for draft, column, fire_id in pointing:
        setattr(draft, column, ids.get(fire_id))
    return [draft for draft, _, _ in pointing]


def _orders(drafts: Sequence[RunDraft], ids: dict[str, int]) -> list[Order]:
    return [
        order_of(draft, ids[draft.fire_id])
        for draft in drafts
        if draft.state == State.CLAIMED.value and draft.fire_id in ids
    ]
