"""Runs user code: functions in a pool of threads, coroutines on one event loop in a thread of its own.

Nothing that user code raises gets out of here, ``SystemExit`` included; it becomes an ``Outcome``. All threads are
daemons: code that does not end cannot keep a process that was told to stop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import DatabaseError, connections

from . import registry, signals
from .compat import TaskError, TaskResultStatus, task_finished, task_started
from .context import context_of, result_of, running
from .domain.lifecycle import TERMINAL, Ending, Reason, State
from .errors import UnknownTask
from .outcomes import failure, success
from .ports import Begun, Finish, Leftover, Outcome

logger = logging.getLogger(__name__)

Done = Callable[[Begun, Outcome], None]
_INTERRUPTED: Final = Outcome(Ending.CANCELLED, interrupted=True)
_RUNS_SIGNALS: Final = {
    State.SUCCEEDED: signals.run_succeeded,
    State.FAILED: signals.run_failed,
    State.RETRYING: signals.run_retrying,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A task as the runner calls it."""

    func: Callable[..., Any]
    is_async: bool
    takes_context: bool
    sender: type[Any]
    #: The task's own say about another attempt, where it is a function and not a preset.
    backoff: Callable[..., Any] | None

    @classmethod
    def of(cls, path: str) -> Target:
        """The task at ``path``. Raises ``UnknownTask``."""
        task = registry.resolve(path)
        backoff = getattr(task, "backoff", None)
        return cls(
            task.func,
            inspect.iscoroutinefunction(task.func),
            task.takes_context,
            type(task.get_backend()),
            backoff if inspect.isroutine(backoff) or _is_plain_callable(backoff) else None,
        )

    def arguments(self, begun: Begun) -> Sequence[Any]:
        """The positional arguments, the context first where the task takes it."""
        return [context_of(begun), *begun.args] if self.takes_context else begun.args

    def started(self, begun: Begun) -> None:
        """Tell the framework's listeners; one that raises changes nothing."""
        if task_started.has_listeners(self.sender):
            result = result_of(begun)
            _send(task_started, self.sender, task_result=result)

    def failed(self, begun: Begun, error: BaseException) -> Outcome:
        """The outcome of an attempt that raised, with what the task's policy says to that."""
        if isinstance(error, KeyboardInterrupt):
            return _INTERRUPTED
        if _is_refused_call(error):
            return failure(error, give_up=Reason.BAD_ARGUMENTS)
        if self.backoff is None:
            return failure(error)
        try:
            wait = self.backoff(error, result_of(begun))
            if wait is None:
                return failure(error, give_up=Reason.NOT_RETRYABLE)
            retry_in = wait if isinstance(wait, timedelta) else timedelta(seconds=wait)
        except Exception:  # the edge: a policy that is broken leaves the decision to the preset
            logger.exception("%s: its backoff raised", begun.fire_id)
            return failure(error)
        return failure(error, retry_in=retry_in)


class TaskRunner:
    """``Runner`` over ``threads`` slots, shared by functions and coroutines."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._targets: dict[str, Target] = {}
        self._jobs: SimpleQueue[tuple[Begun, Target, Done] | None] = SimpleQueue()
        self._news: SimpleQueue[Sequence[Finish]] = SimpleQueue()
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        self._busy = 0
        #: Submitted and not yet reported; the value says whether user code began.
        self._held: dict[int, tuple[Begun, bool]] = {}
        self._telling = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = 0
        _thread(self._announce_all, "smallage-announcer")

    def free(self) -> int:
        """How many more attempts can start at once."""
        return self._threads - self._busy

    def submit(self, begun: Begun, done: Done) -> None:
        """Start an attempt; ``done`` is called once, from another thread, when its slot is free again."""
        with self._lock:
            self._busy += 1
            self._held[begun.run_id] = (begun, False)
        try:
            target = self._target(begun.task)
        except UnknownTask as error:
            self._report(begun, failure(error, give_up=Reason.UNKNOWN_TASK), done)
            return
        if target.is_async:
            loop = self._running_loop()
            loop.call_soon_threadsafe(self._start_coroutine, begun, target, done)
            return
        if self._pool < min(self._busy, self._threads):
            self._pool += 1
            _thread(self._work, f"smallage-task-{self._pool}")
        self._jobs.put((begun, target, done))

    def announce(self, finishes: Sequence[Finish]) -> None:
        """Tell listeners of stored outcomes, on a thread where they can hold up nothing but each other."""
        if finishes:
            with self._lock:
                self._telling += 1
            self._news.put(finishes)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing runs and nothing is left to announce; whether that is so."""
        with self._quiet:
            return self._quiet.wait_for(lambda: not self._held and not self._telling, seconds)

    def close(self) -> Leftover:
        """Start nothing more; coroutines are cancelled, threads cannot be."""
        with self._lock:
            self._closed = True
            held = list(self._held.values())
        for _ in range(self._pool):
            self._jobs.put(None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_all)
        return Leftover(
            started=[begun for begun, began in held if began],
            waiting=[begun for begun, began in held if not began],
        )

    # -- functions --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            begun, target, done = job
            if self._enter(begun):
                self._report(begun, call(begun, target), done)
        connections.close_all()

    # -- coroutines -------------------------------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            _thread(self._run_loop, "smallage-loop", self._loop)
        return self._loop

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
            except BaseException:
                # SystemExit in a task of a task ends run_forever; the others still run.
                logger.exception("a coroutine broke out of the event loop")
            else:
                return

    def _start_coroutine(self, begun: Begun, target: Target, done: Done) -> None:
        task = asyncio.ensure_future(self._await(begun, target, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await(self, begun: Begun, target: Target, done: Done) -> None:
        if self._enter(begun):
            self._report(begun, await acall(begun, target), done)

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    # -- book-keeping -----------------------------------------------------------------------------------------------

    def _target(self, path: str) -> Target:
        target = self._targets.get(path)
        if target is None:
            target = self._targets[path] = Target.of(path)
        return target

    def _enter(self, begun: Begun) -> bool:
        """Note that user code begins now; False where the runner was closed first."""
        with self._lock:
            if self._closed:
                return False
            self._held[begun.run_id] = (begun, True)
            return True

    def _report(self, begun: Begun, outcome: Outcome, done: Done) -> None:
        with self._lock:
            if self._closed and begun.run_id in self._held and outcome.ending is Ending.CANCELLED:
                # Cancelled by the close: nobody was promised this outcome.
                return
            self._busy -= 1
        done(begun, outcome)
        with self._quiet:
            self._held.pop(begun.run_id, None)
            if not self._held:
                self._quiet.notify_all()

    def _announce_all(self) -> None:
        while True:
            finishes = self._news.get()
            for finish in finishes:
                tell(finish)
            if self._news.empty():
                connections.close_all()
            with self._quiet:
                self._telling -= 1
                self._quiet.notify_all()


class InlineRunner:
    """``Runner`` that runs each attempt at once in the caller's thread and transaction: for tests and ``drain()``."""

    def submit(self, begun: Begun, done: Done) -> None:
        """Run the attempt to its end, then call ``done``."""
        try:
            target = Target.of(begun.task)
        except UnknownTask as error:
            done(begun, failure(error, give_up=Reason.UNKNOWN_TASK))
            return
        if target.is_async:
            done(begun, asyncio.run(acall(begun, target)))
        else:
            done(begun, call(begun, target, tidy=False))

    def free(self) -> int:
        """One at a time."""
        return 1

    def announce(self, finishes: Sequence[Finish]) -> None:
        """Tell listeners at once."""
        for finish in finishes:
            tell(finish)

    def wait(self, seconds: float) -> bool:
        """Nothing ever runs between two calls."""
        return True

    def close(self) -> Leftover:
        """Nothing is ever left."""
        return Leftover()


def call(begun: Begun, target: Target, *, tidy: bool = True) -> Outcome:
    """Run a function in this thread and return how it ended."""
    try:
        if tidy:
            tidy_connections()
        with running(begun):
            target.started(begun)
            return success(target.func(*target.arguments(begun), **begun.kwargs))
    except BaseException as error:  # noqa: BLE001 - SystemExit of a task must not end a worker
        return target.failed(begun, error)
    finally:
        if tidy:
            tidy_connections()


async def acall(begun: Begun, target: Target) -> Outcome:
    """Await a coroutine on this loop and return how it ended. Its ORM calls have a thread of their own."""
    async with ThreadSensitiveContext() as own:
        try:
            with running(begun):
                target.started(begun)
                return success(await target.func(*target.arguments(begun), **begun.kwargs))
        except BaseException as error:  # noqa: BLE001 - SystemExit of a task must not end a worker
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                return Outcome(Ending.CANCELLED, error="cancelled")
            return target.failed(begun, error)
        finally:
            if own in SyncToAsync.context_to_thread_executor:
                await sync_to_async(connections.close_all)()


def tell(finish: Finish) -> None:
    """Send the signals of a stored outcome. The framework's one is sent once, at the end of the run."""
    begun = finish.begun
    try:
        target = Target.of(begun.task)
        result = _final_result(finish)
    except UnknownTask:
        # The framework's results are of tasks, and there is none.
        return
    except (
        Exception
    ):  # the edge of a loop: what cannot be told must not keep the next from being told
        logger.exception("%s: its outcome cannot be told", begun.fire_id)
        return
    own = _RUNS_SIGNALS.get(finish.state)
    if own is not None:
        _send(own, target.sender, task_result=result, fire_id=begun.fire_id, reason=finish.reason)
    if finish.state not in TERMINAL:
        return
    error = finish.outcome.exception
    if error is None:
        _send(task_finished, target.sender, task_result=result)
        return
    try:
        raise error  # noqa: TRY301 - for the framework's log receiver, which reads sys.exc_info()
    except BaseException:  # noqa: BLE001 - it is caught right here, whatever it is
        _send(task_finished, target.sender, task_result=result)


def tidy_connections() -> None:
    """Leave this thread's connections as a fresh start would find them, or closed.

    Between two tasks: what is stale or broken is closed, and a transaction that a task forgot is rolled back.
    """
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:
                # Until these are reset Django keeps a connection for the end of a block that will not come.
                connection.in_atomic_block = connection.closed_in_transaction = False
                connection.close()
            else:
                connection.close_if_unusable_or_obsolete()
        except DatabaseError as error:
            logger.warning("a connection to %r could not be closed: %s", connection.alias, error)
            del connections[connection.alias]
        connection.queries_log.clear()


def _final_result(finish: Finish) -> Any:
    begun, outcome = finish.begun, finish.outcome
    result = result_of(begun)
    changes: dict[str, Any] = {"state": finish.state.value, "reason_code": finish.reason_code}
    if finish.state is State.RETRYING:
        changes["status"] = TaskResultStatus.READY
        changes["due_at"] = finish.due_at
    else:
        succeeded = finish.state is State.SUCCEEDED
        changes["status"] = TaskResultStatus.SUCCESSFUL if succeeded else TaskResultStatus.FAILED
        changes["finished_at"] = finish.finished_at
        changes["_return_value"] = outcome.result
    if outcome.ending is not Ending.SUCCEEDED:
        changes["errors"] = [
            TaskError(exception_class_path=outcome.error_class, traceback=outcome.traceback)
        ]
    for name, value in changes.items():
        object.__setattr__(result, name, value)
    return result


def _send(signal: Any, sender: type[Any], **named: Any) -> None:
    for receiver, answer in signal.send_robust(sender=sender, **named):
        if isinstance(answer, Exception):
            logger.error("the signal receiver %r raised %r", receiver, answer)


def _is_plain_callable(value: Any) -> bool:
    return callable(value) and not hasattr(value, "delay")


def _is_refused_call(error: BaseException) -> bool:
    """Whether the function was never entered: the traceback ends where it was called."""
    trace = error.__traceback__
    return isinstance(error, TypeError) and trace is not None and trace.tb_next is None


def _thread(target: Callable[..., Any], name: str, *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, name=name, daemon=True).start()
