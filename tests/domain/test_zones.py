"""Zones: which names are accepted, and the eras of a zone's clock against the zone itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
import tzdata
from hypothesis import given, settings
from hypothesis import strategies as st

from smallage_django.domain.recurrence import (
    ClockChange,
    InvalidRule,
    clock_changes,
    resolve_zone,
    zone_data_version,
    zone_names,
)
from smallage_django.domain.zones import FIRST, LAST, era_at, first_shown, to_instant, to_seconds

NAMES = sorted(zone_names())
#: From 1970 on no zone has changed its clock twice within three days; before, it is looked at once a day.
SINCE = datetime(1970, 1, 5, tzinfo=UTC)
instants = st.integers(to_seconds(SINCE), to_seconds(datetime(2100, 1, 1, tzinfo=UTC)))


def test_every_zone_that_the_package_lists_can_be_made_from_its_file() -> None:
    for name in NAMES:
        assert resolve_zone(name) is resolve_zone(name)
        assert str(resolve_zone(name)) == name


def test_a_zone_is_read_from_the_package_and_not_from_the_system() -> None:
    """Two hosts with different system data would make two runs out of one occurrence."""
    with (files("tzdata.zoneinfo") / "America" / "Havana").open("rb") as stream:
        expected = ZoneInfo.from_file(stream)
    for month in range(1, 13):
        at = datetime(2026, month, 2, 4, 30, tzinfo=UTC)
        found = at.astimezone(resolve_zone("America/Havana"))
        assert found.replace(tzinfo=None) == at.astimezone(expected).replace(tzinfo=None)


def test_the_version_of_the_zone_data_is_the_packages() -> None:
    assert zone_data_version() == tzdata.IANA_VERSION


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Berlin", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        (" Europe/Berlin ", "Europe/Berlin"),
        ("Europe/Berlim", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("utc", "UTC"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_one_that_may_be_meant(name: str, meant: str) -> None:
    """R009, R015."""
    with pytest.raises(InvalidRule, match=f"did you mean {meant}\\?") as caught:
        resolve_zone(name)
    assert caught.value.field == "timezone"
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "Europe", "../UTC", "right/UTC", "posixrules", "localtime", "Factory", "UTC\0"]
)
def test_what_only_looks_like_a_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidRule):
        resolve_zone(name)


def test_a_very_long_name_is_refused_with_a_short_message() -> None:
    with pytest.raises(InvalidRule) as caught:
        resolve_zone("Europe/" * 100_000)
    assert len(str(caught.value)) < 200


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), seconds=instants)
def test_an_era_has_the_zones_offset_and_is_followed_by_the_next(name: str, seconds: int) -> None:
    era = era_at(name, seconds)

    assert era.start <= seconds < era.end
    assert era_at(name, era.end).start == era.end
    assert era_at(name, era.start) == era == era_at(name, era.end - 1)
    for at in (max(era.start, to_seconds(SINCE)), seconds, era.end - 1):
        instant = to_instant(at)
        assert instant is not None
        offset = instant.astimezone(resolve_zone(name)).utcoffset()
        assert offset == timedelta(seconds=era.offset)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), seconds=instants)
def test_the_first_showing_of_a_reading_is_the_one_with_fold_0(name: str, seconds: int) -> None:
    zone = resolve_zone(name)
    shown = to_instant(seconds)
    assert shown is not None
    first, second = (shown.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None
    assert second is not None

    found = first_shown(name, seconds)

    if first >= second:
        assert found == seconds - first.total_seconds()
    else:
        # In a gap: the clock shows less than the reading a second before, and more from then on.
        assert found - 1 + first.total_seconds() < seconds < found + second.total_seconds()
        assert era_at(name, found).start == found


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_the_coming_changes_of_a_clock_are_found_to_the_second(name: str) -> None:
    zone = resolve_zone(name)
    found = clock_changes(name, datetime(2020, 1, 1, tzinfo=UTC), 6)

    assert len(found) == 6
    for change in found:
        assert change.at.astimezone(zone).utcoffset() == change.after
        assert (change.at - timedelta(seconds=1)).astimezone(zone).utcoffset() == change.before
    # Between two changes in a row there is none.
    for earlier, later in pairwise(found):
        assert earlier.after == later.before


def test_the_changes_of_berlin_in_2027() -> None:
    hour = timedelta(hours=1)
    spring = ClockChange(datetime(2027, 3, 28, 1, tzinfo=UTC), hour, 2 * hour)
    autumn = ClockChange(datetime(2027, 10, 31, 1, tzinfo=UTC), 2 * hour, hour)

    assert clock_changes("Europe/Berlin", datetime(2027, 1, 1, tzinfo=UTC), 2) == [spring, autumn]
    assert clock_changes("Europe/Berlin", spring.at, 1) == [autumn]
    assert clock_changes("Europe/Berlin", spring.at - timedelta(seconds=1), 1) == [spring]


def test_a_zone_without_changes_ahead_has_none() -> None:
    after = datetime(2027, 1, 1, tzinfo=UTC)

    assert clock_changes("UTC", after, 3) == []
    assert clock_changes("Asia/Kolkata", after, 3) == []
    assert clock_changes("Europe/Berlin", datetime.max.replace(tzinfo=UTC), 3) == []
    with pytest.raises(InvalidRule):
        clock_changes("Berlin", after, 1)
    with pytest.raises(ValueError, match="aware"):
        clock_changes("UTC", datetime(2027, 1, 1), 1)  # noqa: DTZ001 - naive on purpose


def test_seconds_and_instants_are_each_others_inverse_up_to_the_ends_of_the_calendar() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    assert (to_seconds(first), to_seconds(last)) == (FIRST, LAST)
    assert to_instant(FIRST) == first
    assert to_instant(LAST) == last.replace(microsecond=0)
    assert to_instant(FIRST - 1) is None
    assert to_instant(LAST + 1) is None
    # The same end of the calendar in a zone where UTC is still, or already, beyond it.
    east = datetime.min.replace(tzinfo=resolve_zone("Asia/Tokyo"))
    assert to_seconds(east) < FIRST
    assert datetime.fromordinal(to_seconds(SINCE) // 86400) == datetime(1970, 1, 5)  # noqa: DTZ001
