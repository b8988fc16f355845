"""What happens to runs, as lines for people: one for each transition, told from the run's own timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ..domain.lifecycle import TERMINAL, State
from ..models import Run

GLYPHS: Final = {
    State.RUNNING: "▶",
    State.RETRYING: "✕",
    State.SUCCEEDED: "✓",
    State.FAILED: "◆",
    State.MISSED: "○",
}
_OTHER: Final = "▯"
_COLUMNS: Final = (
    "id",
    "fire_id",
    "state",
    "attempt",
    "promotion",
    "max_attempts",
    "schedule_name",
    "task",
    "claimed_at",
    "enqueued_at",
    "started_at",
    "finished_at",
    "due_at",
    "dispatch_lag_ms",
    "start_lag_ms",
    "result",
    "error",
    "reason",
)


class Step(NamedTuple):
    """One transition of one run: what makes it different from the others, when, and the facts."""

    state: State
    number: int
    at: datetime
    facts: str


class Feed:
    """Tells each transition of each run that began after the feed did, once."""

    def __init__(self) -> None:
        last = Run.objects.order_by("-id").values_list("id", flat=True).first()
        self._told: dict[int, set[tuple[State, int]]] = {}
        self._seen = last or 0
        self.succeeded = 0

    def lines(self) -> Iterator[str]:
        """What is new since the last call, in the order in which it happened."""
        known = Run.objects.filter(id__in=list(self._told)).values(*_COLUMNS)
        new = Run.objects.filter(id__gt=self._seen).values(*_COLUMNS)
        news: list[tuple[datetime, str]] = []
        for row in [*known, *new]:
            self._seen = max(self._seen, row["id"])
            told = self._told.setdefault(row["id"], set())
            for step in _steps(row):
                if (step.state, step.number) not in told:
                    told.add((step.state, step.number))
                    self.succeeded += step.state is State.SUCCEEDED
                    news.append((step.at, _line(row, step)))
            if State(row["state"]) in TERMINAL:
                del self._told[row["id"]]
        yield from (line for _, line in sorted(news))


def _steps(row: dict[str, Any]) -> Iterator[Step]:
    """The transitions that a row's timestamps tell of. The number tells attempts and promotions apart."""
    state, attempt, promotion = State(row["state"]), row["attempt"], row["promotion"]
    if row["claimed_at"]:
        yield Step(State.CLAIMED, promotion, row["claimed_at"], "")
    if row["enqueued_at"] and state is not State.CLAIMED:
        facts = f"{row['dispatch_lag_ms']} ms after its time" if promotion == 0 else ""
        yield Step(State.ENQUEUED, promotion, row["enqueued_at"], facts)
    if row["started_at"] and attempt:
        facts = f"{row['start_lag_ms']} ms after its time" if attempt == 1 else f"attempt {attempt}"
        yield Step(State.RUNNING, attempt, row["started_at"], facts)
    if state is State.RETRYING:
        last = str(row["error"]).strip().splitlines() or [""]
        facts = f"attempt {attempt} of {row['max_attempts']}: {last[-1]}"
        yield Step(state, attempt, datetime.now(UTC), facts)
    elif state in TERMINAL:
        returned = f"returned {row['result']!r}" if state is State.SUCCEEDED else row["reason"]
        yield Step(state, attempt, row["finished_at"] or datetime.now(UTC), str(returned))


def _line(row: dict[str, Any], step: Step) -> str:
    name = row["schedule_name"] or str(row["task"]).rpartition(".")[2]
    clock = step.at.strftime("%H:%M:%S.%f")[:-3]
    glyph = GLYPHS.get(step.state, _OTHER)
    short = f"{row['fire_id'][:14]}…{row['fire_id'][-13:]}"
    return f"{clock}Z  {glyph} {step.state.value:<9}  {name:<26}  {short}  {step.facts}".rstrip()
