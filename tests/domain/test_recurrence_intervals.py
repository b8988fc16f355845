"""Intervals: counted from their anchor, exact or on the calendar, whatever the clock does in between."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smallage_django.domain.recurrence import (
    Cron,
    Every,
    InvalidRule,
    next_occurrences,
    resolve_zone,
)

ANCHOR = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
BERLIN = resolve_zone("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana"]
#: Over the day that Samoa skipped, and other changes.
starts = st.datetimes(datetime(2011, 1, 1), datetime(2012, 6, 1), timezones=st.just(UTC))  # noqa: DTZ001


def every(unit: str, number: int, **more: Any) -> Every:
    units: Any = {unit: number}
    return Every(**units, **more)


@settings(max_examples=40, deadline=None)
@given(zone=st.sampled_from(ZONES), start=starts, unit=st.sampled_from(["days", "weeks", "months"]))
def test_calendar_units_are_the_fixed_cron_rule_of_the_anchors_reading(
    zone: str, start: datetime, unit: str
) -> None:
    """R023, R033: two engines, one answer: a day at 09:30 is ``30 9 * * *``."""
    anchor = start.replace(second=0, microsecond=0)
    local = anchor.astimezone(resolve_zone(zone))
    if local.day > 28 or local.fold:
        return  # cron leaves such months out; an anchor in a second showing runs at its own instant
    day = str(local.day) if unit == "months" else "*"
    weekday = str(local.isoweekday()) if unit == "weeks" else "*"
    cron = Cron(f"{local.minute} {local.hour} {day} * {weekday}", tz=zone)
    rule = every(unit, 1, tz=zone, anchor=anchor)
    end = anchor + timedelta(days=500)

    expected = next_occurrences(cron, anchor, 365)

    assert next_occurrences(rule, anchor, 365) == expected
    assert rule.count_between(anchor, end) == cron.count_between(anchor, end)
    for position, one in enumerate(expected):
        assert rule.last_at_or_before(one) == one
        assert rule.count_between(anchor, one) == position + 1


@pytest.mark.parametrize("unit", ["seconds", "minutes", "hours"])
def test_exact_units_are_the_same_distance_apart_whatever_the_clock_does(unit: str) -> None:
    """R022, R023."""
    rule = every(unit, 7, tz="Europe/Berlin", anchor=datetime(2027, 3, 28, 0, 59, 3, 5, tzinfo=UTC))
    found = next_occurrences(rule, datetime(2027, 3, 28, tzinfo=UTC), 20)

    assert found[0] == rule.anchor
    steps = {later - earlier for earlier, later in pairwise(found)}
    assert steps == {timedelta(**{unit: 7})} == {rule.shortest_step}


def test_a_month_from_the_31st_is_the_last_day_of_shorter_months_and_does_not_drift() -> None:
    """R024."""
    found = next_occurrences(Every(months=1, anchor=ANCHOR), ANCHOR, 5)

    assert [(one.month, one.day) for one in found] == [(2, 28), (3, 31), (4, 30), (5, 31), (6, 30)]


def test_an_interval_runs_at_its_end_and_not_after_it() -> None:
    """R025: from and until, both included."""
    rule = Every(days=1, anchor=ANCHOR, until=ANCHOR + timedelta(days=2))

    found = next_occurrences(rule, ANCHOR - timedelta(days=9), 9)

    assert found == [ANCHOR + timedelta(days=days) for days in (0, 1, 2)]
    assert rule.count_between(ANCHOR - timedelta(days=9), ANCHOR + timedelta(days=9)) == 3
    assert rule.last_at_or_before(ANCHOR + timedelta(days=9)) == found[-1]
    assert rule.last_at_or_before(ANCHOR - timedelta(microseconds=1)) is None
    assert rule.next_after(found[-1]) is None


def test_an_end_before_the_anchor_leaves_nothing() -> None:
    rule = Every(hours=1, anchor=ANCHOR, until=ANCHOR - timedelta(seconds=1))

    assert rule.next_after(ANCHOR - timedelta(days=1)) is None
    assert rule.last_at_or_before(ANCHOR + timedelta(days=1)) is None
    assert rule.count_between(ANCHOR - timedelta(days=1), ANCHOR + timedelta(days=1)) == 0


def test_where_one_asks_from_does_not_shift_an_interval() -> None:
    """R026: a restart, at whatever instant, finds the same occurrences."""
    rule = Every(minutes=90, tz="Europe/Berlin", anchor=ANCHOR)
    whole = next_occurrences(rule, ANCHOR, 50)
    for minutes in range(0, 50 * 90, 37):
        asked = ANCHOR + timedelta(minutes=minutes, microseconds=minutes)
        assert rule.next_after(asked) == next(one for one in whole if one > asked)


def test_an_anchor_in_a_second_showing_runs_there_and_later_days_at_their_reading() -> None:
    anchor = datetime(2027, 10, 31, 1, 30, tzinfo=UTC)  # 02:30 in Berlin for the second time
    rule = Every(days=1, tz="Europe/Berlin", anchor=anchor)

    found = next_occurrences(rule, anchor - timedelta(hours=2), 2)

    assert found == [anchor, anchor + timedelta(days=1)]


def test_a_fraction_of_a_second_of_the_anchor_is_kept_but_not_moved_past_a_gap() -> None:
    anchor = datetime(2027, 3, 27, 2, 30, 0, 250, tzinfo=BERLIN)

    moved, ordinary = next_occurrences(Every(days=1, tz="Europe/Berlin", anchor=anchor), anchor, 2)

    assert moved == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
    assert ordinary == datetime(2027, 3, 29, 0, 30, 0, 250, tzinfo=UTC)


def test_the_skipped_day_of_samoa_is_counted_once() -> None:
    """Midnight of 30 December 2011 moved to where that of the 31st is: one occurrence."""
    anchor = datetime(2011, 12, 1, tzinfo=resolve_zone("Pacific/Apia"))
    rule = Every(days=1, tz="Pacific/Apia", anchor=anchor)
    for days in range(60):
        end = anchor.astimezone(UTC) + timedelta(days=days, hours=1)
        assert rule.count_between(anchor, end) == len(
            [one for one in next_occurrences(rule, anchor, 70) if one <= end]
        )


@pytest.mark.parametrize("unit", ["hours", "days", "weeks", "months", "years"])
@pytest.mark.parametrize("number", [1, 3, 11, 250])
def test_no_step_is_shorter_than_the_shortest(unit: str, number: int) -> None:
    """In UTC, whose clock never changes."""
    rule = every(unit, number, anchor=datetime(2023, 12, 31, 12, tzinfo=UTC))
    found = next_occurrences(rule, datetime(2023, 1, 1, tzinfo=UTC), 30)

    assert min(later - earlier for earlier, later in pairwise(found)) >= rule.shortest_step
    assert rule.shortest_step > timedelta(0)


def test_counting_a_century_of_seconds_takes_no_steps() -> None:
    rule = Every(seconds=1, anchor=ANCHOR)

    assert rule.count_between(ANCHOR, ANCHOR + timedelta(days=36_500)) == 36_500 * 86_400


@pytest.mark.parametrize(
    ("given_", "parts"),
    [
        ({}, ["exactly one of seconds, minutes"]),
        ({"hours": 1, "minutes": 30}, ["2 units", "exactly one"]),
        ({"fortnights": 1}, ["'fortnights'", "weeks"]),
        ({"minutes": 0}, ["minutes is 0", "from 1"]),
        ({"hours": 1.5}, ["1.5", "whole number"]),
        ({"days": True}, ["True"]),
        ({"minutes": "5"}, ["'5'"]),
        ({"days": 10**9}, ["year 9999"]),
        ({"seconds": 10**30}, ["year 9999"]),
        ({"years": 10**400}, ["year 9999"]),
    ],
)
def test_an_interval_that_cannot_be_is_refused(given_: dict[str, Any], parts: list[str]) -> None:
    """R009."""
    for anchor in (None, ANCHOR):
        with pytest.raises(InvalidRule) as caught:
            Every(**given_, anchor=anchor)
        assert caught.value.field == "interval"
        for part in parts:
            assert part in str(caught.value)


def test_bounds_without_a_zone_are_refused() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    for bounds in ({"anchor": naive}, {"until": naive}, {"anchor": "2026-01-01"}):
        with pytest.raises(InvalidRule, match="aware") as caught:
            every("days", 1, **bounds)
        assert caught.value.field == "interval"


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidRule, match="Europe/Berlin") as caught:
        Every(days=1, tz="Berlin")
    assert caught.value.field == "timezone"


def test_without_an_anchor_a_rule_can_be_made_but_cannot_answer() -> None:
    rule = Every(days=1, tz="Europe/Berlin", until=ANCHOR)

    for ask in (rule.next_after, rule.last_at_or_before, lambda at: rule.count_between(at, at)):
        with pytest.raises(ValueError, match="anchor"):
            ask(ANCHOR)
    assert rule.anchored(ANCHOR) == Every(days=1, tz="Europe/Berlin", anchor=ANCHOR, until=ANCHOR)
    assert rule.shortest_step == timedelta(days=1)


def test_an_interval_is_a_value() -> None:
    rule = Every(weeks=2, tz="Europe/Berlin", anchor=ANCHOR)

    assert rule == Every(weeks=2, tz="Europe/Berlin", anchor=ANCHOR.astimezone(BERLIN))
    assert rule != Every(days=14, tz="Europe/Berlin", anchor=ANCHOR)
    assert hash(rule) == hash(copy.deepcopy(rule))
    assert pickle.loads(pickle.dumps(rule)) == rule
    with pytest.raises(AttributeError):
        rule.number = 3  # type: ignore[misc]


@pytest.mark.parametrize("unit", ["seconds", "days", "months", "years"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_ends_of_the_calendar_are_no_error(unit: str, zone: str) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    late = datetime(9990, 1, 31, tzinfo=UTC)
    rule = every(unit, 1, tz=zone, anchor=late)

    assert rule.next_after(first) == late
    assert rule.last_at_or_before(first) is None
    assert rule.next_after(last) is None
    end = rule.last_at_or_before(last)
    assert end is not None
    assert end.year >= 9998
    assert rule.next_after(end) is None
    assert rule.count_between(first, last) == rule.count_between(first, end) > 0
    with pytest.raises(InvalidRule, match="9999"):
        every("years", 9, tz=zone, anchor=late + timedelta(days=800))
