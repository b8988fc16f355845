"""The life of a run: its states, the ways between them, and the reasons a run may carry.

The table here is the one that the documentation prints and that every conditional update is built from: an update
that moves a run to a state names, as its condition, exactly the states from which :data:`TRANSITIONS` leads there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a run is."""

    PENDING = "pending"
    HELD = "held"
    CLAIMED = "claimed"
    ENQUEUED = "enqueued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    MISSED = "missed"
    SKIPPED = "skipped"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Kind(StrEnum):
    """What made a run."""

    SCHEDULE = "schedule"
    DELAYED = "delayed"
    ENQUEUE = "enqueue"
    MANUAL = "manual"
    BACKFILL = "backfill"
    REPLAY = "replay"


class Ending(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


class Reason(StrEnum):
    """Why a run is where it is, when it did not simply succeed. The text beside it has the facts."""

    COALESCED = "coalesced"
    POLICY_SKIP = "policy_skip"
    OUTSIDE_WINDOW = "outside_window"
    OVER_LIMIT = "over_limit"

    OVERLAP = "overlap"
    CALENDAR = "calendar"
    QUEUE_FULL = "queue_full"
    SKIP_NEXT = "skip_next"
    VETOED = "vetoed"
    MAX_RUNS = "max_runs"

    START_DEADLINE = "start_deadline"
    DEADLINE = "deadline"

    OVERLAP_BUFFER = "overlap_buffer"
    QUEUE_PAUSED = "queue_paused"
    ALL_PAUSED = "all_paused"
    NO_WORKER = "no_worker"
    RATE_LIMIT = "rate_limit"
    CATCH_UP_BUDGET = "catch_up_budget"

    OPERATOR = "operator"
    RULE_CHANGED = "rule_changed"
    SCHEDULE_DELETED = "schedule_deleted"
    OVERLAP_REPLACED = "overlap_replaced"

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    TIMED_OUT = "timed_out"
    WORKER_LOST = "worker_lost"
    TOO_MANY_DELIVERIES = "too_many_deliveries"
    UNKNOWN_TASK = "unknown_task"
    BAD_ARGUMENTS = "bad_arguments"
    UNWRITABLE = "unwritable"
    NOT_RETRYABLE = "not_retryable"


#: Which reasons go with which state.
REASONS: Final[dict[State, frozenset[Reason]]] = {
    State.MISSED: frozenset(
        {Reason.COALESCED, Reason.POLICY_SKIP, Reason.OUTSIDE_WINDOW, Reason.OVER_LIMIT}
    ),
    State.SKIPPED: frozenset(
        {
            Reason.OVERLAP,
            Reason.CALENDAR,
            Reason.QUEUE_FULL,
            Reason.SKIP_NEXT,
            Reason.VETOED,
            Reason.MAX_RUNS,
        }
    ),
    State.EXPIRED: frozenset({Reason.START_DEADLINE, Reason.DEADLINE}),
    State.HELD: frozenset(
        {
            Reason.OVERLAP_BUFFER,
            Reason.QUEUE_PAUSED,
            Reason.ALL_PAUSED,
            Reason.NO_WORKER,
            Reason.RATE_LIMIT,
            Reason.CATCH_UP_BUDGET,
        }
    ),
    State.CANCELLED: frozenset(
        {
            Reason.OPERATOR,
            Reason.RULE_CHANGED,
            Reason.SCHEDULE_DELETED,
            Reason.OVERLAP_REPLACED,
        }
    ),
    State.FAILED: frozenset(
        {
            Reason.ATTEMPTS_EXHAUSTED,
            Reason.TIMED_OUT,
            Reason.WORKER_LOST,
            Reason.TOO_MANY_DELIVERIES,
            Reason.UNKNOWN_TASK,
            Reason.BAD_ARGUMENTS,
            Reason.UNWRITABLE,
            Reason.NOT_RETRYABLE,
        }
    ),
}

_S = State
#: From where to where a run may go. Running to running is a take-over; claimed to claimed is recovery.
TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    _S.PENDING: frozenset({_S.CLAIMED, _S.HELD, _S.SKIPPED, _S.EXPIRED, _S.CANCELLED, _S.FAILED}),
    _S.HELD: frozenset({_S.PENDING, _S.CLAIMED, _S.SKIPPED, _S.EXPIRED, _S.CANCELLED}),
    _S.CLAIMED: frozenset(
        {_S.ENQUEUED, _S.RUNNING, _S.CLAIMED, _S.FAILED, _S.EXPIRED, _S.CANCELLED}
    ),
    _S.ENQUEUED: frozenset(
        {_S.RUNNING, _S.CLAIMED, _S.SKIPPED, _S.FAILED, _S.EXPIRED, _S.CANCELLED}
    ),
    _S.RUNNING: frozenset(
        {_S.SUCCEEDED, _S.RETRYING, _S.FAILED, _S.CANCELLED, _S.RUNNING, _S.CLAIMED}
    ),
    _S.RETRYING: frozenset({_S.CLAIMED, _S.HELD, _S.FAILED, _S.EXPIRED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset({_S.PENDING}),
    _S.MISSED: frozenset(),
    _S.SKIPPED: frozenset(),
    _S.EXPIRED: frozenset(),
    _S.CANCELLED: frozenset(),
}

#: The states in which a row may be inserted.
INITIAL: Final = frozenset({_S.PENDING, _S.HELD, _S.CLAIMED, _S.MISSED, _S.SKIPPED, _S.EXPIRED})

#: The states in which nothing more happens by itself. Only a person leads a failed run out of it.
TERMINAL: Final = frozenset(
    {_S.SUCCEEDED, _S.FAILED, _S.MISSED, _S.SKIPPED, _S.EXPIRED, _S.CANCELLED}
)

#: The states that count as "an earlier run is still going" for the overlap policy.
ACTIVE: Final = frozenset(_S) - TERMINAL

#: The states that the claim step looks at: recorded, due by ``due_at``, not yet handed to a stream.
CLAIMABLE: Final = frozenset({_S.PENDING, _S.RETRYING})


def sources(target: State) -> frozenset[State]:
    """The states from which a run may go to ``target``: the condition of the update that moves it there."""
    return frozenset(state for state, targets in TRANSITIONS.items() if target in targets)


def may(source: State, target: State) -> bool:
    """Whether the table leads from ``source`` to ``target``."""
    return target in TRANSITIONS[source]
