"""The runner: whatever user code does becomes an outcome, and nothing of it leaks into the next run."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from smallage_django.compat import task, task_finished, task_started
from smallage_django.context import current_run
from smallage_django.domain.lifecycle import Ending, State
from smallage_django.outcomes import RESULT_LENGTH
from smallage_django.ports import Begun, Delivery, Finish, Outcome
from smallage_django.runner import InlineRunner, TaskRunner
from smallage_django.signals import run_retrying, run_succeeded
from smallage_django.taskpolicy import policy
from tests.app.models import Effect
from tests.support.waiting import wait_until

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@task
def returns(what: str) -> Any:
    """Return one of the values that JSON, or a column, does not take."""
    values: dict[str, Any] = {
        "object": object(),
        "nan": float("nan"),
        "infinity": [1, {"a": float("inf")}],
        "nul": {"a": "x\0y"},
        "surrogate": "\ud800",
        "huge": "x" * (RESULT_LENGTH + 1),
        "big number": 10**5000,
        "deep": _deep(100_000),
        "backslash": "\\u0000 and \\\\u0000",
        "tuple": (1, "ü", b"b"),
        "bytes": b"\xff",
    }
    return values[what]


def _deep(levels: int) -> Any:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class Unprintable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@task
def raises(what: str) -> None:
    """Raise what a worker must survive."""
    errors: dict[str, BaseException] = {
        "error": ValueError("no\0 good"),
        "system exit": SystemExit(3),
        "generator exit": GeneratorExit(),
        "unprintable": Unprintable(),
        "interrupt": KeyboardInterrupt(),
        "type error": TypeError("inside"),
    }
    raise errors[what]


@task
async def async_raises(what: str) -> None:
    """Raise in a coroutine."""
    await asyncio.sleep(0)
    if what == "cancelled":
        raise asyncio.CancelledError
    raise SystemExit(1)


@task
def tells_run() -> list[Any]:
    """What ``current_run()`` says."""
    run = current_run()
    assert run is not None
    return [run.fire_id, run.attempt]


@task
async def async_tells_run() -> list[Any]:
    """What ``current_run()`` says in a coroutine."""
    await asyncio.sleep(0)
    run = current_run()
    assert run is not None
    return [run.fire_id, run.attempt]


@task
def breaks_transaction() -> None:
    """Leave a transaction open with an error inside, as careless code does."""
    transaction.atomic().__enter__()
    Effect.objects.create(fire_id="x", key="leaked", at=NOW)


@task
def leaves_autocommit_off() -> None:
    """Take over transaction management and forget it."""
    transaction.set_autocommit(False)
    Effect.objects.create(fire_id="x", key="leaked", at=NOW)


@task
async def async_counts_effects() -> int:
    """Use the ORM from a coroutine."""
    return await Effect.objects.acount()


@task
@policy(backoff=lambda error, _result: 7 if "soon" in str(error) else None)
def asks_for_seven(message: str) -> None:
    """Fail with a policy that wants seven seconds for some errors and gives up on others."""
    raise ValueError(message)


@task
@policy(backoff=lambda _error, _result: 1 / 0)
def has_broken_policy() -> None:
    """Fail with a policy that fails."""
    raise ValueError("x")


def begun(path: Any, **kwargs: Any) -> Begun:
    """A run of a task, as ``begin`` hands it over."""
    values: dict[str, Any] = {"attempt": 1, "args": [], "kind": "enqueue"}
    values |= {key[1:]: kwargs.pop(key) for key in list(kwargs) if key.startswith("_")}
    name = path if isinstance(path, str) else path.module_path
    return Begun(
        delivery=Delivery("s", "1-1", {}),
        run_id=values.pop("run_id", 1),
        fire_id="task:" + "ab" * 16,
        token="t",
        worker="w1",
        max_attempts=3,
        task=name,
        backend="default",
        kwargs=kwargs,
        backoff="",
        timeout=None,
        scheduled_for=NOW,
        due_at=NOW,
        started_at=NOW,
        **values,
    )


@pytest.fixture
def runner() -> Iterator[TaskRunner]:
    made = TaskRunner(threads=3)
    yield made
    made.close()


@pytest.fixture
def run(runner: TaskRunner) -> Callable[..., Outcome]:
    """Run a task in the pool and return its outcome."""

    def run_one(path: Any, **kwargs: Any) -> Outcome:
        outcomes: list[Outcome] = []
        runner.submit(begun(path, **kwargs), lambda _, outcome: outcomes.append(outcome))
        assert runner.wait(10)
        [outcome] = outcomes
        return outcome

    return run_one


def test_functions_and_coroutines_return_their_results(run: Callable[..., Outcome]) -> None:
    assert run("tests.app.tasks.add", a=1, b=2) == Outcome(Ending.SUCCEEDED, result=3)
    assert run("tests.app.tasks.async_add", a=1, b=2) == Outcome(Ending.SUCCEEDED, result=3)
    assert run("tests.app.tasks.noop") == Outcome(Ending.SUCCEEDED)
    assert run("tests.app.tasks.add", _args=[1, 2]).result == 3


@pytest.mark.parametrize("which", [tells_run, async_tells_run])
def test_the_current_run_is_known_inside(run: Callable[..., Outcome], which: Any) -> None:
    """R114"""
    assert run(which, _attempt=2).result == ["task:" + "ab" * 16, 2]
    assert current_run() is None


@pytest.mark.parametrize(
    ("what", "error_class"),
    [
        ("error", "builtins.ValueError"),
        ("system exit", "builtins.SystemExit"),
        ("generator exit", "builtins.GeneratorExit"),
        ("unprintable", "tests.integration.test_worker_runner.Unprintable"),
        ("type error", "builtins.TypeError"),
    ],
)
def test_whatever_is_raised_is_a_failed_attempt(
    run: Callable[..., Outcome], what: str, error_class: str
) -> None:
    outcome = run(raises, what=what)

    assert (outcome.ending, outcome.error_class) == (Ending.FAILED, error_class)
    assert (outcome.give_up, outcome.retry_in) == ("", None)
    assert "raise errors[what]" in outcome.traceback or what == "unprintable"
    assert "in call\n" not in outcome.traceback
    assert run("tests.app.tasks.add", a=1, b=1).result == 2


@pytest.mark.parametrize("what", ["cancelled", "system exit"])
def test_whatever_a_coroutine_raises_is_a_failed_attempt(
    run: Callable[..., Outcome], what: str
) -> None:
    assert run(async_raises, what=what).ending is Ending.FAILED
    assert run("tests.app.tasks.async_add", a=1, b=1).result == 2


def test_an_interrupt_is_told_apart(run: Callable[..., Outcome]) -> None:
    assert run(raises, what="interrupt").interrupted


def test_errors_of_one_place_share_a_fingerprint(run: Callable[..., Outcome]) -> None:
    one, two = run("tests.app.tasks.fail", message="a"), run("tests.app.tasks.fail", message="b")
    other = run(raises, what="error")

    assert one.fingerprint == two.fingerprint != other.fingerprint


@pytest.mark.parametrize("kwargs", [{"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_arguments_that_do_not_fit_are_not_tried_again(
    run: Callable[..., Outcome], kwargs: dict[str, int]
) -> None:
    outcome = run("tests.app.tasks.add", **kwargs)

    assert (outcome.ending, outcome.give_up) == (Ending.FAILED, "bad_arguments")
    assert run("tests.app.tasks.async_add", **kwargs).give_up == "bad_arguments"


@pytest.mark.parametrize(
    "path", ["tests.app.tasks.gone", "no.such.module", "os.system", "tests.app.tasks", "", "a b"]
)
def test_what_is_no_task_fails_without_a_call(run: Callable[..., Outcome], path: str) -> None:
    outcome = run(path)

    assert (outcome.ending, outcome.give_up) == (Ending.FAILED, "unknown_task")
    assert outcome.error_class == "smallage_django.errors.UnknownTask"


@pytest.mark.parametrize("what", ["object", "bytes"])
def test_a_result_that_json_does_not_have_fails_with_type_error(
    run: Callable[..., Outcome], what: str
) -> None:
    outcome = run(returns, what=what)

    assert (outcome.ending, outcome.error_class) == (Ending.FAILED, "builtins.TypeError")
    assert outcome.give_up == "not_retryable"


@pytest.mark.parametrize("what", ["nan", "infinity", "nul", "surrogate", "huge", "big number"])
def test_a_result_that_no_column_takes_leaves_the_success_and_a_note(
    run: Callable[..., Outcome], what: str
) -> None:
    """PEER_FAULTS J2, J3"""
    outcome = run(returns, what=what)

    assert (outcome.ending, outcome.result) == (Ending.SUCCEEDED, None)
    assert outcome.note.startswith("the result was not kept: ")


def test_a_bottomless_result_does_not_end_the_worker(run: Callable[..., Outcome]) -> None:
    assert run(returns, what="deep").result is None
    assert run("tests.app.tasks.add", a=1, b=1).result == 2


def test_results_are_made_plain_json(run: Callable[..., Outcome]) -> None:
    assert run(returns, what="tuple").result == [1, "ü", "b"]
    assert run(returns, what="backslash").result == "\\u0000 and \\\\u0000"


def test_a_policy_may_choose_the_wait_or_give_up(run: Callable[..., Outcome]) -> None:
    """R082"""
    assert run(asks_for_seven, message="soon").retry_in == timedelta(seconds=7)
    assert run(asks_for_seven, message="never").give_up == "not_retryable"
    broken = run(has_broken_policy)
    assert (broken.ending, broken.retry_in, broken.give_up) == (Ending.FAILED, None, "")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("which", [breaks_transaction, leaves_autocommit_off])
def test_a_transaction_left_open_does_not_reach_the_next_run(which: Any) -> None:
    """R120: on one thread, so that the next run meets the same connection."""
    runner = TaskRunner(threads=1)
    outcomes: list[Outcome] = []
    try:
        for path in (which, "tests.app.tasks.record"):
            kwargs = {} if path is which else {"key": "kept"}
            runner.submit(begun(path, **kwargs), lambda _, outcome: outcomes.append(outcome))
            assert runner.wait(10)
    finally:
        runner.close()

    assert [outcome.ending for outcome in outcomes] == [Ending.SUCCEEDED] * 2
    assert list(Effect.objects.values_list("key", flat=True)) == ["kept"]


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_may_use_the_orm(run: Callable[..., Outcome]) -> None:
    assert run(async_counts_effects).result == 0
    assert run(async_counts_effects).result == 0


def test_no_more_run_than_there_are_slots(runner: TaskRunner) -> None:
    """R105"""
    ended: list[Begun] = []
    for number, path in enumerate(["slow", "slow", "async_slow"]):
        one = begun(f"tests.app.tasks.{path}", _run_id=number, seconds=0.2)
        runner.submit(one, lambda item, _: ended.append(item))

    assert runner.free() == 0
    assert not runner.wait(0.01)
    assert runner.wait(10)
    assert (runner.free(), len(ended)) == (3, 3)


def test_a_slot_is_free_when_done_is_called(runner: TaskRunner) -> None:
    free: list[int] = []

    runner.submit(begun("tests.app.tasks.noop"), lambda *_: free.append(runner.free()))

    assert runner.wait(10)
    assert free == [3]


def test_closing_tells_what_runs_and_what_never_began() -> None:
    runner = TaskRunner(threads=2)
    reported: list[Begun] = []
    running = begun("tests.app.tasks.slow", _run_id=1, seconds=0.5)
    coroutine = begun("tests.app.tasks.async_slow", _run_id=2, seconds=60)
    for one in (running, coroutine):
        runner.submit(one, lambda item, _: reported.append(item))
    wait_until(lambda: all(began for _, began in runner._held.values()))
    waiting = begun("tests.app.tasks.noop", _run_id=3)
    runner._held[3] = (waiting, False)

    left = runner.close()

    assert left.started == [running, coroutine]
    assert left.waiting == [waiting]
    wait_until(lambda: reported == [running])


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any]]]:
    told: list[tuple[str, Any]] = []

    def on_started(**named: Any) -> None:
        told.append(("started", named["task_result"].status))

    def on_finished(**named: Any) -> None:
        told.append(("finished", named["task_result"].status))
        told.append(("exception", sys.exc_info()[0]))

    def on_own(**named: Any) -> None:
        told.append((named["task_result"].state, named["fire_id"]))

    pairs = [
        (task_started, on_started),
        (task_finished, on_finished),
        (run_succeeded, on_own),
        (run_retrying, on_own),
    ]
    for signal, receiver in pairs:
        signal.connect(receiver, weak=False)
    yield told
    for signal, receiver in pairs:
        signal.disconnect(receiver)


def finished(one: Begun, outcome: Outcome, state: State) -> Finish:
    return Finish(one, outcome, state, NOW + timedelta(seconds=1))


def test_the_signals_of_a_success(
    runner: TaskRunner, run: Callable[..., Outcome], heard: list[Any]
) -> None:
    outcome = run("tests.app.tasks.add", a=1, b=1)
    assert heard == [("started", "RUNNING")]

    one = begun("tests.app.tasks.add")
    runner.announce([finished(one, outcome, State.SUCCEEDED)])

    assert runner.wait(10)
    assert heard[1:] == [
        ("succeeded", one.fire_id),
        ("finished", "SUCCESSFUL"),
        ("exception", None),
    ]


def test_a_retry_is_not_finished(
    runner: TaskRunner, run: Callable[..., Outcome], heard: list[Any]
) -> None:
    outcome = run(raises, what="error")
    one = begun(raises)

    runner.announce([finished(one, outcome, State.RETRYING)])
    runner.announce([finished(one, outcome, State.FAILED)])

    assert runner.wait(10)
    assert heard[1:] == [
        ("retrying", one.fire_id),
        ("finished", "FAILED"),
        ("exception", ValueError),
    ]


def test_a_receiver_that_raises_changes_nothing(
    run: Callable[..., Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("receiver")

    task_started.connect(broken, weak=False)
    try:
        with caplog.at_level(logging.ERROR):
            assert run("tests.app.tasks.add", a=1, b=1).result == 2
    finally:
        task_started.disconnect(broken)
    assert "RuntimeError('receiver')" in caplog.text


# -- inline -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_inline_a_task_runs_in_the_callers_thread_and_transaction() -> None:
    outcomes: list[Outcome] = []
    runner = InlineRunner()

    runner.submit(begun("tests.app.tasks.record", key="k"), lambda _, one: outcomes.append(one))
    runner.submit(begun(async_tells_run), lambda _, one: outcomes.append(one))
    runner.submit(begun("gone.task"), lambda _, one: outcomes.append(one))

    assert [one.ending for one in outcomes] == [
        Ending.SUCCEEDED,
        Ending.SUCCEEDED,
        Ending.FAILED,
    ]
    assert connection.in_atomic_block
    assert Effect.objects.get().key == "k"
