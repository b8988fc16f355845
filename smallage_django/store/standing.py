"""Where a schedule stands: planned anew when its inputs changed, marked broken when it cannot be planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connections, transaction
from django.db.models import Exists, F, Max, OuterRef

from ..domain.lifecycle import Kind, Reason, State
from ..domain.recurrence import zone_data_version
from ..fields import DatabaseClock
from ..models import LeaderTerm, Run, Schedule, ScheduleState
from ..querysets import PLANNING_INPUTS
from ..registry import resolve
from ..rules import rule_of
from ..taskpolicy import frozen_policy
from .guard import guarded
from .reading import (
    BROKEN,
    COLUMNS,
    UNREADABLE_ROW,
    ScheduleRow,
    check_arguments,
    check_instants,
    check_queue,
    instants_in_sql,
    keeps_its_rule,
    policies_of,
    read_rows,
)

_READ: Final = (*COLUMNS, "set_in_sql")
_INSTANT: Final = timedelta(microseconds=1)
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WAITING: Final = (State.PENDING.value, State.HELD.value)


@dataclass(frozen=True, slots=True)
class _Decision:
    """Where a row stands after it was planned anew."""

    next_due_at: datetime | None
    state: str = ScheduleState.ACTIVE.value
    reason: str = ""


class Standings:
    """The scheduler's care for rows that were changed, whichever way."""

    alias: str

    @guarded
    def plan_stale(self, now: datetime, limit: int) -> int:
        """Plan changed schedules anew, from now on; new ones from their creation. See the port."""
        with transaction.atomic(using=self.alias):
            stale = self._lockable().filter(is_stale=True).order_by("id")
            rows, unreadable = read_rows(stale.values_list(*_READ), limit)
            decided, broken = _stand_all(rows, now, self._last_pass_at())
            broken |= dict.fromkeys(unreadable, UNREADABLE_ROW)
            self._write(decided)
            mark_broken(self.alias, broken)
            changed = [row[0] for row in rows if row[COLUMNS.index("planned_kind")] is not None]
            self._cancel_coming(changed, now)
        return len(rows) + len(unreadable)

    @guarded
    def revive_broken(self, now: datetime, limit: int) -> int:
        """Plan broken schedules anew whose task, zone or rule is all right by now. See the port."""
        with transaction.atomic(using=self.alias):
            broken = self._lockable().filter(state=ScheduleState.BROKEN.value).order_by("id")
            rows, _ = read_rows(broken.values_list(*_READ), limit)
            decided, _ = _stand_all(rows, now, now)
            self._write(decided)
        return len(decided)

    @guarded
    def cancel_orphans(self, now: datetime, limit: int) -> int:
        """Cancel waiting runs of schedules that were deleted. See the port."""
        alive = Schedule.objects.filter(pk=OuterRef("schedule_id"))
        runs = Run.objects.using(self.alias)
        orphans = runs.filter(kind=Kind.SCHEDULE.value, state__in=_WAITING).exclude(Exists(alive))
        ids = list(orphans.order_by("id").values_list("pk", flat=True)[:limit])
        return runs.filter(pk__in=ids, state__in=_WAITING).update(
            state=State.CANCELLED.value,
            reason_code=Reason.SCHEDULE_DELETED.value,
            reason="its schedule was deleted",
            finished_at=now,
        )

    def _last_pass_at(self) -> datetime:
        last = LeaderTerm.objects.using(self.alias).aggregate(last=Max("last_pass_at"))["last"]
        return last or _LONG_AGO

    def _lockable(self) -> Any:
        features = connections[self.alias].features
        rows = Schedule.objects.using(self.alias).select_for_update(
            skip_locked=features.has_select_for_update_skip_locked
        )
        return rows.annotate(set_in_sql=instants_in_sql())

    def _write(self, decided: Mapping[int, _Decision]) -> None:
        """Write decisions, and copy the inputs that they were made from; equal decisions share a statement."""
        copies: dict[str, Any] = {f"planned_{name}": F(name) for name in PLANNING_INPUTS}
        same: dict[_Decision, list[int]] = {}
        for pk, decision in decided.items():
            same.setdefault(decision, []).append(pk)
        version = zone_data_version()
        for decision, ids in same.items():
            Schedule.objects.using(self.alias).filter(pk__in=ids).update(
                next_due_at=decision.next_due_at,
                state=decision.state,
                state_reason=decision.reason,
                zone_data=version,
                **copies,
            )

    def _cancel_coming(self, schedules: list[int], now: datetime) -> None:
        """Cancel runs that wait for a later instant of a rule that was changed."""
        if schedules:
            Run.objects.using(self.alias).filter(
                schedule_id__in=schedules,
                kind=Kind.SCHEDULE.value,
                state__in=_WAITING,
                due_at__gt=now,
            ).update(
                state=State.CANCELLED.value,
                reason_code=Reason.RULE_CHANGED.value,
                reason="the rule of its schedule was changed",
                finished_at=now,
            )


def cancel_runs_of(alias: str, schedule_id: int) -> int:
    """Cancel what still waits of a schedule that is about to be deleted; its record stays."""
    return (
        Run.objects.using(alias)
        .filter(schedule_id=schedule_id, kind=Kind.SCHEDULE.value, state__in=_WAITING)
        .update(
            state=State.CANCELLED.value,
            reason_code=Reason.SCHEDULE_DELETED.value,
            reason="its schedule was deleted",
            finished_at=DatabaseClock(),
        )
    )


def mark_broken(alias: str, broken: Mapping[int, str]) -> None:
    """Take schedules out of planning, with the reason; they are planned anew when they are mended."""
    copies: dict[str, Any] = {f"planned_{name}": F(name) for name in PLANNING_INPUTS}
    for pk, reason in broken.items():
        Schedule.objects.using(alias).filter(pk=pk).update(
            state=ScheduleState.BROKEN.value, state_reason=reason, next_due_at=None, **copies
        )


def _since(row: ScheduleRow, now: datetime, last_pass_at: datetime) -> datetime:
    """From when on the row's occurrences are to be accounted for."""
    if row.planned_kind is None:
        # What a new row promised from its creation on is owed. One that claims to be older than the last pass came
        # from elsewhere (a fixture, a copy): it was not there to be missed.
        return min(max(row.created_at, last_pass_at - row.misfire_grace), now)
    if row.next_due_at is not None and keeps_its_rule(row):
        # Only its bounds were changed: what was owed stays owed.
        return row.next_due_at - _INSTANT
    return now


def _stand_all(
    rows: Sequence[tuple[Any, ...]], now: datetime, last_pass_at: datetime
) -> tuple[dict[int, _Decision], dict[int, str]]:
    """Where each row stands, and why those that cannot stand anywhere are broken."""
    decided: dict[int, _Decision] = {}
    broken: dict[int, str] = {}
    for values in rows:
        row = ScheduleRow(*values[:-1])
        try:
            check_instants(row, values[-1])
            decided[row.id] = _stand(row, now, last_pass_at)
        except BROKEN as error:
            broken[row.id] = str(error)
    return decided, broken


def _stand(row: ScheduleRow, now: datetime, last_pass_at: datetime) -> _Decision:
    """Where a row stands that is planned anew. Raises one of ``BROKEN``."""
    check_arguments(row)
    task = resolve(row.task)
    check_queue(row.queue or task.queue_name)
    frozen_policy(task, row)
    policies_of(row)
    rule = rule_of(row)
    if not row.enabled:
        return _Decision(None, ScheduleState.PAUSED.value, "not enabled")
    since = max(_since(row, now, last_pass_at), row.accounted_until or _LONG_AGO)
    if row.starts_at is not None:
        since = max(since, row.starts_at - _INSTANT)
    state, reason = ScheduleState.ACTIVE.value, ""
    if row.paused_until is not None and row.paused_until > now:
        since = max(since, row.paused_until - _INSTANT)
        state, reason = ScheduleState.PAUSED.value, f"until {row.paused_until:%Y-%m-%d %H:%M:%S}Z"
    if row.max_runs is not None and row.runs_fired >= row.max_runs:
        return _Decision(None, ScheduleState.ENDED.value, "it has made all the runs it may make")
    following = rule.next_after(since)
    if following is None:
        return _Decision(None, ScheduleState.EXHAUSTED.value, "the rule has no further occurrence")
    if row.ends_at is not None and following > row.ends_at:
        return _Decision(
            None,
            ScheduleState.ENDED.value,
            f"its end, {row.ends_at:%Y-%m-%d %H:%M:%S}Z, comes before the next occurrence",
        )
    return _Decision(following, state, reason)
