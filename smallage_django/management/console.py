"""What the long-running commands show: log lines for people, and exit codes for scripts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, SystemCheckError

#: Exit codes that every command shares.
USAGE: Final = 2
UNREACHABLE: Final = 3
_LEVELS: Final = {0: logging.ERROR, 1: logging.INFO}
_PACKAGE: Final = "smallage_django"


class ServiceCommand(BaseCommand):
    """A command that works until it is stopped, or once for a timer."""

    def check(self, *args: Any, **options: Any) -> None:
        """Refuse settings that cannot work with the exit code that options of this kind have."""
        try:
            super().check(*args, **options)
        except SystemCheckError as error:
            error.returncode = USAGE
            raise


class _Lines(logging.Handler):
    """Writes log lines through a command's own stream, which tests and ``call_command`` can redirect."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
        )

    def emit(self, record: logging.LogRecord) -> None:
        self._stream.write(self.format(record))


@contextmanager
def progress(stream: Any, verbosity: int) -> Iterator[None]:
    """Show the package's log lines on ``stream`` while a command runs.

    Verbosity 0 shows errors, 1 what happens to the process, 2 each transition of a run. A project that has given the
    package's logger a handler of its own has decided where the lines go, and keeps that.
    """
    logger = logging.getLogger(_PACKAGE)
    if logger.handlers:
        yield
        return
    handler = _Lines(stream)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
    logger.propagate = propagate and bool(logging.getLogger().handlers)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def usage_error(error: Exception) -> CommandError:
    """A command line or configuration that cannot work, as Django reports it; exit code 2."""
    return CommandError(str(error), returncode=USAGE)


def failure(error: Exception, code: int) -> CommandError:
    """Something that ended a command, as Django reports it, with the exit code it is worth."""
    return CommandError(str(error), returncode=code)


def unreachable(error: Exception) -> CommandError:
    """The database or Redis stayed away; exit code 3."""
    return CommandError(str(error), returncode=UNREACHABLE)
