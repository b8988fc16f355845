"""What a schedule owes when ideal time and real life disagree: values that check themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from ..errors import InvalidPolicy


class MissedPolicy(StrEnum):
    """What runs for the occurrences that passed while no scheduler was at work."""

    LATEST = "latest"
    EARLIEST = "earliest"
    ALL = "all"
    SKIP = "skip"


class OverlapPolicy(StrEnum):
    """What happens when an occurrence is due while an earlier run of the schedule is not over."""

    SKIP = "skip"
    ALLOW = "allow"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"


class WhenFull(StrEnum):
    """What happens when an occurrence is due while its queue is at its backlog limit."""

    WAIT = "wait"
    SKIP = "skip"


#: The overlap policies that are carried out. The others are names kept for the versions that will.
CARRIED_OUT: Final = frozenset({OverlapPolicy.SKIP, OverlapPolicy.ALLOW})


#: A hundred years: beyond, sums with instants would leave the calendar.
LONGEST: Final = timedelta(days=36_525)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of one schedule. Raises :class:`InvalidPolicy` naming the field that is out of range."""

    missed: MissedPolicy = MissedPolicy.LATEST
    misfire_grace: timedelta = timedelta(seconds=60)
    catch_up_window: timedelta | None = None
    catch_up_limit: int = 100
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    late_after: timedelta | None = None
    start_deadline: timedelta | None = None
    jitter: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        _not_negative("misfire_grace", self.misfire_grace)
        _not_negative("jitter", self.jitter)
        for name in ("catch_up_window", "late_after", "start_deadline"):
            value = getattr(self, name)
            if value is not None:
                _not_negative(name, value)
        if self.overlap not in CARRIED_OUT:
            known = ", ".join(sorted(policy.value for policy in CARRIED_OUT))
            raise InvalidPolicy(
                f"overlap is {self.overlap.value}, which this version does not carry out; "
                f"choose from {known}",
                field="overlap",
            )
        if self.catch_up_limit < 1:
            raise InvalidPolicy(
                f"catch_up_limit is {self.catch_up_limit}; it must be 1 or more",
                field="catch_up_limit",
            )


def _not_negative(name: str, value: timedelta) -> None:
    if value < timedelta(0):
        raise InvalidPolicy(f"{name} is {value}; it must not be negative", field=name)
    if value > LONGEST:
        raise InvalidPolicy(
            f"{name} is {value}; at most {LONGEST.days} days are allowed", field=name
        )
