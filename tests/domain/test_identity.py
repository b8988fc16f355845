"""Fire ids: the same act always has the same name, and no two acts share one."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smallage_django.domain.identity import (
    MAX_LENGTH,
    backfilled,
    enqueued,
    epoch_ms,
    from_epoch_ms,
    is_fire_id,
    manual,
    once,
    provided,
    replayed,
    scheduled,
    spread,
)

UID = uuid.UUID(int=0xABC)
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
INSTANTS = st.datetimes(timezones=st.just(UTC))


def test_an_occurrence_has_one_name_whatever_zone_it_is_written_in() -> None:
    """R003: from the instant in UTC."""
    elsewhere = NOON.astimezone(ZoneInfo("Asia/Kathmandu"))
    assert scheduled(UID, NOON) == scheduled(UID, elsewhere)
    assert scheduled(UID, NOON) == f"sched:{UID.hex}:1803902400000"


def test_both_passes_of_a_repeated_hour_differ() -> None:
    """R019."""
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2027, 10, 31, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    assert scheduled(UID, first) != scheduled(UID, second)


@given(st.uuids(), INSTANTS, st.text(max_size=30), st.integers(0, 9999))
def test_every_id_fits_its_column_and_is_known_by_its_shape(
    uid: uuid.UUID, at: datetime, key: str, number: int
) -> None:
    """Django's ``TaskResult.id`` must stay below 64 characters, the year 9999 and a provider's key included."""
    run = scheduled(uid, at)
    made = [run, provided(run, key), backfilled(run, number)]
    made += [make(uid) for make in (once, enqueued, manual, replayed)]
    assert len(set(made)) == len(made)
    for fire_id in made:
        assert len(fire_id) <= MAX_LENGTH
        assert is_fire_id(fire_id)


@pytest.mark.parametrize(
    "text",
    [
        "", "sched:", f"sched:{UID.hex}", f"sched:{UID.hex}:x", f"SCHED:{UID.hex}:1", f"task:{UID}",
        f"task:{UID.hex} ", f"task:{UID.hex}\n", f"other:{UID.hex}", f"once:{UID.hex}:1", "x" * 100,
    ],
)  # fmt: skip
def test_what_was_not_made_here_is_not_taken_for_it(text: str) -> None:
    assert not is_fire_id(text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_go_there_and_back(milliseconds: int) -> None:
    assert epoch_ms(from_epoch_ms(milliseconds)) == milliseconds


def test_milliseconds_are_rounded_down_also_before_1970() -> None:
    assert epoch_ms(datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)) == 1
    assert epoch_ms(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert epoch_ms(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0


@given(st.text(min_size=1, max_size=40), st.timedeltas(timedelta(0), timedelta(days=2)))
def test_jitter_is_between_zero_and_the_most_and_always_the_same(
    fire_id: str, most: timedelta
) -> None:
    """R029."""
    moved = spread(fire_id, most)
    assert moved == spread(fire_id, most)
    assert timedelta(0) <= moved < max(most, timedelta(milliseconds=1))


def test_jitter_spreads_many_fires_over_the_whole_interval() -> None:
    """R029, R027: a hundred in a minute, none of whose quarters is empty."""
    minute = timedelta(minutes=1)
    moved = [spread(scheduled(uuid.UUID(int=n), NOON), minute) for n in range(100)]
    assert {int(at / minute * 4) for at in moved} == {0, 1, 2, 3}


def test_keys_of_a_provider_tell_runs_of_one_occurrence_apart() -> None:
    """R032."""
    run = scheduled(UID, NOON)
    assert provided(run, "a") == provided(run, "a") != provided(run, "b")
