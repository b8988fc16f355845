"""What one schedule owes now: a pure decision, carried out by the store and shown by the admin.

``plan`` accounts for every occurrence from the oldest unaccounted one up to now. Each of them ends up in exactly one
:class:`Fire`: it runs, or it is missed, skipped or expired with the reason and the facts.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from . import identity
from .lifecycle import Reason, State
from .policies import MissedPolicy, OverlapPolicy, Policies

if TYPE_CHECKING:
    from .recurrence import Rule

#: Occurrences of one schedule that one pass turns into rows; the rest follow in the next batch of the same pass.
MAX_FIRES: Final = 1000

_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Outage:
    """An interval in which no scheduler pass ran."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Blocker:
    """An unfinished run of the schedule: its row and its fire id."""

    run_id: int
    fire_id: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What planning knows of one schedule: its rule, its policies and where its accounting stands."""

    uid: uuid.UUID
    rule: Rule
    policies: Policies
    #: The oldest unaccounted occurrence.
    next_due_at: datetime
    ends_at: datetime | None = None
    #: How many more runs the schedule may make; None is no limit.
    runs_left: int | None = None
    blocker: Blocker | None = None


@dataclass(frozen=True, slots=True)
class Fire:
    """One run row to be inserted, standing for ``count`` occurrences from ``first_scheduled_for``."""

    fire_id: str
    scheduled_for: datetime
    due_at: datetime
    state: State
    reason_code: str = ""
    reason: str = ""
    first_scheduled_for: datetime | None = None
    count: int = 1
    #: The fire id of the run that stands for these missed occurrences.
    merged_into: str = ""
    blocked_by: Blocker | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to insert, and where the schedule's accounting stands afterwards."""

    fires: tuple[Fire, ...]
    accounted_until: datetime
    #: None when the rule has no further occurrence, or the schedule has ended.
    next_due_at: datetime | None
    runs: int = 0
    #: Why there is no next occurrence: ``ended`` or ``exhausted``; empty while there is one.
    state: str = ""
    reason: str = ""


def plan(
    standing: Standing, outages: Sequence[Outage], now: datetime, limit: int = MAX_FIRES
) -> Plan:
    """Account for the occurrences from ``standing.next_due_at`` to ``now`` (aware UTC).

    At most ``limit`` rows are decided; where more is owed the plan's ``next_due_at`` is at or before ``now``.
    """
    ledger = _Ledger(standing, now)
    cursor: datetime | None = standing.next_due_at
    while cursor is not None and cursor <= now and len(ledger.fires) < limit:
        if ledger.finished(cursor):
            break
        outage = _outage_of(cursor, outages, standing.policies.misfire_grace)
        if outage is None:
            ledger.owe(cursor)
            last = cursor
        else:
            last = _judge_backlog(ledger, cursor, min(outage.end, now), limit)
        ledger.accounted_until = last
        cursor = standing.rule.next_after(last)
    return ledger.close(cursor)


def _outage_of(instant: datetime, outages: Sequence[Outage], grace: timedelta) -> Outage | None:
    """The outage in which ``instant`` was missed: it holds the instant and reaches more than ``grace`` beyond.

    Where several do (a leader that died in its first pass had recorded one too), the one that lasted longest.
    """
    missed_in = (
        outage for outage in outages if outage.start <= instant and outage.end - instant > grace
    )
    return max(missed_in, key=lambda outage: outage.end, default=None)


def _judge_backlog(ledger: _Ledger, oldest: datetime, end: datetime, limit: int) -> datetime:
    """Judge everything from ``oldest`` to the end of the outage together; the last instant that was judged."""
    standing = ledger.standing
    end = min(end, standing.ends_at) if standing.ends_at else end
    newest = standing.rule.last_at_or_before(end) or oldest
    policies = standing.policies
    if policies.missed is MissedPolicy.LATEST:
        run = ledger.owe(newest)
        ledger.miss(oldest, _previous(standing.rule, newest), Reason.COALESCED, run)
    elif policies.missed is MissedPolicy.EARLIEST:
        run = ledger.owe(oldest)
        ledger.miss(standing.rule.next_after(oldest), newest, Reason.COALESCED, run)
    elif policies.missed is MissedPolicy.SKIP:
        if end - newest <= policies.misfire_grace:
            ledger.owe(newest)
            ledger.miss(oldest, _previous(standing.rule, newest), Reason.POLICY_SKIP)
        else:
            ledger.miss(oldest, newest, Reason.POLICY_SKIP)
    else:
        _run_each(ledger, oldest, newest, end, limit)
    return newest


def _run_each(
    ledger: _Ledger, oldest: datetime, newest: datetime, end: datetime, limit: int
) -> None:
    """Policy ``all``: oldest first within the window and up to the limit; the rest is recorded as missed."""
    rule, policies = ledger.standing.rule, ledger.standing.policies
    first: datetime | None = oldest
    if policies.catch_up_window is not None and end - oldest > policies.catch_up_window:
        first = rule.next_after(end - policies.catch_up_window - _INSTANT)
        before = _previous(rule, first) if first else newest
        ledger.miss(oldest, min(before or newest, newest), Reason.OUTSIDE_WINDOW)
    allowed = min(policies.catch_up_limit, limit)
    while first is not None and first <= newest and allowed > 0:
        ledger.owe(first)
        allowed -= 1
        first = rule.next_after(first)
    if first is not None and first <= newest:
        ledger.miss(first, newest, Reason.OVER_LIMIT)


def _previous(rule: Rule, instant: datetime) -> datetime | None:
    return rule.last_at_or_before(instant - _INSTANT)


class _Ledger:
    """Collects the decisions of one plan and keeps their running facts (who blocks, how many may still run)."""

    def __init__(self, standing: Standing, now: datetime) -> None:
        self.standing = standing
        self.now = now
        self.fires: list[Fire] = []
        self.accounted_until = standing.next_due_at - _INSTANT
        self.blocker = standing.blocker
        self.runs = 0

    def finished(self, occurrence: datetime) -> bool:
        """Whether the schedule's end or its number of runs lies before ``occurrence``."""
        ends_at, left = self.standing.ends_at, self.standing.runs_left
        return (ends_at is not None and occurrence > ends_at) or (
            left is not None and self.runs >= left
        )

    def owe(self, occurrence: datetime) -> str:
        """Decide one occurrence that is to run now; the fire id of its row."""
        policies = self.standing.policies
        fire_id = identity.scheduled(self.standing.uid, occurrence)
        due_at = occurrence + identity.spread(fire_id, policies.jitter)
        fire = Fire(fire_id, occurrence, due_at, State.PENDING)
        deadline = policies.start_deadline
        if deadline is not None and self.now - due_at > deadline:
            fire = replace(
                fire,
                state=State.EXPIRED,
                reason_code=Reason.START_DEADLINE.value,
                reason=f"could start {_words(self.now - due_at)} after its time; the limit is {_words(deadline)}",
            )
        elif self.blocker is not None and policies.overlap is OverlapPolicy.SKIP:
            fire = replace(
                fire,
                state=State.SKIPPED,
                reason_code=Reason.OVERLAP.value,
                reason=f"{self.blocker.fire_id} was not over yet",
                blocked_by=self.blocker,
            )
        else:
            fire = replace(fire, state=State.CLAIMED if due_at <= self.now else State.PENDING)
            self.blocker = Blocker(0, fire_id)
            self.runs += 1
        self.fires.append(fire)
        return fire_id

    def miss(
        self, first: datetime | None, last: datetime | None, reason: Reason, run: str = ""
    ) -> None:
        """Record the occurrences from ``first`` to ``last`` (both inclusive), if any, as one gap row."""
        if first is None or last is None or last < first:
            return
        count = self.standing.rule.count_between(first - _INSTANT, last)
        self.fires.append(
            Fire(
                identity.scheduled(self.standing.uid, last),
                last,
                last,
                State.MISSED,
                reason.value,
                _missed_sentence(reason, run),
                first_scheduled_for=first,
                count=count,
                merged_into=run,
            )
        )

    def close(self, cursor: datetime | None) -> Plan:
        state = reason = ""
        if cursor is None:
            state, reason = "exhausted", "the rule has no further occurrence"
        elif self.finished(cursor):
            state, reason, cursor = "ended", self._why_ended(cursor), None
        return Plan(tuple(self.fires), self.accounted_until, cursor, self.runs, state, reason)

    def _why_ended(self, occurrence: datetime) -> str:
        ends_at = self.standing.ends_at
        if ends_at is not None and occurrence > ends_at:
            return f"its end, {ends_at:%Y-%m-%d %H:%M:%S}Z, has passed"
        return "it has made all the runs it may make"


def _missed_sentence(reason: Reason, run: str) -> str:
    if reason is Reason.COALESCED:
        return f"no scheduler was at work; {run} stands for them"
    if reason is Reason.OUTSIDE_WINDOW:
        return "no scheduler was at work; older than the catch-up window"
    if reason is Reason.OVER_LIMIT:
        return "no scheduler was at work; more than the catch-up limit"
    return "no scheduler was at work, and the missed policy is skip"


def _words(duration: timedelta) -> str:
    """A duration for a sentence: its two largest units, in whole seconds."""
    seconds = int(duration.total_seconds())
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts = []
    for name, size in units:
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {name}")
    return " ".join(parts[:2]) or "0 s"
