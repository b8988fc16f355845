"""A rule as a value, and what it answers at the edges: of the day, of the calendar, of its own frequency."""

from __future__ import annotations

import copy
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from smallage_django.domain.recurrence import (
    Cron,
    Every,
    InvalidRule,
    next_occurrences,
    resolve_zone,
)

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def test_equal_rules_are_equal_and_different_ones_are_not() -> None:
    rule = Cron("30 2 * * *", tz="Europe/Berlin")

    assert rule == Cron("30 2 * * *", "Europe/Berlin", None, "default", "default")
    assert len({rule, Cron("30 2 * * *", tz="Europe/Berlin"), copy.copy(rule)}) == 1
    for other in (
        Cron("31 2 * * *", tz="Europe/Berlin"),
        Cron("30 2 * * *"),
        Cron("30 2 * * *", tz="Europe/Berlin", key="k"),
        Cron("30 2 * * *", tz="Europe/Berlin", gap="skip"),
        Cron("30 2 * * *", tz="Europe/Berlin", fold="both"),
    ):
        assert rule != other


def test_a_rule_can_be_copied_and_pickled_and_still_answers() -> None:
    """The zone's object can be neither; a rule keeps its name."""
    rule = Cron("# 2 * * *", tz="Europe/Berlin", key="a", gap="skip", fold="both")
    for made in (copy.copy(rule), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert made == rule
        assert made.next_after(NOON) == rule.next_after(NOON)


def test_a_rule_does_not_change() -> None:
    rule = Cron("30 2 * * *")
    for name in ("expression", "tz", "key", "gap", "fold"):
        with pytest.raises(AttributeError):
            setattr(rule, name, "0 0 * * *")


def test_what_a_rule_shows_of_itself_is_what_it_was_made_of() -> None:
    assert repr(Cron("@daily", "Europe/Berlin")) == (
        "Cron(expression='@daily', tz='Europe/Berlin', key=None, gap='default', fold='default')"
    )


@pytest.mark.parametrize(
    ("more", "field", "part"),
    [
        ({"tz": "Berlin"}, "timezone", "Europe/Berlin"),
        ({"tz": None}, "timezone", "None"),
        ({"gap": "first"}, "expression", "next_valid"),
        ({"fold": "skip"}, "expression", "both"),
        ({"key": 5}, "expression", "key"),
    ],
)
def test_what_surrounds_the_expression_is_checked_too(
    more: dict[str, Any], field: str, part: str
) -> None:
    """R009, R015."""
    with pytest.raises(InvalidRule, match=part) as caught:
        Cron("0 0 * * *", **more)
    assert caught.value.field == field


def test_instants_of_any_zone_may_be_asked_and_answers_are_utc() -> None:
    rule = Cron("0 9 * * *", tz="America/New_York")
    expected = datetime(2026, 5, 5, 13, tzinfo=UTC)
    for zone in (UTC, resolve_zone("Asia/Tokyo"), timezone(timedelta(hours=-3))):
        asked = NOON.astimezone(zone)
        answer = rule.next_after(asked)
        assert answer == expected
        assert answer.tzinfo is UTC
        assert rule.count_between(asked, expected.astimezone(zone)) == 1
        assert rule.last_at_or_before(asked) == expected - timedelta(days=1)


def test_a_repeated_hour_asked_in_local_time_is_told_apart_by_its_fold() -> None:
    berlin = resolve_zone("Europe/Berlin")
    rule = Cron("*/30 * * * *", tz="Europe/Berlin")
    for fold, hour in ((0, 0), (1, 1)):
        asked = datetime(2027, 10, 31, 2, 10, fold=fold, tzinfo=berlin)
        assert rule.next_after(asked) == datetime(2027, 10, 31, hour, 30, tzinfo=UTC)


@pytest.mark.parametrize("asked", [datetime(2026, 5, 5), NOON.date(), "2026-05-05", None, 0])  # noqa: DTZ001
def test_what_is_no_instant_is_refused(asked: Any) -> None:
    for rule in (Cron("0 0 * * *"), Every(days=1, anchor=NOON)):
        for ask in (
            rule.next_after,
            rule.last_at_or_before,
            lambda at: rule.count_between(at, NOON),  # noqa: B023
            lambda at: rule.count_between(NOON, at),  # noqa: B023
        ):
            with pytest.raises(ValueError, match="aware"):
                ask(asked)


@pytest.mark.parametrize(
    ("expression", "step"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("*/7 * * * *", timedelta(minutes=4)),  # 56 to 60
        ("0,50 * * * *", timedelta(minutes=10)),
        ("30 2 * * *", timedelta(days=1)),
        ("5 23,0 * * *", timedelta(hours=1)),
        ("5 23,0 * * MON", timedelta(hours=23)),  # no Tuesday follows Monday's 23:05
        ("0 0 * * MON,THU", timedelta(days=3)),
        ("0 0 1 * *", timedelta(days=28)),
        ("0 0 L * *", timedelta(days=28)),
        ("0 0 1,31 * *", timedelta(days=1)),
        ("0 0 1 1 *", timedelta(days=365)),
        ("0 0 29 2 *", timedelta(days=4 * 365 + 1)),
    ],
)
def test_the_shortest_step_of_a_rule(expression: str, step: timedelta) -> None:
    """What jitter has to stay below (R029)."""
    rule = Cron(expression)

    assert rule.shortest_step == step
    found = next_occurrences(rule, NOON, 30)
    assert min(later - earlier for earlier, later in pairwise(found)) >= step


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("0 0 29 2 */7", "2032-02-29"),
        ("0 0 29 2 MON", "2027-02-01"),
        ("0 0 * 2 MON#5", "2044-02-29"),
        ("0 0 8-9 * 0#2", "2026-05-08"),
        ("0 0 13 * FRI", "2026-05-08"),
        ("0 0 1-31 * MON", "2026-05-06"),
        ("0 0 */2 * MON", "2026-05-11"),
        ("0 0 L2 * *", None),
    ],
)
def test_dates_match_by_both_day_fields_or_by_either(
    expression: str, following: str | None
) -> None:
    """R021: either is enough unless one of them begins with a star."""
    if following is None:
        with pytest.raises(InvalidRule, match="day of month"):
            Cron(expression)
        return
    assert Cron(expression).next_after(NOON) == datetime.fromisoformat(following + "T00:00:00Z")


@pytest.mark.parametrize(
    "zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"]
)
@pytest.mark.parametrize("expression", ["* * * * *", "59 23 31 12 *", "0 0 1 1 *", "0 0 29 2 *"])
def test_the_ends_of_the_calendar_are_no_error(zone: str, expression: str) -> None:
    rule = Cron(expression, tz=zone)

    early, late = rule.next_after(FIRST), rule.last_at_or_before(LAST)

    assert early is not None
    assert early.year < 10
    assert late is not None
    assert late.year > 9990
    assert rule.next_after(late) is None
    assert rule.next_after(LAST) is None
    assert rule.last_at_or_before(early - timedelta(microseconds=1)) in (None, FIRST)
    assert rule.count_between(LAST - timedelta(days=3700), LAST) == rule.count_between(
        LAST - timedelta(days=3700), late
    )
    # The ends of the calendar in zones where UTC lies beyond them.
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    assert rule.next_after(FIRST.replace(tzinfo=east)) in (early, FIRST)
    assert rule.last_at_or_before(FIRST.replace(tzinfo=east)) is None
    assert rule.next_after(LAST.replace(tzinfo=west)) is None
    assert rule.last_at_or_before(LAST.replace(tzinfo=west)) == late


def test_no_more_occurrences_are_listed_than_asked_for_or_than_there_are() -> None:
    assert next_occurrences(Cron("0 0 * * *"), NOON, 0) == []
    assert len(next_occurrences(Cron("0 0 * * *"), NOON, 3)) == 3
    assert next_occurrences(Cron("0 0 1 1 *"), datetime(9998, 5, 5, tzinfo=UTC), 3) == [
        datetime(9999, 1, 1, tzinfo=UTC)
    ]


def test_counting_backwards_or_nothing_is_nothing() -> None:
    rule = Cron("* * * * *")

    assert rule.count_between(NOON, NOON) == 0
    assert rule.count_between(NOON, NOON - timedelta(days=1)) == 0


def test_missed_occurrences_of_a_decade_are_counted_and_not_walked() -> None:
    """O9: a minutely rule is 5,259,600 occurrences behind, which costs milliseconds."""
    rule = Cron("* * * * *", tz="Europe/Berlin")
    end = NOON + timedelta(days=3652, hours=12)
    rule.count_between(NOON, end)
    began = time.process_time()

    assert rule.count_between(NOON, end) == (3652 * 24 + 12) * 60
    assert time.process_time() - began < 0.01


@pytest.mark.parametrize("expression", ["* * * * *", "30 2 * * *", "0 9 * * MON-FRI"])
@pytest.mark.parametrize(
    "day", [datetime(2026, 5, 5, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)]
)
def test_an_answer_is_quick_on_any_day(expression: str, day: datetime) -> None:
    """Thousands of schedules are asked in one pass: 20,000 a second is far below what one core does when it is free."""
    rule = Cron(expression, tz="Europe/Berlin")
    instants = [day + timedelta(seconds=37 * number) for number in range(2000)]
    rule.next_after(day)

    def once() -> float:
        began = time.process_time()
        for instant in instants:
            rule.next_after(instant)
        return time.process_time() - began

    assert min(once() for _ in range(3)) < 0.1
