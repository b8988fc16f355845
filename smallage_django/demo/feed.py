"""What happens to runs, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from ..domain.lifecycle import TERMINAL, State
from ..models import Run

GLYPHS: Final = {
    State.SUCCEEDED: "✓",
    State.RUNNING: "▶",
    State.RETRYING: "✕",
    State.FAILED: "◆",
    State.MISSED: "○",
    State.SKIPPED: "–",
    State.EXPIRED: "–",
    State.CANCELLED: "–",
}
_COLUMNS: Final = (
    "id",
    "fire_id",
    "state",
    "attempt",
    "max_attempts",
    "schedule_name",
    "task",
    "kind",
    "start_lag_ms",
    "result",
    "error",
    "reason",
)


class Feed:
    """Tells each state of each run that it sees, once."""

    def __init__(self) -> None:
        last = Run.objects.order_by("-id").values_list("id", flat=True).first()
        self._open: dict[int, tuple[str, int]] = {}
        self._seen = last or 0
        self.succeeded = 0

    def lines(self) -> Iterator[str]:
        """What is new since the last call."""
        new = Run.objects.filter(id__gt=self._seen)
        rows = [
            *Run.objects.filter(id__in=list(self._open)).values(*_COLUMNS),
            *new.values(*_COLUMNS),
        ]
        for row in sorted(rows, key=lambda row: row["id"]):
            state = State(row["state"])
            now = (state.value, row["attempt"])
            if self._open.get(row["id"]) != now:
                self.succeeded += state is State.SUCCEEDED
                yield _line(row, state)
            self._seen = max(self._seen, row["id"])
            if state in TERMINAL:
                self._open.pop(row["id"], None)
            else:
                self._open[row["id"]] = now


def _line(row: dict[str, object], state: State) -> str:
    name = row["schedule_name"] or str(row["task"]).rpartition(".")[2]
    tail = ""
    if state is State.SUCCEEDED:
        tail = f"started {row['start_lag_ms']} ms after its time, returned {row['result']!r}"
    elif state in (State.RETRYING, State.FAILED):
        last = str(row["error"]).strip().splitlines() or [""]
        tail = f"attempt {row['attempt']} of {row['max_attempts']}: {last[-1]}"
    elif row["reason"]:
        tail = str(row["reason"])
    clock = datetime.now(UTC).strftime("%H:%M:%S")
    glyph = GLYPHS.get(state, "▯")
    return (
        f"{clock}Z  {glyph} {state.value:<9}  {name!s:<26}  {row['fire_id']!s:<54}  {tail}".rstrip()
    )
