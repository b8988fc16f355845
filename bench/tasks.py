"""The work that is measured: a 16-byte record appended to a file in shared memory, about 2 microseconds."""

from __future__ import annotations

import os
import struct
import time
from functools import lru_cache

from smallage_django.compat import task

RECORD = struct.Struct("<qd")


@lru_cache(maxsize=1)
def _file(path: str, _pid: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@task
def mark(number: int, data: str = "") -> None:
    """Leave the number and the host's time."""
    file = _file(os.environ["BENCH_MARKS"], os.getpid())
    os.write(file, RECORD.pack(number, time.time()))
