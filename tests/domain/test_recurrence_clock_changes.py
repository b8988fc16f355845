"""Changes of the clock under each of the two policies: against a clock watched minute by minute, and by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

import pytest

from smallage_django.domain.recurrence import Cron, next_occurrences, resolve_zone
from tests.support.clock_oracle import Clock, Known, changes

RULES = [
    Known("*/7 * * * *", lambda t: t.minute % 7 == 0, True),
    Known("45 * * * *", lambda t: t.minute == 45, True),
    Known("0 */2 * * *", lambda t: t.minute == 0 and t.hour % 2 == 0, True),
    Known("30 1-23/2 * * *", lambda t: t.minute == 30 and t.hour % 2 == 1, True),
    Known("20 0-23 * * 1-5", lambda t: t.minute == 20 and t.weekday() < 5, True),
    Known("30 0-6 * * *", lambda t: t.minute == 30 and t.hour <= 6, False),
    Known("0 0 * * *", lambda t: (t.hour, t.minute) == (0, 0), False),
    Known("1 0 * * *", lambda t: (t.hour, t.minute) == (0, 1), False),
    Known("59 23 * * *", lambda t: (t.hour, t.minute) == (23, 59), False),
    Known("0,30 2,3 * * *", lambda t: t.hour in (2, 3) and t.minute in (0, 30), False),
    Known("*/15 0,1 * * *", lambda t: t.hour in (0, 1) and t.minute % 15 == 0, False),
    Known("* 1 * * *", lambda t: t.hour == 1, False),
    Known("0 12 30,31 * *", lambda t: t.day in (30, 31) and (t.hour, t.minute) == (12, 0), False),
    Known("15 2 * * SUN", lambda t: t.weekday() == 6 and (t.hour, t.minute) == (2, 15), False),
]
#: A year from here on holds what is worth seeing of the zone.
ZONES = {
    "Europe/Berlin": 2027,
    "Europe/Dublin": 2026,
    "Australia/Lord_Howe": 2026,
    "Antarctica/Troll": 2026,
    "Antarctica/Casey": 2020,
    "Pacific/Apia": 2011,
    "Pacific/Kwajalein": 1993,
    "Pacific/Kiritimati": 1994,
    "America/Havana": 2024,
    "America/Sao_Paulo": 2018,
    "Africa/Cairo": 2024,
    "America/St_Johns": 2010,
    "Africa/Casablanca": 2026,
    "America/Caracas": 2016,
    "Asia/Pyongyang": 2015,
}
GAPS, FOLDS = ("default", "next_valid", "skip"), ("default", "first", "both")


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("zone", ZONES)
def test_every_policy_agrees_with_a_clock_watched_minute_by_minute(
    zone: str, gap: str, fold: str
) -> None:
    """R016, R017, R018, R019, R020: over every change of a year; forwards, backwards and counted."""
    for start, end, clock in watched(zone, ZONES[zone]):
        for rule in RULES:
            expected = clock.occurrences(rule, gap, fold)
            check(Cron(rule.expression, tz=zone, gap=gap, fold=fold), expected, start, end)


@lru_cache
def watched(zone: str, year: int) -> list[tuple[datetime, datetime, Clock]]:
    """A clock around each of a year's changes; never none."""
    found = changes(resolve_zone(zone), datetime(year, 1, 1, tzinfo=UTC), 370)
    assert found
    # A reading of a skipped day is a day and its minutes away from its instant; so is what covers it.
    spans = [(change - timedelta(hours=27), change + timedelta(hours=27)) for change in found]
    return [(start, end, Clock(resolve_zone(zone), start, end)) for start, end in spans]


def check(rule: Cron, expected: list[datetime], start: datetime, end: datetime) -> None:
    """The rule names these instants from ``start`` on and before ``end``, whichever way it is asked."""
    before, last = start - timedelta(seconds=1), end - timedelta(seconds=1)
    found = []
    following = rule.next_after(before)
    while following is not None and following < end:
        found.append(following)
        following = rule.next_after(following)
    assert found == expected, rule
    assert rule.count_between(before, last) == len(expected), rule
    for position, one in enumerate(expected):
        assert rule.last_at_or_before(one) == one, rule
        earlier = rule.last_at_or_before(one - timedelta(seconds=1))
        assert earlier == expected[position - 1] or (position == 0 and earlier != one), rule
        assert rule.count_between(before, one) == position + 1, rule


SPRING = datetime(2027, 3, 28, 1, tzinfo=UTC)
AUTUMN = datetime(2027, 10, 31, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "gap", "minutes"),
    [
        # The clock of Berlin goes from 02:00 to 03:00; minutes count from that instant.
        ("30 2 * * *", "default", [0]),
        ("30 2 * * *", "next_valid", [0]),
        ("30 2 * * *", "skip", []),
        ("0,30 2,3 * * *", "default", [0, 30]),
        ("0,30 2,3 * * *", "skip", [0, 30]),
        ("30 * * * *", "default", [-30, 30]),
        ("30 * * * *", "next_valid", [-30, 0, 30]),
        ("30 * * * *", "skip", [-30, 30]),
        ("0 */2 * * *", "default", [0, 60]),
        ("0 */2 * * *", "next_valid", [0, 60]),
        ("0 */2 * * *", "skip", [60]),
    ],
)
def test_skipped_readings_go_where_the_gap_policy_says(
    expression: str, gap: str, minutes: list[int]
) -> None:
    """R017: 28 March 2027 02:30 in Berlin moves to 03:00."""
    rule = Cron(expression, tz="Europe/Berlin", gap=gap)

    found = next_occurrences(rule, SPRING - timedelta(minutes=59), 5)

    within = [one for one in found if one <= SPRING + timedelta(minutes=60)]
    assert within == [SPRING + timedelta(minutes=minute) for minute in minutes]


@pytest.mark.parametrize(
    ("expression", "fold", "minutes"),
    [
        # The clock of Berlin goes back from 03:00 to 02:00; minutes count from that instant.
        ("30 2 * * *", "default", [-30]),
        ("30 2 * * *", "first", [-30]),
        ("30 2 * * *", "both", [-30, 30]),
        ("30 * * * *", "default", [-30, 30]),
        ("30 * * * *", "first", [-30]),
        ("30 * * * *", "both", [-30, 30]),
        ("0 3 * * *", "both", [60]),
    ],
)
def test_repeated_readings_count_as_the_fold_policy_says(
    expression: str, fold: str, minutes: list[int]
) -> None:
    """R018, R019: 31 October 2027 02:30 in Berlin fires at its first showing, or at both where that is wanted."""
    rule = Cron(expression, tz="Europe/Berlin", fold=fold)

    found = next_occurrences(rule, AUTUMN - timedelta(minutes=60), 4)

    within = [one for one in found if one <= AUTUMN + timedelta(minutes=60)]
    assert within == [AUTUMN + timedelta(minutes=minute) for minute in minutes]


def test_a_question_from_inside_the_second_showing_is_answered_by_the_next_day() -> None:
    """R018: no instant that has passed is ever the answer."""
    rule = Cron("30 2 * * *", tz="Europe/Berlin")

    assert rule.next_after(AUTUMN + timedelta(minutes=1)) == datetime(
        2027, 11, 1, 1, 30, tzinfo=UTC
    )


def test_a_half_hour_change_leaves_no_hole_in_an_hourly_rule() -> None:
    """R020: Lord Howe, forwards and back: the steps are an hour, or half of one, never ninety minutes."""
    rule = Cron("45 * * * *", tz="Australia/Lord_Howe")
    for change in (datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, 30, tzinfo=UTC)):
        found = next_occurrences(rule, change - timedelta(hours=4), 8)
        steps = {later - earlier for earlier, later in pairwise(found)}
        assert steps <= {timedelta(minutes=60), timedelta(minutes=30)}


def test_lord_howe_repeats_a_quarter_to_two_once() -> None:
    """R018: 5 April 2026 01:45 is shown twice, half an hour apart; a daily rule fires at the first."""
    rule = Cron("45 1 * * *", tz="Australia/Lord_Howe")

    found = next_occurrences(rule, datetime(2026, 4, 4, 0, tzinfo=UTC), 2)

    assert found == [
        datetime(2026, 4, 4, 14, 45, tzinfo=UTC),
        datetime(2026, 4, 5, 15, 15, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    ("tz", "summer", "winter"),
    [("Europe/Berlin", 7, 8), ("UTC", 9, 9)],
)
def test_daily_at_nine_keeps_nine_in_its_zone(tz: str, summer: int, winter: int) -> None:
    """R016, R033: local or UTC, each keeps its own over both changes."""
    rule = Cron("0 9 * * *", tz=tz)
    for month, hour in ((1, winter), (7, summer), (12, winter)):
        found = rule.next_after(datetime(2026, month, 10, tzinfo=UTC))
        assert found == datetime(2026, month, 10, hour, tzinfo=UTC)
