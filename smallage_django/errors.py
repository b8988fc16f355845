"""The exception tree: everything the package raises on purpose is a :class:`SmallageError`.

Three branches, so that a handler can tell whose move it is: ``UsageError`` is a mistake of the caller or of the
configuration, ``Unavailable`` is a dependency that is away and may come back, and ``Outcome`` names how a run ended
other than by success (these are the classes that ``TaskResult.errors`` points at).
"""

from __future__ import annotations


class SmallageError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(SmallageError):
    """The caller or the configuration asked for something that cannot be; the message names the value and the mend."""


class InvalidRule(UsageError, ValueError):
    """A recurrence rule or a zone that cannot be. ``field`` says which part, in the words of the crontab manual."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class InvalidArguments(UsageError, ValueError):
    """Arguments that the task cannot be called with, or that JSON cannot carry. ``argument`` names the culprit."""

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class UnserialisableArgument(InvalidArguments, TypeError):
    """An argument of a type that JSON does not have, such as a model instance: pass its primary key instead."""


class InvalidConfiguration(UsageError, ValueError):
    """A value in ``SMALLAGE``, ``TASKS`` or on a command line that cannot work; names the key and the rule."""


class InvalidPolicy(UsageError, ValueError):
    """A policy value outside its range. ``field`` names the policy."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownTask(UsageError, LookupError):
    """A task path that is not registered in this process. Check ``INSTALLED_APPS`` and the module's spelling."""


class UnknownRun(UsageError, LookupError):
    """No run, schedule or delayed run of that name or id. Ids are case-sensitive."""


class MalformedEntry(SmallageError, ValueError):
    """A stream entry that is no envelope of version 1: buried, never retried. ``field`` names the bad part."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class Unavailable(SmallageError):
    """A dependency did not answer. The caller backs off and tries again; nothing has been lost."""


class BrokerUnavailable(Unavailable):
    """Redis did not answer or refused the command for now (loading, read-only, out of memory)."""


class StoreUnavailable(Unavailable):
    """The database did not answer, or refused for now (restart, deadlock, locked file)."""


class LeaseLost(SmallageError):
    """The lease, or a higher fence, belongs to another scheduler. A normal ending: step down and stand by."""


class Outcome(SmallageError):
    """Base of the names under which a run that did not succeed is reported to ``TaskResult.errors``."""


class RunMissed(Outcome):
    """The occurrence passed while no scheduler was at work, and its policy did not ask for it to run late."""


class RunSkipped(Outcome):
    """The run was left out on purpose: an overlap, a calendar, a full queue or a veto; the reason says which."""


class RunExpired(Outcome):
    """The run could not start before its deadline and was no longer useful."""


class RunCancelled(Outcome):
    """A person, a change of rule or the program cancelled the run."""


class RunTimedOut(Outcome):
    """The run took longer than its timeout and was stopped."""


class WorkerLost(Outcome):
    """The worker that ran this attempt went silent and no attempt was left."""


class TooManyDeliveries(Outcome):
    """The entry reached workers again and again without one of them beginning the run."""


class RunUnwritable(Outcome):
    """Redis refused the run's entry, and would again; the reason has its words."""


class RunPruned(Outcome):
    """The run was over and its record has been deleted by retention; only that it fired is still known."""
