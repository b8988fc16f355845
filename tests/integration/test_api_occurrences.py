"""``next_occurrences`` of rules and of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from smallage_django import next_occurrences
from smallage_django.errors import InvalidPolicy, InvalidRule
from smallage_django.models import Schedule
from smallage_django.schedules import Cron, Every

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_of_a_rule_strictly_later() -> None:
    assert next_occurrences(Cron("0 * * * *"), T0, 3) == [T0 + HOUR, T0 + 2 * HOUR, T0 + 3 * HOUR]
    assert next_occurrences(Every(hours=1, anchor=T0), T0, 2) == [T0 + HOUR, T0 + 2 * HOUR]


def test_from_now_and_five_where_nothing_is_said() -> None:
    found = next_occurrences(Cron("* * * * *"))

    assert len(found) == 5
    assert found[0] > datetime.now(UTC)


def test_of_a_schedule_within_its_own_span() -> None:
    row = Schedule(
        expression="0 * * * *", starts_at=T0 + 2 * HOUR, ends_at=T0 + 3 * HOUR, task="x", name="x"
    )

    assert next_occurrences(row, T0, 5) == [T0 + 2 * HOUR, T0 + 3 * HOUR]


def test_a_rule_that_ends_has_no_more() -> None:
    rule = Every(hours=1, anchor=T0, until=T0 + 2 * HOUR)

    assert next_occurrences(rule, T0, 5) == [T0 + HOUR, T0 + 2 * HOUR]


def test_a_broken_schedule_says_what_is_wrong() -> None:
    with pytest.raises(InvalidRule, match="minute"):
        next_occurrences(Schedule(expression="61 * * * *", task="x", name="x"), T0)


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="aware"):
        next_occurrences(Cron("0 * * * *"), datetime(2030, 1, 1))  # noqa: DTZ001
