"""Stopping a process where it holds no lock of the database."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from django.db import connection

from tests.support.processes import Process

#: No writer that runs keeps SQLite's one lock for so long, seconds.
_HELD_S: Final = 0.3
_TRIES: Final = 50


def freeze_between_writes(process: Process) -> None:
    """Stop a process (SIGSTOP) that keeps no other from writing.

    SQLite has one lock for all writers, and a process that is stopped with it keeps it: then nothing can go on, by
    whichever design. Servers lock rows, which others skip. Raises ``AssertionError`` where it never lets go.
    """
    for _ in range(_TRIES):
        process.freeze()
        if connection.vendor != "sqlite" or _is_writable():
            return
        process.resume()
    raise AssertionError(f"in a transaction each time{process.tail()}")


def _is_writable() -> bool:
    deadline = time.monotonic() + _HELD_S
    # Not Django's connection: its pragmas would need the lock that is asked about.
    other = sqlite3.connect(connection.settings_dict["NAME"], timeout=0, isolation_level=None)
    try:
        while time.monotonic() < deadline:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                time.sleep(0.005)
            else:
                other.execute("ROLLBACK")
                return True
        return False
    finally:
        other.close()
