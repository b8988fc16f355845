"""The backend for Django's task framework: ``enqueue`` writes a row in the caller's transaction, which is the promise.

An instance is made at import time of any ``tasks`` module and once per thread, so it holds no connection and imports no
model before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.core import checks
from django.db import router

from . import arguments, registry
from .compat import BaseTaskBackend, InvalidTask, TaskResultStatus, task_enqueued
from .conf import config
from .errors import InvalidConfiguration, InvalidPolicy, SmallageError, UnknownTask
from .taskpolicy import FrozenPolicy, frozen_policy, named_policy, options_policy
from .tasktypes import SmallageResult, SmallageTask

if TYPE_CHECKING:
    from .models import DelayedRun
    from .store.enqueueing import Enqueueing, NewRun, Work

_OPTIONS: Final = frozenset({"MAX_ATTEMPTS", "TIMEOUT", "BACKOFF", "POLICIES"})


class SmallageBackend(BaseTaskBackend):
    """Tasks as rows. See ``docs`` for the settings."""

    task_class = SmallageTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SmallageResult:
        """Write the run, to be handed over once the caller's transaction is committed.

        Raises ``InvalidTask``, ``InvalidArguments``, ``InvalidPolicy``, and what the database raises.
        """
        call = self.prepare(task, args, kwargs)
        if task.run_after is not None:
            delayed = self.new_delayed(task, call, task.run_after)
            result = self.promise(task, delayed, replace=False)
        else:
            result = self._enqueue_now(task, call)
        self._announce(result)
        return result

    def enqueue_many(
        self, task: Any, list_of_kwargs: Iterable[Mapping[str, Any]]
    ) -> list[SmallageResult]:
        """Write one run for each set of named arguments, all or none, in batches; see :meth:`enqueue`."""
        from .publishing import publish_on_commit
        from .store.enqueueing import NewRun

        self.validate_task(task)
        self._refuse_unresolvable(task)
        if task.run_after is not None:
            raise InvalidTask(
                "enqueue_many() makes runs that start at once; run_after must be None"
            )
        check = partial(arguments.checked, task.func, task.takes_context, ())
        runs = [NewRun([], check(kwargs).kwargs) for kwargs in list_of_kwargs]
        if not runs:
            return []
        store, work = self._store(), self._work(task, frozen_policy(task, alias=self.alias))
        publish_on_commit(store.insert_runs(work, runs), store.alias)
        results = [self._result(task, work, run) for run in runs]
        for result in results:
            self._announce(result)
        return results

    def get_result(self, result_id: Any) -> SmallageResult:
        """The result of a fire id. Raises ``TaskResultDoesNotExist`` for every other value, whatever it is."""
        from . import results
        from .models import Run

        # Where it was written: a replica may not have it yet.
        return results.find(result_id, router.db_for_write(Run))

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """What is wrong with this alias in ``TASKS``."""
        found = [
            checks.Error(problem, hint=f"See TASKS[{self.alias!r}].", id="smallage_django.E003")
            for problem in self._problems()
        ]
        return [*found, *self._queue_warnings()]

    # -- for api ------------------------------------------------------------------------------------------------------

    def prepare(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> arguments.Call:
        """Check everything that can be checked before there is a row."""
        self.validate_task(task)
        self._refuse_unresolvable(task)
        return arguments.checked(task.func, task.takes_context, args, kwargs)

    def new_delayed(
        self, task: Any, call: arguments.Call, run_at: datetime, **facts: Any
    ) -> DelayedRun:
        """A delayed run that is not saved yet."""
        from .models import DelayedRun
        from .store.enqueueing import new_uid

        policy = frozen_policy(task, alias=self.alias)
        return DelayedRun(
            uid=new_uid(),
            run_at=run_at,
            task=task.module_path,
            backend=self.alias,
            args=call.args,
            kwargs=call.kwargs,
            queue=task.queue_name,
            priority=int(task.priority),
            max_attempts=policy.max_attempts,
            backoff=policy.backoff,
            timeout=policy.timeout,
            **facts,
        )

    def promise(self, task: Any, delayed: DelayedRun, *, replace: bool) -> SmallageResult:
        """Save a delayed run, once per key, and wake the scheduler if it is due soon."""
        from .publishing import wake_on_commit
        from .results import of_delayed

        store, run_at = self._store(), delayed.run_at
        if delayed.key is None:
            kept, created = store.insert_delayed(delayed), True
        else:
            kept, created = store.insert_delayed_once(delayed, replace)
        if created or replace:
            wake_on_commit(run_at, kept.created_at, store.alias)
        return of_delayed(kept, task if created else None)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _enqueue_now(self, task: Any, call: arguments.Call) -> SmallageResult:
        from .publishing import publish_on_commit
        from .store.enqueueing import NewRun

        store, work = self._store(), self._work(task, frozen_policy(task, alias=self.alias))
        run = NewRun(call.args, call.kwargs)
        order = store.insert_run(work, run)
        publish_on_commit([order], store.alias)
        return self._result(task, work, run)

    def _store(self) -> Enqueueing:
        from .models import Run
        from .store.enqueueing import Enqueueing

        return Enqueueing(router.db_for_write(Run))

    def _work(self, task: Any, policy: FrozenPolicy) -> Work:
        from .store.enqueueing import Work

        return Work(
            task=task.module_path,
            backend=self.alias,
            queue=task.queue_name,
            priority=int(task.priority),
            max_attempts=policy.max_attempts,
            timeout=policy.timeout,
            backoff=policy.backoff,
        )

    def _result(self, task: Any, work: Work, run: NewRun) -> SmallageResult:
        return SmallageResult(
            task=task,
            id=run.fire_id,
            status=TaskResultStatus.READY,
            enqueued_at=run.scheduled_for,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=run.args,
            kwargs=run.kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
            state="claimed",
            scheduled_for=run.scheduled_for,
            due_at=run.scheduled_for,
            max_attempts=work.max_attempts,
        )

    def _announce(self, result: SmallageResult) -> None:
        # The row is written: a receiver that fails must not make the caller believe that it is not.
        task_enqueued.send_robust(type(self), task_result=result)

    def _refuse_unresolvable(self, task: Any) -> None:
        try:
            registry.refuse_unresolvable(task)
        except UnknownTask as error:
            raise InvalidTask(f"{error}; a worker would not find it by this name") from error

    def _problems(self) -> Iterable[str]:
        unknown = set(self.options) - _OPTIONS
        if unknown:
            yield (
                f"TASKS[{self.alias!r}]['OPTIONS'] has the unknown keys {sorted(unknown)}; "
                f"known are {', '.join(sorted(_OPTIONS))}"
            )
        tries = [partial(options_policy, self.options)]
        policies = self.options.get("POLICIES", {})
        if isinstance(policies, Mapping):
            tries += [partial(named_policy, self.options, path) for path in policies]
        else:
            yield f"TASKS[{self.alias!r}]['OPTIONS']['POLICIES'] must be a dictionary of task paths"
        for attempt in tries:
            try:
                attempt()
            except (InvalidPolicy, InvalidConfiguration, TypeError) as error:
                yield f"TASKS[{self.alias!r}]['OPTIONS']: {error}"

    def _queue_warnings(self) -> Iterable[checks.CheckMessage]:
        try:
            served = set(config().queues)
        except SmallageError:
            return
        missing = sorted(self.queues - served)
        if missing:
            yield checks.Warning(
                f"TASKS[{self.alias!r}]['QUEUES'] has {missing}, which SMALLAGE['QUEUES'] does not name: "
                "no worker reads them unless it is told to.",
                hint="Add them to SMALLAGE['QUEUES'].",
                id="smallage_django.W003",
            )
