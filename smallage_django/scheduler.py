"""The scheduler: ``tick`` is one bounded pass, ``run`` the loop around it.

A pass leads or stands by. A leading pass plans changed schedules, fires what is due, claims what waits, hands it to
the streams, marks it, recovers what a dead process had claimed, and now and then holds SQL against Redis. Every step
may be repeated: the unique fire id, the markers and the fence make a second time a no-op.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from .domain.leadership import Trust
from .domain.planning import Outage
from .domain.trouble import Trouble
from .errors import LeaseLost, Unavailable
from .maintenance import EVERY, Maintenance
from .ports import Clock, Fired, Order, PassReport, SchedulerBroker, SchedulerStore, Survey

logger = logging.getLogger(__name__)

#: A pass that has worked for so long lets the next one go on, seconds.
PASS_BUDGET_S: Final = 1.0
#: How often a standby looks at the lease, seconds; a leader that stops politely wakes it at once.
STANDBY_S: Final = 0.5
#: Rows of one script call and its mark; between them the lease is looked after.
HAND_OVER: Final = 1000
BEAT_EVERY: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Options:
    """What can be set about a scheduler. Durations are timedeltas."""

    name: str
    interval: timedelta = timedelta(seconds=1)
    lease_ttl: timedelta = timedelta(seconds=5)
    batch: int = 1000
    max_backlog: int = 10_000
    recover_after: timedelta = timedelta(seconds=5)
    silent_after: timedelta = timedelta(seconds=6)
    queues: tuple[str, ...] = ("default",)
    #: What else the heartbeat tells: host, pid, version.
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outage_after(self) -> timedelta:
        """A pause between passes that is longer than this is an outage."""
        return 2 * self.interval + timedelta(seconds=1)


@dataclass(slots=True)
class _Lead:
    """What a leader knows of its own term."""

    trust: Trust
    incarnation: str
    last_pass_at: datetime | None
    renewed_at: float
    tidied_at: datetime | None = None
    waiting: dict[str, int] = field(default_factory=dict)


class Scheduler:
    """One process's part in scheduling: it leads, or it stands by to lead."""

    def __init__(
        self,
        store: SchedulerStore,
        broker: SchedulerBroker,
        clock: Clock,
        options: Options,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._options = options
        self._monotonic = monotonic
        self._maintenance = Maintenance(store, broker, silent_after=options.silent_after)
        self._lead: _Lead | None = None
        self._beat_at: datetime | None = None
        self._next_due_at: datetime | None = None
        self._queues = set(options.queues)
        self._stopping = False

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Tick until :meth:`stop`; dependencies may go away and come back meanwhile."""
        trouble = Trouble()
        while not self._stopping:
            try:
                report = self.tick()
                self._note_recovery(trouble)
                if not report.more and not self._stopping:
                    self._rest(report)
            except Unavailable as error:
                self._endure(trouble, error)
            except Exception as error:
                logger.exception("a pass failed; stepping down and trying again")
                self.step_down()
                self._endure(trouble, error)
        self.step_down()

    def once(self) -> PassReport:
        """One full pass: until nothing that is due now is left. Leads only if nobody does."""
        total = self.tick()
        while total.leading and total.more:
            total = _added(total, self.tick())
        self.step_down()
        return total

    def stop(self) -> None:
        """End :meth:`run` after the step in hand. Safe in a signal handler."""
        self._stopping = True
        self._broker.interrupt()

    def step_down(self) -> None:
        """Hand over at once: end the term, give the lease back, wake the standbys."""
        lead, self._lead = self._lead, None
        if lead is None:
            return
        try:
            self._store.close_term(lead.trust.epoch, self._clock.now())
            self._broker.release(self._options.name)
        except Unavailable as error:
            logger.warning("could not hand over, the lease runs out by itself: %s", error)
        logger.info("stepped down from term %d", lead.trust.epoch)

    # -- one pass ---------------------------------------------------------------------------------------------------

    def tick(self, now: datetime | None = None) -> PassReport:
        """One pass at ``now`` (aware UTC; the agreed clock's where not given), bounded in time and rows.

        Raises ``Unavailable`` when a dependency is away; whatever was done until then stays done.
        """
        now = now or self._clock.now()
        report = PassReport(now)
        try:
            lead = self._take_lead(now)
            if lead is None:
                report.leading = False
            else:
                report.epoch = lead.trust.epoch
                self._pass(lead, report)
        except LeaseLost as error:
            self._lose(error)
            report.leading = False
        self._beat(now)
        return report

    def _pass(self, lead: _Lead, report: PassReport) -> None:
        now, epoch, began = report.now, lead.trust.epoch, self._monotonic()
        self._note_outage(lead, now)
        self._tidy(lead, report)
        until = self._monotonic() + PASS_BUDGET_S
        survey = self._store.survey()
        if survey.oldest_claim_at is not None:
            self._recover(lead, report, survey.oldest_claim_at)
        while survey.stale:
            planned = self._store.plan_stale(now, self._options.batch)
            report.planned += planned
            survey = self._store.survey()
            if not planned or self._monotonic() > until:
                break
        due_at = survey.next_due_at()
        if due_at is not None and due_at <= now:
            report.more = self._work_off(lead, report, until, survey) or survey.stale
            due_at = self._store.survey().next_due_at()
        self._next_due_at = due_at
        # When the pass ended, not when it began: a slow pass is no outage. A short one need not ask the clock again.
        slow = self._monotonic() - began > self._options.interval.total_seconds()
        worked = slow or report.fired or report.promoted
        lead.last_pass_at = max(now, self._clock.now()) if worked else now
        self._store.record_pass(epoch, lead.last_pass_at, lead.incarnation)

    def _work_off(self, lead: _Lead, report: PassReport, until: float, survey: Survey) -> bool:
        """Fire and claim in batches until nothing is due or the time is up; whether something is left."""
        now, epoch, batch = report.now, lead.trust.epoch, self._options.batch
        lead.waiting = self._broker.backlog(self._queues)
        steps = [
            step
            for step, due_at in (
                (self._store.fire_delayed, survey.delayed_due_at),
                (self._store.fire_schedules, survey.schedule_due_at),
                (self._store.claim_due, survey.run_due_at),
            )
            if due_at is not None and due_at <= now
        ]
        while steps:
            for step in list(steps):
                self._keep_lead()
                fired = step(now, epoch, batch, self._full_queues(lead))
                self._account(report, fired, claimed=step == self._store.claim_due)
                self._hand_over(fired.orders)
                if fired.examined < batch:
                    steps.remove(step)
                if self._monotonic() > until:
                    return bool(steps)
        return False

    def _account(self, report: PassReport, fired: Fired, *, claimed: bool) -> None:
        if claimed:
            report.claimed += len(fired.orders)
        else:
            report.fired += fired.inserted
        report.promoted += len(fired.orders)
        report.expired += fired.expired
        for broken in fired.broken:
            logger.error("%s; it is put aside", broken)
        report.broken.extend(fired.broken)

    def _full_queues(self, lead: _Lead) -> frozenset[str]:
        most = self._options.max_backlog
        return frozenset(queue for queue, waiting in lead.waiting.items() if waiting >= most)

    def _hand_over(self, orders: Sequence[Order]) -> int:
        """Promote claimed runs and mark them; how many reached their stream."""
        handed = 0
        for start in range(0, len(orders), HAND_OVER):
            lead = self._keep_lead()
            part = orders[start : start + HAND_OVER]
            receipts = self._broker.promote(lead.trust.epoch, part)
            written = [receipt for receipt in receipts if not receipt.error]
            self._store.mark_enqueued(lead.trust.epoch, written)
            refused = [receipt for receipt in receipts if receipt.error]
            if refused:
                self._store.fail_unwritable(lead.trust.epoch, refused, self._clock.now())
                logger.error(
                    "%s: Redis refused the entry: %s", refused[0].fire_id, refused[0].error
                )
            handed += len(written)
            reached = {receipt.run_id for receipt in written}
            for order in (order for order in part if order.run_id in reached):
                self._queues.add(order.queue)
                lead.waiting[order.queue] = lead.waiting.get(order.queue, 0) + 1
        return handed

    def _recover(self, lead: _Lead, report: PassReport, oldest: datetime) -> None:
        """Hand over what was claimed a while ago and never marked, whoever claimed it."""
        before = report.now - self._options.recover_after
        while oldest < before:
            self._keep_lead()
            orders = self._store.recover_claims(
                before, report.now, lead.trust.epoch, self._options.batch
            )
            report.recovered += self._hand_over(orders)
            if len(orders) < self._options.batch:
                break

    # -- leading ----------------------------------------------------------------------------------------------------

    def _take_lead(self, now: datetime) -> _Lead | None:
        """The lease, taken or extended, and the term that goes with it; None while another scheduler leads."""
        asked_at = self._monotonic()
        options = self._options
        if not self._broker.acquire(options.name, options.lease_ttl):
            if self._lead is not None:
                raise LeaseLost("another scheduler holds the lease")
            return None
        lead = self._lead
        if lead is None:
            term = self._store.open_term(options.name, now, self._broker.highest_fence())
            trust = Trust.granted(term.epoch, asked_at, options.lease_ttl)
            lead = _Lead(trust, term.incarnation, term.last_pass_at, asked_at)
            self._lead = lead
            logger.info("became leader, term %d", term.epoch)
        else:
            lead.trust = Trust.granted(lead.trust.epoch, asked_at, options.lease_ttl)
            lead.renewed_at = asked_at
        return lead

    def _keep_lead(self) -> _Lead:
        """Extend the lease between batches. Raises ``LeaseLost`` without proof of it."""
        lead, options = self._lead, self._options
        if lead is None:
            raise LeaseLost("not leading")
        asked_at = self._monotonic()
        if asked_at - lead.renewed_at > options.lease_ttl.total_seconds() / 3:
            if not self._broker.acquire(options.name, options.lease_ttl):
                raise LeaseLost("another scheduler took the lease in the middle of a pass")
            lead.trust = Trust.granted(lead.trust.epoch, asked_at, options.lease_ttl)
            lead.renewed_at = asked_at
        if not lead.trust.holds(self._monotonic()):
            raise LeaseLost("the lease may have run out")
        return lead

    def _lose(self, error: LeaseLost) -> None:
        lead, self._lead = self._lead, None
        if lead is not None:
            logger.warning("term %d is over: %s", lead.trust.epoch, error)

    def _note_outage(self, lead: _Lead, now: datetime) -> None:
        """Record the time since the last pass, of whichever leader, where it was too long to be a pause."""
        last = lead.last_pass_at
        if last is not None and now - last > self._options.outage_after:
            self._store.record_outage(Outage(last, now), lead.trust.epoch)
            logger.warning("no scheduler was at work from %s to %s", last, now)
        lead.last_pass_at = now

    def _tidy(self, lead: _Lead, report: PassReport) -> None:
        """Maintenance, every minute, and at once when Redis is not the one that the last leader saw."""
        incarnation = self._broker.incarnation()
        changed = incarnation != lead.incarnation
        due = lead.tidied_at is None or report.now - lead.tidied_at >= EVERY
        if not changed and not due:
            return
        if changed and lead.incarnation:
            logger.warning(
                "Redis lost its data, or another one answers; handing over again what was in it"
            )
        report.reconciled += self._maintenance.round(
            report.now, lead.trust.epoch, self._hand_over, self._check_lead
        )
        lead.tidied_at, lead.incarnation = report.now, incarnation

    def _check_lead(self) -> None:
        self._keep_lead()

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _rest(self, report: PassReport) -> None:
        """Sleep until the next row is due, an interval has passed, or somebody wakes us."""
        if not report.leading:
            self._broker.wait_for_lease(STANDBY_S)
            return
        seconds = self._options.interval.total_seconds()
        if self._next_due_at is not None:
            until_due = (self._next_due_at - self._clock.now()).total_seconds()
            # A queue that is full keeps its rows due: without a pause the loop would spin on them.
            seconds = min(seconds, until_due) if until_due > 0 else min(seconds, 0.05)
        self._broker.wait(seconds)

    def _endure(self, trouble: Trouble, error: Exception) -> None:
        """Wait for a dependency that is away, and say so once, then in summaries."""
        pause, say = trouble.failed(self._monotonic(), random.random())
        if say:
            lasted = trouble.lasted(self._monotonic())
            logger.warning("cannot work for %.0f s: %s; trying again", lasted, error)
        end = self._monotonic() + pause
        while not self._stopping and self._monotonic() < end:
            time.sleep(0.05)

    def _note_recovery(self, trouble: Trouble) -> None:
        lasted = trouble.recovered(self._monotonic())
        if lasted is not None:
            logger.info("works again after %.1f s", lasted)

    def _beat(self, now: datetime) -> None:
        if self._beat_at is None or now - self._beat_at >= BEAT_EVERY:
            self._store.beat({"name": self._options.name, **self._options.facts}, now)
            self._beat_at = now


def _added(total: PassReport, more: PassReport) -> PassReport:
    """Two passes as one report; the later one says whether something is left."""
    for name in (
        "fired",
        "claimed",
        "promoted",
        "recovered",
        "reconciled",
        "expired",
        "failed",
        "planned",
    ):
        setattr(more, name, getattr(total, name) + getattr(more, name))
    more.broken = [*total.broken, *more.broken]
    return more
