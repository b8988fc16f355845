"""The rows in memory: ``SchedulerStore`` without a database, deciding by the same pure rules as the real one.

It exists to put a crash between any two steps, and to step a scheduler through time without servers. Its methods are
whole steps: what a transaction does is done at once or, when the process dies before it, not at all.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from smallage_django.domain import identity
from smallage_django.domain.envelope import Envelope
from smallage_django.domain.lifecycle import CLAIMABLE, TERMINAL, State, may
from smallage_django.domain.planning import Blocker, Fire, Outage, Standing, plan
from smallage_django.domain.policies import OverlapPolicy, Policies
from smallage_django.domain.recurrence import Rule
from smallage_django.errors import LeaseLost, StoreUnavailable
from smallage_django.ports import Fired, Order, Presence, Receipt, Survey, Term

_INSTANT = timedelta(microseconds=1)


@dataclass
class Plan:
    """A schedule: the inputs, then what the scheduler writes."""

    name: str
    rule: Rule
    created_at: datetime
    policies: Policies = field(default_factory=Policies)
    queue: str = "default"
    uid: uuid.UUID = field(default_factory=uuid.uuid4)
    stale: bool = True
    planned: bool = False
    next_due_at: datetime | None = None
    broken: str = ""

    def change(self, rule: Rule) -> None:
        """Edit the rule, as any writer of rows may."""
        self.rule, self.stale = rule, True


@dataclass
class Promise:
    """A delayed run."""

    run_at: datetime
    uid: uuid.UUID = field(default_factory=uuid.uuid4)
    deadline: datetime | None = None
    queue: str = "default"
    state: str = "waiting"


@dataclass
class Row:
    """A run. ``states`` is all it went through."""

    id: int
    fire_id: str
    scheduled_for: datetime
    due_at: datetime
    queue: str = "default"
    priority: int = 0
    schedule: str = ""
    state: State = State.PENDING
    reason_code: str = ""
    count: int = 1
    blocked_by: str = ""
    fence: int = 0
    claimed_at: datetime | None = None
    promotion: int = 0
    stream: str = ""
    entry_id: str = ""
    states: list[State] = field(default_factory=list)

    def go(self, state: State) -> None:
        """Move on, by the table of transitions."""
        assert may(self.state, state), f"{self.fire_id}: {self.state} to {state}"
        self.state = state
        self.states.append(state)


@dataclass
class MemoryStore:
    """``SchedulerStore`` of one database that any number of schedulers share."""

    plans: list[Plan] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    runs: dict[str, Row] = field(default_factory=dict)
    terms: list[dict[str, Any]] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    beats: dict[str, datetime] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    #: The most rows that one call has claimed.
    largest: int = 0
    away: bool = False
    on_call: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    def owe(self, due_at: datetime, fire_id: str = "", **values: Any) -> Row:
        """A pending run, as an application commits it."""
        number = next(self._numbers)
        row = Row(number, fire_id or f"task:{number:032x}", due_at, due_at, **values)
        self.runs[row.fire_id] = row
        return row

    def in_state(self, state: State) -> list[Row]:
        """Runs in one state, oldest occurrence first."""
        rows = [row for row in self.runs.values() if row.state is state]
        return sorted(rows, key=lambda row: (row.scheduled_for, row.id))

    # -- terms ------------------------------------------------------------------------------------------------------

    def open_term(self, holder: str, now: datetime, seen_fence: int) -> Term:
        self._reach("open_term")
        before = self.terms[-1] if self.terms else {"epoch": 0, "incarnation": ""}
        known = max((term["last_pass_at"] for term in self.terms), default=None)
        epoch = max(before["epoch"], seen_fence) + 1
        for term in self.terms:
            term["ended"] = True
        values = {"epoch": epoch, "holder": holder, "last_pass_at": known or now, "ended": False}
        self.terms.append({**values, "incarnation": before["incarnation"]})
        return Term(epoch, known, before["incarnation"])

    def record_pass(self, epoch: int, now: datetime, incarnation: str) -> None:
        self._reach("record_pass")
        for term in self.terms:
            if term["epoch"] == epoch and not term["ended"]:
                term.update(last_pass_at=now, incarnation=incarnation)
                return
        raise LeaseLost(f"term {epoch} is over")

    def close_term(self, epoch: int, now: datetime) -> None:
        self._reach("close_term")
        for term in self.terms:
            term["ended"] |= term["epoch"] == epoch

    def record_outage(self, outage: Outage, epoch: int) -> None:
        self._reach("record_outage")
        self.outages.append(outage)

    def forget_old(self, now: datetime) -> None:
        self._reach("forget_old")

    def beat(self, facts: Mapping[str, Any], now: datetime) -> None:
        self._reach("beat")
        self.beats[facts["name"]] = now

    # -- schedules --------------------------------------------------------------------------------------------------

    def survey(self) -> Survey:
        self._reach("survey")
        claims = [row.claimed_at for row in self.runs.values() if row.state is State.CLAIMED]
        return Survey(
            min((p.next_due_at for p in self.plans if p.next_due_at), default=None),
            min((p.run_at for p in self.promises if p.state == "waiting"), default=None),
            min((r.due_at for r in self.runs.values() if r.state in CLAIMABLE), default=None),
            min((at for at in claims if at is not None), default=None),
            any(p.stale for p in self.plans),
        )

    def plan_stale(self, now: datetime, limit: int) -> int:
        self._reach("plan_stale")
        stale = [item for item in self.plans if item.stale][:limit]
        for item in stale:
            since = now if item.planned else min(item.created_at, now)
            item.next_due_at = item.rule.next_after(since)
            item.stale, item.planned = False, True
        return len(stale)

    def revive_broken(self, now: datetime, limit: int) -> int:
        self._reach("revive_broken")
        return 0

    def cancel_orphans(self, now: datetime, limit: int) -> int:
        self._reach("cancel_orphans")
        return 0

    def fire_schedules(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        self._reach("fire_schedules")
        due = sorted(
            (p for p in self.plans if p.next_due_at and p.next_due_at <= now and not p.stale),
            key=lambda item: item.next_due_at or now,
        )[:limit]
        rows: list[Row] = []
        broken: list[str] = []
        for item in due:
            if item.broken:
                item.next_due_at = None
                broken.append(f"{item.name}: {item.broken}")
                continue
            decided = plan(self._standing(item), self.outages, now)
            rows += [
                row
                for fire in decided.fires
                if (row := self._insert(item, fire, now, fence, full_queues)) is not None
            ]
            item.next_due_at = decided.next_due_at
        orders = self._orders(row for row in rows if row.state is State.CLAIMED)
        owing = any(p.next_due_at is not None and p.next_due_at <= now for p in due)
        return Fired(orders, len(rows), examined=limit if owing else len(due), broken=broken)

    def fire_delayed(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        self._reach("fire_delayed")
        due = [p for p in self.promises if p.state == "waiting" and p.run_at <= now][:limit]
        rows: list[Row] = []
        expired = 0
        for item in due:
            row = self.owe(item.run_at, identity.once(item.uid), queue=item.queue)
            late = item.deadline is not None and item.deadline < now
            item.state = "expired" if late else "fired"
            expired += late
            if late:
                row.state = State.EXPIRED
            elif item.queue not in full_queues:
                self._claim([row], now, fence)
                rows.append(row)
        return Fired(self._orders(rows), len(due), expired, examined=len(due))

    # -- runs -------------------------------------------------------------------------------------------------------

    def claim_due(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        self._reach("claim_due")
        due = [
            row
            for row in self.runs.values()
            if row.state in CLAIMABLE and row.due_at <= now and row.queue not in full_queues
        ]
        rows = sorted(due, key=lambda row: (-row.priority, row.due_at, row.id))[:limit]
        self._claim(rows, now, fence)
        return Fired(self._orders(rows), examined=len(rows))

    def recover_claims(
        self, before: datetime, now: datetime, fence: int, limit: int
    ) -> Sequence[Order]:
        self._reach("recover_claims")
        old = [
            row
            for row in self.in_state(State.CLAIMED)
            if row.claimed_at is not None and row.claimed_at < before
        ][:limit]
        self._claim(old, now, fence)
        return self._orders(old)

    def mark_enqueued(self, fence: int, receipts: Sequence[Receipt]) -> int:
        self._reach("mark_enqueued")
        marked = 0
        for receipt in receipts:
            row = self.runs[receipt.fire_id]
            if row.state is State.CLAIMED and row.fence == fence:
                row.go(State.ENQUEUED)
                row.stream, row.entry_id = receipt.stream, receipt.entry_id
                marked += 1
        return marked

    def fail_unwritable(self, fence: int, receipts: Sequence[Receipt], now: datetime) -> int:
        self._reach("fail_unwritable")
        rows = [self.runs[receipt.fire_id] for receipt in receipts]
        mine = [row for row in rows if row.state is State.CLAIMED and row.fence == fence]
        for row in mine:
            row.go(State.FAILED)
            row.reason_code = "unwritable"
        return len(mine)

    def presences(
        self, after_id: int, limit: int, owner_silent_since: datetime
    ) -> Sequence[Presence]:
        self._reach("presences")
        rows = [row for row in self.in_state(State.ENQUEUED) if row.id > after_id]
        rows.sort(key=lambda row: row.id)
        return [
            Presence(row.id, row.fire_id, row.state, row.stream, row.entry_id)
            for row in rows[:limit]
        ]

    def reclaim_missing(
        self, missing: Sequence[Presence], now: datetime, fence: int
    ) -> Sequence[Order]:
        self._reach("reclaim_missing")
        lost = {
            item.fire_id: item.entry_id
            for item in missing
            if self.runs[item.fire_id].state is State.ENQUEUED
            and self.runs[item.fire_id].entry_id == item.entry_id
        }
        rows = [self.runs[fire_id] for fire_id in lost]
        for row in rows:
            row.promotion += 1
        self._claim(rows, now, fence)
        return self._orders(rows, lost)

    def terminal_among(self, fire_ids: Sequence[str]) -> set[str]:
        self._reach("terminal_among")
        return {
            fire_id
            for fire_id in fire_ids
            if fire_id in self.runs and self.runs[fire_id].state in TERMINAL
        }

    # -- inside -----------------------------------------------------------------------------------------------------

    def _standing(self, item: Plan) -> Standing:
        assert item.next_due_at is not None
        active = [
            row
            for row in self.runs.values()
            if row.schedule == item.name and row.state not in TERMINAL
        ]
        asks = item.policies.overlap is not OverlapPolicy.ALLOW
        blocker = Blocker(active[0].id, active[0].fire_id) if active and asks else None
        return Standing(item.uid, item.rule, item.policies, item.next_due_at, blocker=blocker)

    def _insert(
        self, item: Plan, fire: Fire, now: datetime, fence: int, full: Collection[str]
    ) -> Row | None:
        if fire.fire_id in self.runs:
            return None
        held_back = fire.state is State.CLAIMED and item.queue in full
        state = State.PENDING if held_back else fire.state
        row = Row(
            next(self._numbers),
            fire.fire_id,
            fire.scheduled_for,
            fire.due_at,
            item.queue,
            schedule=item.name,
            state=state,
            reason_code=fire.reason_code,
            count=fire.count,
            blocked_by=fire.blocked_by.fire_id if fire.blocked_by else "",
            fence=fence,
            claimed_at=now if state is State.CLAIMED else None,
            states=[state],
        )
        self.runs[row.fire_id] = row
        return row

    def _claim(self, rows: Sequence[Row], now: datetime, fence: int) -> None:
        self.largest = max(self.largest, len(rows))
        for row in rows:
            row.go(State.CLAIMED)
            row.fence, row.claimed_at = fence, now

    def _orders(self, rows: Any, lost: Mapping[str, str] | None = None) -> list[Order]:
        return [
            Order(
                row.id,
                row.promotion,
                row.queue,
                row.priority,
                Envelope(row.fire_id, "t", b"{}", identity.epoch_ms(row.scheduled_for)),
                (lost or {}).get(row.fire_id, ""),
            )
            for row in rows
        ]

    def _reach(self, name: str) -> None:
        if self.on_call is not None:
            self.on_call(name)
        if self.away:
            raise StoreUnavailable("the database is away")
