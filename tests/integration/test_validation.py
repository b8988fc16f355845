"""What the form of a schedule or a delayed run refuses, and at which field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from smallage_django.models import DelayedRun, Schedule
from smallage_django.rules import rule_of
from smallage_django.validation import shortest_step

T0 = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def a_schedule(**values: Any) -> Schedule:
    return Schedule(
        **{
            "name": "nightly",
            "expression": "30 2 * * *",
            "timezone": "Europe/Berlin",
            "task": "tests.app.tasks.add",
            "kwargs": {"a": 1, "b": 2},
            **values,
        }
    )


def an_interval(**values: Any) -> Schedule:
    return a_schedule(
        **{"kind": "interval", "expression": "", "every": 10, "unit": "minutes", **values}
    )


def a_promise(**values: Any) -> DelayedRun:
    return DelayedRun(
        **{"task": "tests.app.tasks.add", "kwargs": {"a": 1, "b": 2}, "run_at": T0, **values}
    )


def errors_of(row: Schedule | DelayedRun) -> dict[str, list[str]]:
    try:
        row.clean()
    except ValidationError as error:
        return error.message_dict
    return {}


@pytest.mark.parametrize(
    "row",
    [
        a_schedule(),
        an_interval(),
        an_interval(anchor=T0, jitter=9 * MINUTE),
        a_schedule(kind="interval", expression="", every=1, unit="months"),
        a_schedule(queue="mail", priority=-100, max_attempts=1, backoff="constant(5)"),
        a_schedule(timeout=MINUTE, start_deadline=MINUTE, late_after=timedelta(0)),
        a_schedule(starts_at=T0, ends_at=T0 + MINUTE),
        a_schedule(jitter=timedelta(hours=23)),
        a_schedule(expression="#daily"),
        a_schedule(args=[1], kwargs={"b": 2}),
        a_schedule(task="gone.away", enabled=False),
        a_promise(),
        a_promise(deadline=T0),
        a_promise(key="k", late_after=MINUTE),
    ],
)
def test_what_can_be_is_accepted(row: Schedule | DelayedRun) -> None:
    assert errors_of(row) == {}


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"expression": "61 2 * * *"}, "expression", ["minute", "61", "0-59"]),
        ({"expression": "* * *"}, "expression", ["3", "5"]),
        ({"expression": "0 0 30 2 *"}, "expression", ["no date"]),
        ({"expression": ""}, "expression", []),
        ({"expression": "0 0 * * * *"}, "expression", ["6", "5"]),
        ({"timezone": "Berlin"}, "timezone", ["Berlin"]),
        ({"timezone": ""}, "timezone", []),
        ({"timezone": "../../etc/passwd"}, "timezone", []),
        ({"kind": "interval", "expression": ""}, "every", ["number", "unit"]),
        ({"kind": "interval", "every": 0, "unit": "minutes"}, "every", ["0"]),
        ({"kind": "interval", "every": 2**31 - 1, "unit": "years"}, "every", []),
        ({"kind": "interval", "every": 1, "unit": "fortnights"}, "unit", ["fortnights"]),
        ({"kind": "trigger", "trigger": "tides"}, "trigger", ["no trigger", "tides"]),
        ({"task": "gone.away"}, "task", ["not registered in this process", "gone.away"]),
        ({"task": "tests.app.tasks.ad"}, "task", ["did you mean tests.app.tasks.add?"]),
        ({"task": "os.system"}, "task", ["not registered"]),
        ({"kwargs": {"a": 1}}, "kwargs", ["'b'", "missing", "a: int, b: int"]),
        ({"kwargs": {"a": 1, "b": 2, "c": 3}}, "kwargs", ["'c'"]),
        ({"kwargs": {"a": "1", "b": 2}}, "kwargs", ["'a'", "'1' (str)", "must be int"]),
        ({"kwargs": {"a": float("nan"), "b": 2}}, "kwargs", ["'a'", "nan"]),
        ({"kwargs": [1, 2]}, "kwargs", ["JSON object", "list"]),
        ({"args": {"a": 1}}, "args", ["JSON list", "dict"]),
        ({"backend": "nowhere"}, "backend", ["nowhere"]),
        ({"queue": "film"}, "queue", ["film", "default, mail, reports"]),
        ({"priority": 101}, "priority", ["101", "-100 to 100"]),
        ({"max_attempts": 0}, "max_attempts", ["0", "from 1"]),
        ({"backoff": "often"}, "backoff", ["often", "exponential"]),
        ({"timeout": timedelta(0)}, "timeout", ["above 0"]),
        ({"misfire_grace": -MINUTE}, "misfire_grace", ["negative"]),
        ({"catch_up_limit": 0}, "catch_up_limit", ["1 or more"]),
        ({"catch_up_window": -MINUTE}, "catch_up_window", ["negative"]),
        ({"late_after": -MINUTE}, "late_after", ["negative"]),
        ({"start_deadline": -MINUTE}, "start_deadline", ["negative"]),
        ({"jitter": -MINUTE}, "jitter", ["negative"]),
        ({"expression": "*/5 * * * *", "jitter": 5 * MINUTE}, "jitter", ["0:05:00"]),
        ({"expression": "0,1 0 1 * *", "jitter": MINUTE}, "jitter", ["0:01:00"]),
        ({"ends_at": T0, "starts_at": T0}, "ends_at", ["2030-01-01", "not after"]),
        ({"max_runs": 0}, "max_runs", ["1 or more"]),
        ({"pause_after_failures": 0}, "pause_after_failures", ["1 or more"]),
        ({"retention": timedelta(0)}, "retention", ["above 0"]),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(
    values: dict[str, Any], field: str, words: list[str]
) -> None:
    found = errors_of(a_schedule(**values))

    assert list(found) == [field]
    for word in words:
        assert word in " ".join(found[field])


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"deadline": T0 - MINUTE}, "deadline", ["2029-12-31T23:59", "2030-01-01"]),
        ({"late_after": -MINUTE}, "late_after", ["negative"]),
        ({"key": ""}, "key", ["empty"]),
        ({"task": "gone.away"}, "task", ["not registered"]),
        ({"kwargs": {}}, "kwargs", ["'a' is missing"]),
        ({"queue": "film"}, "queue", ["film"]),
        ({"priority": -101}, "priority", ["-101"]),
        ({"timeout": -MINUTE}, "timeout", ["above 0"]),
        ({"max_attempts": 0}, "max_attempts", ["from 1"]),
    ],
)
def test_promises_are_held_to_the_same_rules(
    values: dict[str, Any], field: str, words: list[str]
) -> None:
    found = errors_of(a_promise(**values))

    assert list(found) == [field]
    for word in words:
        assert word in " ".join(found[field])


def test_everything_wrong_is_said_at_once() -> None:
    found = errors_of(
        a_schedule(expression="61 * * * *", queue="film", kwargs={}, priority=500, task="gone.away")
    )

    assert set(found) == {"expression", "queue", "priority", "task"}


@pytest.mark.parametrize("name", ["misfire_grace", "catch_up_limit", "jitter", "run_at"])
def test_fields_that_are_empty_already_do_not_hide_the_rest(name: str) -> None:
    """Django calls clean() after a required field has failed, with None in its place."""
    row = a_promise(**{name: None}) if name == "run_at" else a_schedule(**{name: None})
    row.queue = "film"

    assert set(errors_of(row)) == {"queue"}


@pytest.mark.django_db
def test_a_second_schedule_of_the_same_name_is_refused() -> None:
    a_schedule().save()

    with pytest.raises(ValidationError) as caught:
        a_schedule().full_clean()

    assert list(caught.value.message_dict) == ["name"]


@pytest.mark.django_db
def test_a_saved_interval_counts_from_its_creation() -> None:
    row = an_interval()
    row.save()
    row.refresh_from_db()

    assert rule_of(row).next_after(row.created_at) == row.created_at + 10 * MINUTE


@pytest.mark.parametrize(
    ("row", "step"),
    [
        (a_schedule(expression="*/5 * * * *"), 5 * MINUTE),
        (a_schedule(expression="0 0 * * *", timezone="UTC"), timedelta(days=1)),
        (a_schedule(expression="0,1 0 1 * *"), MINUTE),
        (an_interval(), 10 * MINUTE),
    ],
)
def test_the_shortest_step_of_a_rule(row: Schedule, step: timedelta) -> None:
    assert shortest_step(rule_of(row), T0) == step
