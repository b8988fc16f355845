"""Every case of the banks: when a rule fires, what is accepted, and which field a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from smallage_django.domain.recurrence import (
    Cron,
    Every,
    InvalidRule,
    next_occurrences,
    resolve_zone,
)
from tests.support.cases import BANKS, COPY, SHARED, bank, instant, written


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


@pytest.mark.parametrize("name", BANKS)
def test_the_copy_is_the_shared_bank(name: str) -> None:
    copy = (COPY / f"{name}.json").read_text(encoding="utf-8")
    original = SHARED / f"{name}.json"
    assert copy == (original.read_text(encoding="utf-8") if original.exists() else copy)


@named(bank("cron"))
def test_a_cron_rule_fires_when_the_bank_says(case: dict[str, Any]) -> None:
    """R016, R017, R018, R020, R021."""
    rule = Cron(case["expression"], case["timezone"], key=case.get("key"))
    after = instant(case["after"])
    assert after is not None
    found = [written(at) for at in next_occurrences(rule, after, len(case["next"]))]
    assert found == case["next"]


@named(bank("interval"))
def test_an_interval_fires_when_the_bank_says(case: dict[str, Any]) -> None:
    """R022, R023, R024, R025: exact, on the calendar, clipped to the month, and complete up to its inclusive end."""
    rule = Every(
        **case["every"],
        tz=case["timezone"],
        anchor=instant(case["anchor"]),
        until=instant(case["until"]),
    )
    after = instant(case["after"])
    assert after is not None
    wanted = len(case["next"]) + (1 if case["until"] else 0)
    assert [written(at) for at in next_occurrences(rule, after, wanted)] == case["next"]


def build(case: dict[str, Any]) -> None:
    if case["kind"] == "expression":
        Cron(case["input"], key="any")
    elif case["kind"] == "timezone":
        resolve_zone(case["input"])
    else:
        Every(**case["input"])


VALIDATION = bank("cron-validation")


@named([case for case in VALIDATION if case["valid"]])
def test_it_accepts_what_the_bank_accepts(case: dict[str, Any]) -> None:
    build(case)


@named([case for case in VALIDATION if not case["valid"]])
def test_it_refuses_what_the_bank_refuses_and_names_the_field(case: dict[str, Any]) -> None:
    """R009, R010."""
    kinds = {"expression": "expression", "timezone": "timezone", "interval": "interval"}
    with pytest.raises(InvalidRule) as caught:
        build(case)
    told = case.get("field")
    if told is None:
        assert caught.value.field in {kinds[case["kind"]], "minute", "hour"}
    else:
        assert caught.value.field == told
        assert told in str(caught.value)


@named(bank("cron-hashed"))
def test_hashed_fields_are_stable_spread_and_within_their_range(case: dict[str, Any]) -> None:
    """R027, R028."""
    fields = ("minute", "hour", "day of month", "month", "day of week")
    seen: dict[str, set[Any]] = {name: set() for name in case["min_distinct"]}
    for number in range(case["keys"]):
        key = case["key_pattern"].format(n=number)
        picked = picks(case["expression"], key)
        if number < 100:
            assert picked == picks(case["same_as"], key)
        values = dict(zip(fields, picked, strict=True))
        for name, (low, high) in case["ranges"].items():
            assert low <= values[name] <= high
        for name, found in seen.items():
            found.add(tuple(values[part] for part in name.split("+")))
    for name, least in case["min_distinct"].items():
        assert len(seen[name]) >= least, name


def picks(expression: str, key: str) -> list[int]:
    """What each field of the resolved expression begins with; -1 for a star."""
    fields = Cron(expression, key=key).resolved.split()
    return [int(text.split("-")[0]) if text[0].isdigit() else -1 for text in fields]


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("61 2 * * *", ("minute", "61", "0-59")),
        ("* * *", ("3 fields", "5 expected", "minute, hour, day of month, month, day of week")),
        ("0 0 30 2 *", ("no date matches", "30", "2")),
        ("0 0 ? * *", ("day of month", "?")),
        ("0 22-4/2 * * *", ("hour", "wraps")),
    ],
)
def test_a_refusal_names_the_value_and_the_mend(expression: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRule) as caught:
        Cron(expression)
    for part in parts:
        assert part in str(caught.value)


def test_an_unknown_zone_is_refused_with_the_one_that_may_be_meant() -> None:
    for name in ("Berlin", "europe/berlin", "Europe/Berlim"):
        with pytest.raises(InvalidRule, match="Europe/Berlin"):
            resolve_zone(name)


def test_a_hashed_field_needs_a_key() -> None:
    with pytest.raises(InvalidRule, match="key"):
        Cron("# * * * *")


def test_an_interval_without_an_anchor_cannot_answer() -> None:
    after = instant("2026-05-05T10:00:00Z")
    assert after is not None
    with pytest.raises(InvalidRule, match="anchor"):
        Every(minutes=5).next_after(after)
