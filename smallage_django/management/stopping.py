"""How the long-running commands end: a first signal asks for it, a second one does not wait for anything."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

#: After a second signal nothing may keep the process for longer, a dependency that hangs included.
LAST_MOMENT_S: Final = 0.7


class StopSignals:
    """Turns SIGTERM and SIGINT into a call of ``stop``, and a second one also into an end within a moment.

    Only in the main thread of a process: elsewhere (``call_command`` in a test's thread) Python refuses handlers.
    """

    def __init__(self, stop: Callable[[], object]) -> None:
        self.caught = 0
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self.caught += 1
        self._stop()
        if self.caught == 2:
            # An alarm, not a thread: a handler may interrupt code that holds the locks a thread needs to start.
            signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
            signal.setitimer(signal.ITIMER_REAL, LAST_MOMENT_S)
