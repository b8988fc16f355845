"""``policy`` and ``backoff``: above and below ``@task``, for one call, in the settings; and what a run is given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from smallage_django import backoff, policy
from smallage_django.compat import Task, task
from smallage_django.domain import retry
from smallage_django.errors import InvalidConfiguration, InvalidPolicy
from smallage_django.models import Schedule
from smallage_django.taskpolicy import FrozenPolicy, frozen_policy
from smallage_django.tasktypes import SmallageTask
from tests.app import tasks


@task
@policy(max_attempts=5, backoff=backoff.exponential(2, cap=60), timeout=30)
def below() -> None: ...


@policy(max_attempts=5, backoff=backoff.exponential(2, cap=60), timeout=30)
@task
def above() -> None: ...


@task
@policy(max_attempts=9)
@policy(max_attempts=2, timeout=7)
def twice() -> None: ...


def wait(exception: BaseException, task_result: Any) -> int:
    return 4


@pytest.mark.parametrize("one", [below, above])
def test_both_orders_of_the_decorators_mean_the_same(one: Any) -> None:
    assert isinstance(one, SmallageTask)
    assert (one.max_attempts, one.timeout) == (5, 30)
    assert frozen_policy(one) == FrozenPolicy(5, timedelta(seconds=30), "exponential(2,cap=60)")


def test_the_outer_policy_wins_and_the_inner_fills_in() -> None:
    assert (twice.max_attempts, twice.timeout) == (9, 7)


def test_one_call_has_a_policy_of_its_own() -> None:
    once = policy(max_attempts=1)(below)

    assert frozen_policy(once) == FrozenPolicy(1, timedelta(seconds=30), "exponential(2,cap=60)")
    assert below.max_attempts == 5


def test_using_keeps_the_policy_and_policy_keeps_what_using_changed() -> None:
    changed = policy(max_attempts=2)(below.using(priority=7))

    assert (changed.priority, changed.max_attempts, changed.timeout) == (7, 2, 30)


def test_tasks_stay_hashable_and_comparable() -> None:
    assert {below, below.using()} == {below}
    assert below != policy(max_attempts=1)(below)


def test_a_task_of_another_backend_comes_back_unchanged(settings: Any) -> None:
    root = Task.__module__.partition(".base")[0]
    settings.TASKS = {"default": {"BACKEND": f"{root}.backends.immediate.ImmediateBackend"}}
    foreign = task(tasks.add.func)

    assert policy(max_attempts=2)(foreign) is foreign
    assert foreign.enqueue(1, 2).return_value == 3


def test_a_task_that_was_rebound_to_us_keeps_its_functions_policy(settings: Any) -> None:
    root = Task.__module__.partition(".base")[0]
    ours = settings.TASKS["default"]
    settings.TASKS = {
        "default": {"BACKEND": f"{root}.backends.immediate.ImmediateBackend"},
        "ours": ours,
    }
    stock = task(below.func)
    assert type(stock) is Task

    assert frozen_policy(stock.using(backend="ours")).max_attempts == 5


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 40000}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "60"}, "timeout"),
        ({"timeout": timedelta(days=400)}, "timeout"),
        ({"backoff": "sometimes"}, "backoff"),
        ({"backoff": 5}, "backoff"),
        ({"backoff": "exponential(1,cap=9999999)"}, "backoff"),
    ],
)
def test_values_out_of_range_are_refused_by_name(values: dict[str, Any], field: str) -> None:
    """R082."""
    with pytest.raises(InvalidPolicy, match=field) as caught:
        policy(**values)

    assert caught.value.field == field


def test_presets_are_values_with_a_text_that_reads_back() -> None:
    """R082."""
    for preset in (
        backoff.exponential(),
        backoff.exponential(2, cap=300),
        backoff.exponential(0.5, cap=10, jitter=0),
        backoff.linear(10, cap=60),
        backoff.constant(30),
        backoff.constant(3600),
    ):
        assert retry.parse(str(preset)) == preset
        assert len(str(preset)) <= 64


def test_the_default_is_smallages_own() -> None:
    assert frozen_policy(tasks.noop) == FrozenPolicy(3, None, "")
    assert retry.parse("") == backoff.exponential(1, cap=300, jitter=0.2)


def test_a_function_as_backoff_stays_in_the_code() -> None:
    waiting = policy(backoff=wait)(below)

    assert frozen_policy(waiting).backoff == ""
    assert waiting.backoff is wait


class TestPrecedence:
    """Call, schedule row, task, backend."""

    @pytest.fixture(autouse=True)
    def _options(self, settings: Any) -> None:
        settings.TASKS = {
            "default": {
                **settings.TASKS["default"],
                "OPTIONS": {
                    "MAX_ATTEMPTS": 11,
                    "TIMEOUT": 600,
                    "POLICIES": {"tests.app.tasks.add": {"max_attempts": 4}},
                },
            }
        }

    def test_the_backends_options_are_the_last_resort(self) -> None:
        assert frozen_policy(tasks.noop) == FrozenPolicy(11, timedelta(seconds=600), "")

    def test_policies_name_tasks_of_other_people(self) -> None:
        assert frozen_policy(tasks.add) == FrozenPolicy(4, timedelta(seconds=600), "")

    def test_the_task_wins_over_the_options(self) -> None:
        assert frozen_policy(below).max_attempts == 5

    def test_the_row_wins_over_the_task(self) -> None:
        row = Schedule(max_attempts=2, backoff="constant(9)")

        assert frozen_policy(below, row) == FrozenPolicy(2, timedelta(seconds=30), "constant(9)")

    def test_a_task_that_this_process_does_not_have_gets_the_defaults(self) -> None:
        row = Schedule(task="gone.away", timeout=timedelta(seconds=5))

        assert frozen_policy(None, row) == FrozenPolicy(11, timedelta(seconds=5), "")

    def test_a_row_finds_its_policy_in_the_settings_too(self) -> None:
        assert frozen_policy(None, Schedule(task="tests.app.tasks.add")).max_attempts == 4

    def test_an_alias_that_is_gone_leaves_our_own_defaults(self) -> None:
        assert frozen_policy(None, Schedule(task="x", backend="gone")) == FrozenPolicy(3, None, "")


def test_unknown_keys_of_a_named_policy_are_refused(settings: Any) -> None:
    settings.TASKS = {
        "default": {
            **settings.TASKS["default"],
            "OPTIONS": {"POLICIES": {"tests.app.tasks.add": {"attempts": 4}}},
        }
    }
    with pytest.raises(InvalidConfiguration, match="attempts"):
        frozen_policy(tasks.add)


def test_the_public_names_are_the_values_and_not_modules() -> None:
    import smallage_django.taskpolicy

    assert smallage_django.policy is smallage_django.taskpolicy.policy
    assert smallage_django.backoff is smallage_django.taskpolicy.backoff
    assert "policy" in dir(smallage_django)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = smallage_django.nonsense
