"""Backoff arithmetic: how long to wait after an attempt that failed, as a value that is stored by its text.

The text of a preset is what a row keeps: ``exponential(1,cap=300)``, ``linear(10,cap=60)``, ``constant(30)``; all
numbers are seconds, and ``jitter=0.5`` may follow. Empty text means :data:`DEFAULT`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ..errors import InvalidPolicy

#: Budget of attempts where nobody says otherwise.
DEFAULT_ATTEMPTS: Final = 3
#: No wait is longer: beyond it a row would only look forgotten.
LONGEST_S: Final = 7 * 86400.0
_KINDS: Final = ("constant", "linear", "exponential")
_NUMBER = r"[0-9]{1,7}(?:\.[0-9]{1,6})?"
_TEXT = re.compile(
    rf"(?P<kind>[a-z]+)\((?P<base>{_NUMBER})(?:,cap=(?P<cap>{_NUMBER}))?(?:,jitter=(?P<jitter>{_NUMBER}))?\)"
)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits of one kind. ``base`` and ``cap`` are seconds; ``jitter`` is the part of a wait that is drawn."""

    kind: str
    base: float
    cap: float = 300.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Check the numbers; raises ``InvalidPolicy``."""
        if self.kind not in _KINDS:
            raise InvalidPolicy(
                f"backoff {self.kind!r} is unknown; choose from {', '.join(_KINDS)}",
                field="backoff",
            )
        for name, value, most in (
            ("base", self.base, LONGEST_S),
            ("cap", self.cap, LONGEST_S),
            ("jitter", self.jitter, 1.0),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidPolicy(
                    f"backoff {name} is {value!r}; it must be a number", field="backoff"
                )
            if not math.isfinite(value) or not 0 <= value <= most:
                raise InvalidPolicy(
                    f"backoff {name} is {value}; it must be from 0 to {most:g}", field="backoff"
                )

    def delay(self, failures: int, draw: float) -> timedelta:
        """The wait after the ``failures``-th failure (from 1). ``draw`` is from 0 to 1 and shortens by the jitter."""
        if self.kind == "exponential":
            seconds = self.base * 2.0 ** min(max(failures, 1) - 1, 64)
        elif self.kind == "linear":
            seconds = self.base * max(failures, 1)
        else:
            seconds = self.base
        return timedelta(seconds=min(seconds, self.cap) * (1.0 - self.jitter * draw))

    def __str__(self) -> str:
        text = f"{self.kind}({_plain(self.base)}"
        if self.kind != "constant" or self.cap != _cap_of_constant(self.base):
            text += f",cap={_plain(self.cap)}"
        if self.jitter != 0.2:
            text += f",jitter={_plain(self.jitter)}"
        return text + ")"


#: 1 s, 2 s, 4 s ... up to five minutes, each up to 20 % shorter.
DEFAULT: Final = Backoff("exponential", 1.0)


def parse(text: str) -> Backoff:
    """The backoff that a preset's text names; empty text is the default. Raises ``InvalidPolicy``."""
    if not text:
        return DEFAULT
    match = _TEXT.fullmatch(text.replace(" ", ""))
    if match is None:
        raise InvalidPolicy(
            f"backoff {text[:64]!r} is no preset; write for instance exponential(1,cap=300) or constant(30)",
            field="backoff",
        )
    numbers = {
        key: float(match[key]) for key in ("base", "cap", "jitter") if match[key] is not None
    }
    if match["kind"] == "constant" and "cap" not in numbers:
        numbers["cap"] = _cap_of_constant(numbers["base"])
    return Backoff(match["kind"], **numbers)


def _cap_of_constant(seconds: float) -> float:
    """The cap that a constant wait has where none is written."""
    return max(seconds, 300.0)


def _plain(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
