"""What the loops need of the outside world, as Protocols, and the values that cross these borders.

``scheduler``, ``worker`` and ``maintenance`` see the database, Redis and user code only through this file. Each
method is one step of the protocol: it is atomic, it may be repeated after a crash, and it raises
:class:`~smallage_django.errors.Unavailable` when its dependency is away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from .domain.envelope import Envelope
from .domain.lifecycle import Ending, State
from .domain.planning import Outage


class Clock(Protocol):
    """The one clock that decides: aware UTC, the same for every process."""

    def now(self) -> datetime: ...


# -- promotion ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """One claimed run to be handed to its stream."""

    run_id: int
    promotion: int
    queue: str
    priority: int
    envelope: Envelope
    #: The entry this promotion replaces: a marker that still names it is overwritten, and only that one.
    lost_entry: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an order: its stream and entry, or the error of this one row."""

    run_id: int
    fire_id: str
    stream: str = ""
    entry_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """A leader's term as SQL knows it."""

    epoch: int
    #: When the last pass of any leader ended; None before the first.
    last_pass_at: datetime | None
    #: The Redis incarnation that the last leader saw.
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Fired:
    """What one batch of firing did."""

    orders: Sequence[Order] = ()
    inserted: int = 0
    expired: int = 0
    #: Rows looked at; as many as the limit means that more may be due.
    examined: int = 0
    broken: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """What waits in SQL, in one look: the earliest instant of each kind of work, None where there is none."""

    schedule_due_at: datetime | None = None
    delayed_due_at: datetime | None = None
    run_due_at: datetime | None = None
    oldest_claim_at: datetime | None = None
    stale: bool = False

    def next_due_at(self) -> datetime | None:
        """The earliest instant at which some row becomes due."""
        waiting = (self.schedule_due_at, self.delayed_due_at, self.run_due_at)
        return min((at for at in waiting if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Presence:
    """Where an enqueued row says its entry is, for reconciling with what Redis really holds."""

    run_id: int
    fire_id: str
    state: State
    stream: str
    entry_id: str
    attempts_left: bool = True


class SchedulerStore(Protocol):
    """The rows, as the scheduler changes them. ``fence`` is the epoch of the caller's term."""

    def open_term(self, holder: str, now: datetime, seen_fence: int) -> Term:
        """Start a term whose epoch is above every earlier one and above ``seen_fence``."""

    def record_pass(self, epoch: int, now: datetime, incarnation: str) -> None:
        """Remember that a pass ended. Raises ``LeaseLost`` where a higher epoch exists."""

    def close_term(self, epoch: int, now: datetime) -> None: ...

    def record_outage(self, outage: Outage, epoch: int) -> None: ...

    def survey(self) -> Survey:
        """What waits, in one query."""

    def plan_stale(self, now: datetime, limit: int) -> int:
        """Plan schedules anew whose inputs changed; how many were looked at."""

    def revive_broken(self, now: datetime, limit: int) -> int:
        """Look at broken schedules again, since a task or a zone may be known by now; how many work again."""

    def cancel_orphans(self, now: datetime, limit: int) -> int:
        """Cancel waiting runs whose schedule was deleted."""

    def fire_schedules(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        """Lock due schedules, plan each purely, insert its runs, advance it: one transaction."""

    def fire_delayed(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        """Turn due delayed runs into runs; those past their deadline expire: one transaction."""

    def claim_due(
        self, now: datetime, fence: int, limit: int, full_queues: Collection[str]
    ) -> Fired:
        """Claim due pending and retrying runs, by priority, due, id, leaving out full queues."""

    def recover_claims(
        self, before: datetime, now: datetime, fence: int, limit: int
    ) -> Sequence[Order]:
        """Take over claims made before ``before``, whatever their fence, under this one."""

    def mark_enqueued(self, fence: int, receipts: Sequence[Receipt]) -> int:
        """Record entries, only where still claimed under ``fence``; how many rows it touched."""

    def fail_unwritable(self, fence: int, receipts: Sequence[Receipt], now: datetime) -> int: ...

    def presences(
        self, after_id: int, limit: int, owner_silent_since: datetime
    ) -> Sequence[Presence]:
        """A page, by id, of runs that should have an entry: enqueued, or running under a silent owner."""

    def reclaim_missing(
        self, missing: Sequence[Presence], now: datetime, fence: int
    ) -> Sequence[Order]:
        """Claim again, promotion + 1, rows whose entry is gone, by compare-and-set on the lost entry id."""

    def terminal_among(self, fire_ids: Sequence[str]) -> set[str]:
        """Which of these runs are over."""

    def forget_old(self, now: datetime) -> None:
        """Drop terms, outages and heartbeats that no decision needs any more."""

    def beat(self, facts: Mapping[str, Any], now: datetime) -> None:
        """Record the heartbeat of a process (name, role, host, pid, ...)."""


class SchedulerBroker(Protocol):
    """The transport, as the scheduler uses it."""

    def acquire(self, token: str, ttl: timedelta) -> bool:
        """Take the lease if nobody holds it, or extend it if ``token`` does."""

    def release(self, token: str) -> bool:
        """Give the lease back if ``token`` holds it, and wake the standbys."""

    def highest_fence(self) -> int: ...

    def incarnation(self) -> str:
        """A random value that lives as long as this Redis keeps its data; written when missing."""

    def promote(self, fence: int, orders: Sequence[Order]) -> list[Receipt]:
        """Hand orders to their streams. Raises ``LeaseLost`` where a higher fence was seen."""

    def missing(self, presences: Sequence[Presence]) -> list[Presence]:
        """Those whose entry is not in its stream."""

    def entries(self, stream: str, after: str, limit: int) -> Sequence[tuple[str, str]]:
        """A page of (entry id, fire id) of a stream."""

    def streams(self) -> Sequence[str]: ...

    def delete_entries(self, stream: str, entry_ids: Sequence[str]) -> int: ...

    def backlog(self, queues: Iterable[str]) -> dict[str, int]:
        """Entries waiting in each queue, all its streams together."""

    def sweep_consumers(self, idle: timedelta) -> int:
        """Remove consumers that hold nothing and were idle for longer; how many."""

    def wait(self, seconds: float) -> bool:
        """Sleep as the leader, until woken or until so many seconds passed; whether it was woken."""

    def wait_for_lease(self, seconds: float) -> bool:
        """Sleep as a standby, until the leader hands over or so many seconds passed; whether it did."""

    def interrupt(self) -> None:
        """End a wait at once, from a signal handler or another thread."""


# -- work -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """One stream entry handed to this worker."""

    stream: str
    entry_id: str
    fields: Mapping[bytes, bytes]
    #: How often the entry was handed to a consumer, this time included.
    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class Begun:
    """A run whose attempt is ours."""

    delivery: Delivery
    run_id: int
    fire_id: str
    token: str
    worker: str
    attempt: int
    max_attempts: int
    task: str
    backend: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    backoff: str
    timeout: timedelta | None
    scheduled_for: datetime
    due_at: datetime
    started_at: datetime
    queue: str = "default"
    priority: int = 0
    schedule_name: str = ""
    occurrence_count: int = 1
    late_at: datetime | None = None
    kind: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a batch of deliveries fared at begin."""

    begun: Sequence[Begun] = ()
    #: Terminal, cancelled or just expired: acknowledge and drop.
    over: Sequence[Delivery] = ()
    #: Running under a living owner: leave the entry alone and look again later.
    elsewhere: Sequence[Delivery] = ()
    #: Can never be begun, with a reason code and the facts: its row, if any, has just failed; bury the entry.
    poison: Sequence[tuple[Delivery, str, str]] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended, as the runner saw it."""

    ending: Ending
    result: Any = None
    error_class: str = ""
    error: str = ""
    traceback: str = ""
    #: What the task, or its policy, said about another attempt: None leaves it to the budget.
    retry_in: timedelta | None = None
    #: The reason code under which no other attempt is wanted, whatever the budget.
    give_up: str = ""
    #: Equal for errors of the same class at the same place.
    fingerprint: str = ""
    #: What else is to be told of a success, such as why its result could not be kept.
    note: str = ""
    #: The code was interrupted from outside (KeyboardInterrupt): give the run back and stop.
    interrupted: bool = False
    exception: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """An outcome on its way to the row, with what follows from it."""

    begun: Begun
    outcome: Outcome
    state: State
    finished_at: datetime
    #: The next attempt's instant where ``state`` is retrying.
    due_at: datetime | None = None
    reason_code: str = ""
    reason: str = ""


class WorkerStore(Protocol):
    """The rows, as a worker changes them."""

    def begin(
        self,
        deliveries: Sequence[tuple[Delivery, Envelope]],
        worker: str,
        token: str,
        now: datetime,
    ) -> Beginning:
        """Take what may run, in one conditional update with a fresh ``token``, read back.

        Asked again with the same token after a lost answer, it tells what the first call did. The caller leaves out
        entries that it has in hand already.
        """

    def finish(self, finishes: Sequence[Finish]) -> set[int]:
        """Record outcomes where the attempt is still ours; the run ids that were accepted."""

    def fail_unstarted(self, fire_id: str, now: datetime, reason_code: str, reason: str) -> bool:
        """End a run that no attempt will start (too many deliveries, unknown task)."""

    def give_back(self, begun: Sequence[Begun], now: datetime) -> int:
        """Return runs that were begun but whose code never started (a drain that ran out of time)."""

    def beat(self, facts: Mapping[str, Any], now: datetime) -> None: ...

    def close(self) -> None:
        """Give up the calling thread's connection, at the thread's end."""


class WorkerBroker(Protocol):
    """The transport, as a worker uses it."""

    def take(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Read at most ``free`` new entries, high priority first, and set their liveness keys in the same step."""

    def wait(self, queues: Sequence[str], seconds: float) -> bool:
        """Block until one of the queues may have work, or so many seconds passed."""

    def interrupt(self) -> None:
        """End a wait at once, from a signal handler or another thread."""

    def refresh(self, deliveries: Sequence[Delivery]) -> None:
        """Keep the liveness keys of entries in hand; never brings back an acknowledged one."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge, delete and forget entries, atomically."""

    def let_go(self, deliveries: Sequence[Delivery]) -> None:
        """Drop the liveness keys, so that another worker may reclaim at once."""

    def reclaim(self, queues: Sequence[str], consumer: str, free: int) -> list[Delivery]:
        """Take over entries whose owner went silent, and this consumer's own from before a restart."""

    def bury(self, delivery: Delivery, reason: str, detail: str) -> None:
        """Copy an entry that can never be handled to ``{ns}:dlq``, then acknowledge it."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a runner had to leave when it closed."""

    #: User code began and has not ended.
    started: Sequence[Begun] = ()
    #: User code never began.
    waiting: Sequence[Begun] = ()


class Runner(Protocol):
    """Runs user code. Never raises for what user code does."""

    def submit(self, begun: Begun, done: Callable[[Begun, Outcome], None]) -> None:
        """Start an attempt in the background; ``done`` is called once, from any thread, when its slot is free."""

    def free(self) -> int:
        """How many more attempts can start at once."""

    def announce(self, finishes: Sequence[Finish]) -> None:
        """Tell those who listen of outcomes that are stored. Returns at once, in order, never raises."""

    def wait(self, seconds: float) -> bool:
        """Wait, at most so long, until nothing runs and nothing is left to announce; whether that is so."""

    def close(self) -> Leftover:
        """Start nothing more and return what has not ended. User code in threads cannot be ended from here."""


@dataclass(slots=True)
class PassReport:
    """What one scheduler pass did; ``more`` says that work was left for the next one."""

    now: datetime
    leading: bool = True
    epoch: int = 0
    fired: int = 0
    claimed: int = 0
    promoted: int = 0
    recovered: int = 0
    reconciled: int = 0
    expired: int = 0
    failed: int = 0
    planned: int = 0
    more: bool = False
    broken: list[str] = field(default_factory=list)
