"""What holds for every rule: strictly later, never repeating, the same list from any start, bounded time.

The oracle here enumerates a window minute by minute in UTC and knows nothing of the walk: it asks what the clock
shows, and moves skipped readings as the rules say.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import time
from collections.abc import Callable
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
    Rule,
    clock_changes,
    next_occurrences,
    resolve_zone,
    zone_data_version,
)

MINUTE = timedelta(minutes=1)
#: A zone, and an instant shortly before a change of its clock.
CHANGES = [
    ("Europe/Berlin", "2027-03-27T12:00:00Z"),
    ("Europe/Berlin", "2027-10-30T12:00:00Z"),
    ("Australia/Lord_Howe", "2027-04-03T06:00:00Z"),
    ("Australia/Lord_Howe", "2027-10-02T06:00:00Z"),
    ("Antarctica/Troll", "2027-03-27T18:00:00Z"),
    ("Antarctica/Troll", "2027-10-30T18:00:00Z"),
    ("Antarctica/Casey", "2020-03-07T06:00:00Z"),
    ("Pacific/Apia", "2011-12-29T12:00:00Z"),
    ("Pacific/Kwajalein", "1993-08-20T00:00:00Z"),
    ("America/Havana", "2025-03-09T00:00:00Z"),
    ("America/Havana", "2025-11-02T00:00:00Z"),
    ("Africa/Cairo", "2026-04-23T12:00:00Z"),
    ("Africa/Cairo", "2026-10-29T12:00:00Z"),
    ("America/St_Johns", "2009-10-31T18:00:00Z"),
    ("America/St_Johns", "2009-03-07T18:00:00Z"),
    ("Europe/Dublin", "2026-10-24T18:00:00Z"),
    ("Africa/Casablanca", "2026-02-14T18:00:00Z"),
    ("America/Caracas", "2016-04-30T20:00:00Z"),
    ("Asia/Pyongyang", "2015-08-14T10:00:00Z"),
]
#: An expression, whether its hours make it an interval rule, and what it names, written again by hand.
RULES: list[tuple[str, bool, Callable[[datetime], bool]]] = [
    ("* * * * *", True, lambda _: True),
    ("*/15 * * * *", True, lambda at: at.minute % 15 == 0),
    ("45 * * * *", True, lambda at: at.minute == 45),
    ("0 */2 * * *", True, lambda at: at.minute == 0 and at.hour % 2 == 0),
    ("0 */3 * * *", True, lambda at: at.minute == 0 and at.hour % 3 == 0),
    ("0 1-23/2 * * *", True, lambda at: at.minute == 0 and at.hour % 2 == 1),
    ("30 2 * * *", False, lambda at: (at.hour, at.minute) == (2, 30)),
    ("0 0 * * *", False, lambda at: (at.hour, at.minute) == (0, 0)),
    ("*/15 2 * * *", False, lambda at: at.hour == 2 and at.minute % 15 == 0),
    ("15 1,2 * * *", False, lambda at: at.hour in (1, 2) and at.minute == 15),
    ("0 22-4 * * *", False, lambda at: at.minute == 0 and (at.hour >= 22 or at.hour <= 4)),
    ("30 23 * * *", False, lambda at: (at.hour, at.minute) == (23, 30)),
]


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)


def oracle(
    zone_name: str, interval: bool, names: Callable[[datetime], bool], start: datetime, hours: int
) -> list[datetime]:
    """All occurrences later than ``start`` within so many hours, minute by minute of real time."""
    zone = resolve_zone(zone_name)
    found: set[datetime] = set()
    previous: datetime | None = None
    at = start - timedelta(days=2)
    end = start + timedelta(hours=hours)
    while at <= end:
        shown = at.astimezone(zone)
        reading = shown.replace(tzinfo=None, fold=0)
        if names(reading) and (interval or not shown.fold):
            found.add(at)
        if previous is not None:
            skipped = previous + MINUTE
            length = reading - skipped
            while skipped < reading:
                if names(skipped) and not (interval and names(skipped + length)):
                    found.add(at)
                skipped += MINUTE
        previous = max(reading, previous) if previous and reading < previous else reading
        at += MINUTE
    return sorted(instant for instant in found if start < instant <= end)


@pytest.mark.parametrize(("zone", "start"), CHANGES, ids=[f"{z}-{s[:10]}" for z, s in CHANGES])
def test_around_every_change_of_clock_the_walk_agrees_with_counting_minutes(
    zone: str, start: str
) -> None:
    """R018, R020."""
    begin = parse(start)
    for expression, interval, names in RULES:
        expected = oracle(zone, interval, names, begin, 60)
        rule = Cron(expression, zone)
        assert next_occurrences(rule, begin, len(expected)) == expected, expression
        end = begin + timedelta(hours=60)
        assert rule.count_between(begin, end) == len(expected), expression
        if expected:
            assert rule.last_at_or_before(end) == expected[-1], expression


@pytest.mark.parametrize(("zone", "start"), CHANGES, ids=[f"{z}-{s[:10]}" for z, s in CHANGES])
def test_the_list_is_the_same_from_every_minute_around_a_change(zone: str, start: str) -> None:
    begin = parse(start)
    for expression, _, _ in RULES[1:]:
        rule = Cron(expression, zone)
        whole = next_occurrences(rule, begin, 200)
        for minutes in range(0, 40 * 60, 7):
            asked = begin + minutes * MINUTE + timedelta(seconds=minutes % 60)
            later = [at for at in whole if at > asked]
            assert rule.next_after(asked) == later[0], (expression, asked)


fields = st.tuples(
    st.sampled_from(["*", "*/7", "0", "30", "5,35", "#"]),
    st.sampled_from(["*", "*/5", "2", "0-6", "22-4", "#", "1,13"]),
    st.sampled_from(["*", "1", "L", "1-7", "28-3", "*/9", "31", "#"]),
    st.sampled_from(["*", "2", "NOV-FEB", "*/5", "1-12", "#"]),
    st.sampled_from(["*", "MON", "FRI-MON", "1#2", "L5", "0-7", "*/3", "#"]),
)
zones = st.sampled_from(sorted({zone for zone, _ in CHANGES} | {"UTC", "Asia/Kolkata"}))
instants = st.datetimes(
    min_value=datetime(1995, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2060, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
units = st.sampled_from(["seconds", "minutes", "hours", "days", "weeks", "months", "years"])


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    zone = draw(zones)
    if draw(st.booleans()):
        every: dict[str, Any] = {draw(units): draw(st.integers(1, 400))}
        return Every(**every, tz=zone, anchor=draw(instants))
    gap = draw(st.sampled_from(["default", "next_valid", "skip"]))
    fold = draw(st.sampled_from(["default", "first", "both"]))
    try:
        return Cron(
            " ".join(draw(fields)), zone, key=str(draw(st.integers(0, 99))), gap=gap, fold=fold
        )
    except InvalidRule:
        return Cron("0 0 * * *", zone)


@settings(max_examples=300, deadline=None)
@given(rule=rules(), after=instants)
def test_every_answer_is_strictly_later_and_none_repeats(rule: Rule, after: datetime) -> None:
    found = next_occurrences(rule, after, 12)
    assert all(later > earlier for earlier, later in pairwise([after, *found]))


@settings(max_examples=200, deadline=None)
@given(rule=rules(), after=instants, part=st.floats(0, 1))
def test_the_list_does_not_depend_on_where_one_starts(
    rule: Rule, after: datetime, part: float
) -> None:
    whole = next_occurrences(rule, after, 10)
    if len(whole) < 2:
        return
    between = after + (whole[-1] - after) * part
    assert next_occurrences(rule, between, 10)[: len([w for w in whole if w > between])] == [
        at for at in whole if at > between
    ]


@settings(max_examples=200, deadline=None)
@given(rule=rules(), after=instants)
def test_counting_and_looking_back_agree_with_the_list(rule: Rule, after: datetime) -> None:
    found = next_occurrences(rule, after, 15)
    for number, at in enumerate(found, 1):
        assert rule.count_between(after, at) == number
        assert rule.last_at_or_before(at) == at
        assert rule.count_between(at - timedelta(microseconds=1), at) == 1
    for earlier, later in pairwise(found):
        assert rule.last_at_or_before(later - timedelta(microseconds=1)) == earlier


@settings(max_examples=50, deadline=None)
@given(rule=rules(), after=instants)
def test_more_time_asked_never_yields_fewer_occurrences(rule: Rule, after: datetime) -> None:
    counts = [rule.count_between(after, after + timedelta(days=days)) for days in (0, 1, 7, 40)]
    assert counts == sorted(counts)


@settings(max_examples=50, deadline=None)
@given(rule=rules())
def test_a_rule_is_a_value(rule: Rule) -> None:
    assert pickle.loads(pickle.dumps(rule)) == rule == copy.deepcopy(rule)
    assert hash(copy.deepcopy(rule)) == hash(rule)


HOSTILE = [
    "0 0 29 2 */7",
    "0 0 * 2 MON#5",
    "0 0 1-7 * L0,L1,L2,L3,L4,L5,L6",
    "0 0 1 * 1#2,2#2,3#2",
    "0 0 31 2 MON",
    "*/59 */23 31 12 *",
    ",".join(["0"] * 120) + " * * * *",
    ",".join(str(n) for n in range(60)) + " * * * *",
    "0," * 20_000,
    "mon-fri#1 " * 3_000,
    " " * 1_000_000,
    "9" * 5_000 + " * * * *",
    "0 0 30 2 *",
    "0 0 31 2,4,6,9,11 *",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_is_answered_or_refused_in_bounded_time(text: str) -> None:
    """Under 50 ms; the best of five, since other programs share the machine."""

    def once() -> float:
        began = time.perf_counter()
        with contextlib.suppress(InvalidRule):  # a refusal is an answer too
            Cron(text, "Europe/Berlin").next_after(datetime(2027, 1, 1, tzinfo=UTC))
        return time.perf_counter() - began

    assert min(once() for _ in range(5)) < 0.05


def test_a_minutely_rule_that_was_off_for_a_year_is_counted_in_no_time() -> None:
    rule = Cron("* * * * *", "Europe/Berlin")
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    began = time.perf_counter()
    assert rule.count_between(start, end) == 525_600
    assert time.perf_counter() - began < 0.05


@pytest.mark.parametrize(("gap", "expected"), [("default", 23), ("next_valid", 24), ("skip", 23)])
def test_what_becomes_of_a_skipped_reading_can_be_chosen(gap: str, expected: int) -> None:
    """R019's other half: on the 23-hour day, an hourly rule at half past."""
    rule = Cron("30 * * * *", "Europe/Berlin", gap=gap)
    midnight = datetime(2027, 3, 27, 23, 0, tzinfo=UTC)
    assert rule.count_between(midnight, midnight + timedelta(hours=23)) == expected


@pytest.mark.parametrize(("fold", "expected"), [("default", 1), ("first", 1), ("both", 2)])
def test_both_showings_of_a_repeated_reading_can_be_chosen(fold: str, expected: int) -> None:
    """R019."""
    rule = Cron("30 2 * * *", "Europe/Berlin", fold=fold)
    midnight = datetime(2027, 10, 30, 22, 0, tzinfo=UTC)
    assert rule.count_between(midnight, midnight + timedelta(hours=25)) == expected


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_ends_of_the_calendar_are_no_error(at: datetime) -> None:
    for rule in (
        Cron("0 0 * * *", "Pacific/Kiritimati"),
        Cron("* * * * *", "America/Los_Angeles"),
        Every(days=1, anchor=datetime(2027, 1, 1, tzinfo=UTC), tz="Europe/Berlin"),
        Every(seconds=1, anchor=datetime(2027, 1, 1, tzinfo=UTC)),
    ):
        found = [rule.next_after(at), rule.last_at_or_before(at)]
        assert all(answer is None or isinstance(answer, datetime) for answer in found)
    assert Cron("* * * * *").next_after(datetime.max.replace(tzinfo=UTC)) is None


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        Cron("* * * * *").next_after(datetime(2027, 1, 1))  # noqa: DTZ001 - naive on purpose


def test_a_day_is_a_day_and_24_hours_are_24_hours() -> None:
    """R023: exact time and calendar time part at a change of clock."""
    anchor = datetime(2027, 3, 27, 8, 0, tzinfo=UTC)  # 09:00 in Berlin
    exact = Every(hours=24, tz="Europe/Berlin", anchor=anchor).next_after(anchor)
    calendar = Every(days=1, tz="Europe/Berlin", anchor=anchor).next_after(anchor)
    assert (exact, calendar) == (anchor + timedelta(hours=24), anchor + timedelta(hours=23))


def test_the_next_changes_of_a_clock_are_told() -> None:
    first, second = clock_changes("Europe/Berlin", datetime(2027, 1, 1, tzinfo=UTC), 2)
    assert first.at == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
    assert second.at == datetime(2027, 10, 31, 1, 0, tzinfo=UTC)
    assert (first.after, second.after) == (timedelta(hours=2), timedelta(hours=1))
    assert clock_changes("UTC", datetime(2027, 1, 1, tzinfo=UTC), 2) == []


def test_the_zone_data_in_use_is_known() -> None:
    assert zone_data_version()[:4].isdigit()
