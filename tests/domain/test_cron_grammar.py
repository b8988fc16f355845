"""The cron dialect: what each form means, told apart from croniter; and what is refused, with which words."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smallage_django.domain.cron import ALIASES, FIELDS, Field, Spec, parse
from smallage_django.domain.recurrence import Cron, InvalidRule

DAY_OF_WEEK = FIELDS[4]


def tried(text: str) -> Spec | InvalidRule:
    """What a text means, or why it is refused."""
    try:
        return parse(text, "k")
    except InvalidRule as refusal:
        return refusal


def expand(text: str, field: Field) -> set[int]:
    """The values of a field by the table of E3, for numbers alone; Sunday is 0."""
    values: set[int] = set()
    for element in text.split(","):
        body, _, step = element.partition("/")
        low, _, high = body.partition("-")
        if body == "*":
            span = list(range(field.low, field.high + (field is not DAY_OF_WEEK)))
        elif high and int(low) > int(high):
            span = [*range(int(low), field.high + 1), *range(field.low, int(high) + 1)]
        elif high:
            span = list(range(int(low), int(high) + 1))
        else:
            span = list(range(int(low), field.high + 1)) if step else [int(low)]
        values.update(span[:: int(step or 1)])
    return {value % 7 for value in values} if field is DAY_OF_WEEK else values


@st.composite
def elements(draw: st.DrawFn, field: Field) -> str:
    """A valid element of plain numbers."""
    low, high = draw(st.integers(field.low, field.high)), draw(st.integers(field.low, field.high))
    step = draw(st.integers(1, field.high))
    same = low == high or (field is DAY_OF_WEEK and {low, high} == {0, 7})
    shapes = [f"{low}", f"{low:03}", f"*/{step}"]
    if not same:
        shapes += [f"{low}-{high}", f"{min(low, high)}-{max(low, high)}/{step}"]
    if field is not DAY_OF_WEEK:
        shapes.append(f"{low}/{step}")
    return draw(st.sampled_from(shapes))


@st.composite
def fields(draw: st.DrawFn, field: Field) -> str:
    several = draw(st.lists(elements(field), min_size=1, max_size=4))
    return draw(st.sampled_from(["*", ",".join(several), several[0]]))


@settings(max_examples=200, deadline=None)
@given(st.tuples(*(fields(field) for field in FIELDS)))
def test_each_form_means_what_the_table_says(texts: tuple[str, ...]) -> None:
    """R021: lists, ranges that rise and wrap, steps and starts, Sunday as 0 and 7."""
    spec = tried(" ".join(texts))
    if isinstance(spec, InvalidRule):
        # A short list of days that its months do not have is all that can be wrong with it.
        assert "no date matches" in str(spec)
        return
    expected = [expand(text, field) for text, field in zip(texts, FIELDS, strict=True)]
    found = [spec.minutes, spec.hours, spec.days, spec.months, spec.weekdays]
    assert [set(values) for values in found] == expected
    assert spec.both == (texts[2][0] == "*" or texts[4][0] == "*")
    assert spec.interval == ("*" in texts[1] or "/" in texts[1] or len(expected[1]) == 24)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("\t0  0 * * MON ", "0 0 * * 1"),
        ("05 08 09 jan,JUL *", "5 8 9 1,7 *"),
        ("0 0 * * 7", "0 0 * * 7"),
        ("0 0 L * *", "0 0 L * *"),
        ("0 0 * * fri#02", "0 0 * * 5#2"),
        ("0 0 * * l7", "0 0 * * L0"),
        ("59/30 * * * *", "59 * * * *"),
        ("@DAILY", "0 0 * * *"),
        ("#weekly", "{} {} * * {}"),
    ],
)
def test_what_was_written_has_a_plain_form(written: str, plain: str) -> None:
    """R021, R028: the plain form is for people and for descriptions; a rule keeps what was written."""
    rule = Cron(written, key="k")

    pattern = re.escape(plain).replace(r"\{\}", r"\d+")
    assert re.fullmatch(pattern, rule.resolved)
    assert rule.expression == written


@pytest.mark.parametrize(
    ("expression", "interval"),
    [
        ("* * * * *", True),
        ("*/15 * * * *", True),
        ("30 * * * *", True),
        ("@hourly", True),
        ("#hourly", True),
        ("0 */2 * * *", True),
        ("0 1-23/2 * * *", True),
        ("0 2/6 * * *", True),
        ("30 0-23 * * *", True),
        ("0 12-11 * * *", True),
        ("30 2 * * *", False),
        ("@daily", False),
        ("#daily", False),
        ("0 0,12 * * *", False),
        ("*/15 2 * * *", False),
        ("* 2 * * *", False),
        ("0 0-6 * * *", False),
        ("30 22-4 * * *", False),
    ],
)
def test_the_hours_decide_whether_a_rule_is_an_interval_rule(
    expression: str, interval: bool
) -> None:
    assert Cron(expression, key="k").is_interval is interval


def test_the_aliases_are_what_they_stand_for() -> None:
    """R021, R028."""
    for alias, expression in ALIASES.items():
        assert Cron(alias, key="k").resolved == Cron(expression, key="k").resolved


def test_a_hashed_pick_never_changes_between_processes_and_versions() -> None:
    """R027: these are values of SHA-256; a schedule that moved by an upgrade would be a surprise."""
    picks = {key: Cron("# # # # #", key=key).resolved for key in ("a", "nightly-reindex")}

    assert picks == {"a": "27 22 10 6 1", "nightly-reindex": "47 17 1 6 2"}


def test_a_hashed_field_is_picked_by_itself() -> None:
    """R027: what is beside it does not move it."""
    one, other = Cron("# 3 * * 1-5", key="a"), Cron("# # 1 * *", key="a")

    assert one.resolved.split()[0] == other.resolved.split()[0]
    assert one.resolved.split()[1:] == ["3", "*", "*", "1-5"]


@pytest.mark.parametrize(
    ("expression", "field", "parts"),
    [
        ("61 2 * * *", "minute", ["minute", "'61'", "0-59"]),
        ("0,61 2 * * *", "minute", ["'61'", "0-59"]),
        ("0 2-25 * * *", "hour", ["'25'", "0-23", "'2-25'"]),
        ("0 0 * 13 *", "month", ["'13'", "1-12 or JAN-DEC"]),
        ("0 0 * * 8", "day of week", ["'8'", "0-7 or SUN-SAT"]),
        ("*/90 * * * *", "minute", ["step 90", "1-59"]),
        ("5-5 * * * *", "minute", ["'5-5'", "write 5 alone"]),
        ("0 0 * * SUN-SUN", "day of week", ["write SUN alone"]),
        ("0 22-4/2 * * *", "hour", ["wraps", "list the values"]),
        ("0 0 * * 1/2", "day of week", ["one day", "1-5/2"]),
        ("*,5 * * * *", "minute", ["* alone"]),
        ("1,,2 * * * *", "minute", ["empty element"]),
        ("0 0 ? * *", "day of month", ["'?'", "write *"]),
        ("0 0 LW * *", "day of month", ["'LW'", "L, the last"]),
        ("0 0 15W * *", "day of month", ["'15W'", "L, the last"]),
        ("0 0 1-L * *", "day of month", ["'1-L'"]),
        ("0 0 * * 5L", "day of week", ["L5"]),
        ("0 0 * * LFRI", "day of week", ["L5"]),
        ("0 0 * * 1-5#2", "day of week", ["1#2,3#2"]),
        ("0 0 * * MON#6", "day of week", ["'MON#6'", "1-5"]),
        ("0 0 * * 1,5#3", "day of week", ["mixes", "two schedules"]),
        ("0 0 * * MONDAY", "day of week", ["write MON"]),
        ("H * * * *", "minute", ["write #"]),
        ("R * * * *", "minute", ["write #"]),
        ("#/5 * * * *", "minute", ["# or #(a-b)"]),
        ("#(0-60) * * * *", "minute", ["0-59"]),
        ("* * *", "expression", ["3 fields", "5 expected", "minute, hour, day of month, month"]),
        ("*", "expression", ["1 field,"]),
        ("", "expression", ["no fields"]),
        ("0 0 * * * *", "expression", ["6 fields", "seconds"]),
        ("0 0 30 2 *", "expression", ["no date matches", "30", "month 2"]),
        ("0 0 31 2 */2", "expression", ["no date matches", "31", "month 2", "*/2"]),
        ("@reboot", "expression", ["'@reboot'", "no time"]),
        ("@every 5m", "expression", ["interval"]),
        ("@fortnightly", "expression", ["'@fortnightly'", "@daily"]),
        ("CRON_TZ=UTC 0 0 * * *", "expression", ["'CRON_TZ=UTC'", "time zone"]),
        ("0 0\n* * *", "expression", [r"'\n'", "position 4"]),
        ("*" * 256, "expression", ["256 characters", "255"]),
    ],
)
def test_a_refusal_names_the_field_the_value_and_the_mend(
    expression: str, field: str, parts: list[str]
) -> None:
    """R009, R010."""
    with pytest.raises(InvalidRule) as caught:
        Cron(expression, key="k")

    assert caught.value.field == field
    for part in [*parts, field if field != "expression" else ""]:
        assert part in str(caught.value)


def test_a_hashed_field_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidRule, match=r"minute .*key"):
        Cron("# * * * *")


def test_a_rule_of_the_longest_length_is_read() -> None:
    """255 characters are allowed, spaces included."""
    text = "0 0 * * *".ljust(255)

    assert Cron(text).resolved == "0 0 * * *"
    with pytest.raises(InvalidRule, match="256 characters"):
        Cron(text + " ")


PIECES = ["*", "/", "-", ",", "#", "(", ")", "L", "W", "?", "H", "R", "@", " ", "\t", "=", "_", "."]
WORDS = ["0", "1", "5", "7", "23", "31", "59", "60", "MON", "jan", "daily", "L5", "9" * 40]


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.lists(st.sampled_from(PIECES + WORDS), max_size=40).map("".join),
        st.lists(
            st.lists(st.sampled_from(PIECES[:10] + WORDS), min_size=1, max_size=6).map("".join),
            min_size=5,
            max_size=5,
        ).map(" ".join),
        st.text(max_size=300),
    )
)
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    """Nor does a message of croniter, or a path, reach a user."""
    began = time.process_time()

    spec = tried(text)

    assert time.process_time() - began < 0.05
    if isinstance(spec, InvalidRule):
        assert spec.field in {*(field.name for field in FIELDS), "expression"}
        # The grammar lets nothing pass that croniter cannot read.
        assert "cannot be read" not in str(spec)
        assert "Traceback" not in str(spec)
    else:
        assert parse(spec.text, None).text == spec.text
