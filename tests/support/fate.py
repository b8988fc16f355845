"""Ends a process at one chosen call into its dependencies, so that a crash can be put anywhere, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Died(BaseException):
    """The process is gone: nothing catches this."""


@dataclass
class Fate:
    """Counts calls; at number ``at`` it does ``what``, before the call reaches its target or after it has.

    By itself ``what`` ends the process.
    """

    at: int
    after: bool = False
    what: Callable[[], None] | None = None
    calls: int = 0
    names: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool:
        """Whether the chosen call has come."""
        return self.calls >= self.at

    @property
    def last(self) -> str:
        """The latest call."""
        return self.names[-1] if self.names else ""

    @property
    def told(self) -> str:
        """Where it struck, for messages."""
        name = self.names[self.at - 1] if self.met else "nowhere"
        return f"call {self.at}, {name}, {'after' if self.after else 'before'} it"

    def meet(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Make a call, if it is still to be."""
        self.calls += 1
        self.names.append(name)
        chosen = self.calls == self.at
        if chosen and not self.after:
            self._strike(name)
        answer = call(*args)
        if chosen and self.after:
            self._strike(name)
        return answer

    def _strike(self, name: str) -> None:
        if self.what is None:
            raise Died(name)
        self.what()


class Mortal:
    """A store or broker whose calls go through fate."""

    def __init__(self, target: Any, fate: Fate) -> None:
        self._target = target
        self._fate = fate
        self._steps: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        # One object per name: a scheduler compares its steps.
        if name not in self._steps:
            call = getattr(self._target, name)
            self._steps[name] = lambda *args: self._fate.meet(name, call, *args)
        return self._steps[name]
