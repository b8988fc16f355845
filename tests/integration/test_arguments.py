"""Arguments against signatures, and against what JSON and three databases can hold."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional

import pytest
from django.db import models

from smallage_django import arguments
from smallage_django.errors import InvalidArguments, UnserialisableArgument
from smallage_django.models import DelayedRun, Run
from tests.app import tasks
from tests.support.fake_broker import FakeBroker

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

ClassId = NewType("ClassId", int)


class Level(models.IntegerChoices):
    LOW = 1
    HIGH = 2


class Colour(enum.StrEnum):
    RED = "red"


def plain(a: int, b: str = "x") -> None: ...


def rich(  # noqa: PLR0917
    number: float = 0.0,
    flag: bool = False,
    maybe: int | None = None,
    old: Optional[str] = None,  # noqa: UP045 - the older spelling is the test
    many: list[int] = [],  # noqa: B006
    table: dict[str, int] = {},  # noqa: B006
    some: Sequence[str] = (),
    mapping: Mapping[str, Any] = {},
    pair: tuple[int, str] = (1, "a"),
    series: tuple[int, ...] = (),
    word: Literal["day", "week", 3] = "day",
    noted: Annotated[int, "minutes"] = 0,
    class_id: ClassId = ClassId(0),
    anything: Any = None,
    amount: Decimal = Decimal(0),
) -> None: ...


def keyword_only(*, a: int) -> None: ...


def open_ended(first: int, *rest: int, **more: str) -> None: ...


def with_context(context: Any, a: int) -> None: ...


def half_known(a: int, b: Unknown) -> None: ...


def positional_only(a: int, /, **more: int) -> None: ...


def check(func: Any, *args: Any, **kwargs: Any) -> arguments.Call:
    return arguments.checked(func, False, args, kwargs)


@pytest.mark.parametrize(
    ("func", "args", "kwargs"),
    [
        (plain, [1], {}),
        (plain, [], {"a": 1, "b": "y"}),
        (plain, [1, "y"], {}),
        (rich, [], {"number": 3}),
        (rich, [], {"number": 3.5, "flag": True, "maybe": None, "old": "text"}),
        (rich, [], {"many": [1, 2], "table": {"a": 1}, "some": ("a", "b"), "mapping": {"a": None}}),
        (rich, [], {"pair": (1, "b"), "series": [1, 2, 3], "word": 3, "noted": 5, "class_id": 9}),
        (rich, [], {"anything": [1, {"a": None}], "amount": "12.50"}),
        (keyword_only, [], {"a": 1}),
        (open_ended, [1, 2, 3], {"x": "y"}),
        (half_known, [1, "whatever"], {}),
        (positional_only, [1], {"a": 2}),
    ],
)
def test_what_fits_is_accepted(func: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    call = check(func, *args, **kwargs)

    assert json.loads(json.dumps([call.args, call.kwargs])) == [call.args, call.kwargs]


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "argument", "words"),
    [
        (plain, [], {}, "a", "argument 'a' is missing; accepted arguments: a: int, b: str = 'x'"),
        (plain, [1], {"c": 1}, "c", "there is no argument 'c'"),
        (plain, [1], {"a": 1}, "a", "'a' was given twice"),
        (plain, [1, "x", 3], {}, None, "3 positional arguments were given, it takes 2"),
        (plain, ["1"], {}, "a", "argument 'a' is '1' (str), it must be int"),
        (plain, [True], {}, "a", "(bool), it must be int"),
        (plain, [1.0], {}, "a", "(float), it must be int"),
        (plain, [1, None], {}, "b", "'b' is None, it must be str"),
        (rich, [], {"number": "3"}, "number", "it must be float"),
        (rich, [], {"number": True}, "number", "it must be float"),
        (rich, [], {"flag": 1}, "flag", "it must be bool"),
        (rich, [], {"maybe": "1"}, "maybe", "it must be int | None"),
        (rich, [], {"old": 1}, "old", "str"),
        (rich, [], {"many": [1, "2"]}, "many", "it must be list[int]"),
        (rich, [], {"many": {"a": 1}}, "many", "it must be list[int]"),
        (rich, [], {"table": {"a": "1"}}, "table", "it must be dict[str, int]"),
        (rich, [], {"some": "text"}, "some", "Sequence[str]"),
        (rich, [], {"mapping": [1]}, "mapping", "Mapping[str, Any]"),
        (rich, [], {"series": [1, "2"]}, "series", "tuple[int, ...]"),
        (rich, [], {"word": "month"}, "word", "Literal['day', 'week', 3]"),
        (rich, [], {"noted": "5"}, "noted", "int"),
        (rich, [], {"class_id": "9"}, "class_id", "ClassId"),
        (keyword_only, [1], {}, None, "1 positional arguments were given, it takes 0"),
        (open_ended, [1, 2, "3"], {}, "*rest", "it must be int"),
        (open_ended, [1], {"x": 1}, "x", "it must be str"),
        (half_known, ["1", 1], {}, "a", "it must be int"),
        (positional_only, [], {"a": 1}, "a", "'a' is missing"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    func: Any, args: list[Any], kwargs: dict[str, Any], argument: str | None, words: str
) -> None:
    """R011."""
    with pytest.raises(InvalidArguments) as caught:
        check(func, *args, **kwargs)

    assert caught.value.argument == argument
    assert words in str(caught.value)


def test_the_context_is_not_an_argument() -> None:
    assert arguments.checked(with_context, True, (1,), {}).args == [1]
    assert arguments.describe(with_context, True) == "a: int"
    with pytest.raises(InvalidArguments, match="no argument 'context'"):
        arguments.checked(with_context, True, (1,), {"context": None})


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        ([{"deep": -math.inf}], "-inf"),
        ("a\0b", "NUL"),
        ({"a\0": 1}, "NUL"),
        ("\ud800", "surrogate"),
        ({1: "a"}, "only text as keys"),
        ({None: "a"}, "only text as keys"),
        (2**5000, "too large"),
        (nested(arguments.DEEPEST + 1), "nested deeper than 30"),
    ],
)
def test_what_json_or_a_database_cannot_hold_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InvalidArguments, match="'anything'") as caught:
        check(rich, anything=value)

    assert words in str(caught.value)
    assert caught.value.argument == "anything"


@pytest.mark.parametrize("value", [object(), {1, 2}, Decimal(1), b"\xff", plain, Run()])
def test_other_types_are_a_type_error_as_in_the_framework(value: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported") as caught:
        check(rich, anything=[value])

    assert isinstance(caught.value, UnserialisableArgument)
    assert caught.value.argument == "anything"


def test_kinds_of_text_and_number_become_plain() -> None:
    call = check(rich, anything=[Level.HIGH, Colour.RED, b"text", (1, 2)])

    assert call.kwargs["anything"] == [2, "red", "text", [1, 2]]
    assert [type(value) for value in call.kwargs["anything"]] == [int, str, str, list]


def test_the_caller_keeps_what_it_gave() -> None:
    given = {"a": [1]}
    call = check(rich, anything=given)
    given["a"].append(2)

    assert call.kwargs["anything"] == {"a": [1]}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "value",
    [
        nested(arguments.DEEPEST),
        2**arguments._MOST_BITS - 1,
        -(2**63),
        2.5e-300,
        5e-324,
        "\x01\x1f\x7f\u2028 \\ \" ' % 🙂",
        {"": {"a.b": [None, True]}},
    ],
)
def test_whatever_is_accepted_can_be_stored(value: Any, fake_broker: FakeBroker) -> None:
    call = check(rich, anything=value)
    row = DelayedRun(task="x", run_at="2030-01-01T00:00:00Z", kwargs=call.kwargs)

    row.save()

    assert DelayedRun.objects.get().kwargs == {"anything": value}


@pytest.mark.parametrize(
    ("path", "args", "kwargs", "payload"),
    [
        ("tests.app.tasks.add", [], {}, {}),
        ("tests.app.tasks.add", [1], {"b": 2}, {"a": 1, "b": 2}),
        ("tests.app.tasks.record", ["k"], {}, {"key": "k"}),
        ("tests.app.tasks.add", [1, 2, 3], {}, {"a": 1, "b": 2, "*": [3]}),
        ("no.such.task", [1], {"b": 2}, {"*": [1], "b": 2}),
        ("no.such.task", [], {"b": "ü"}, {"b": "ü"}),
    ],
)
def test_the_payload_names_arguments(
    path: str, args: list[Any], kwargs: dict[str, Any], payload: dict[str, Any]
) -> None:
    text = arguments.payload_of(path, args, kwargs)

    assert json.loads(text) == payload
    assert b" " not in text


def test_signatures_are_read_once() -> None:
    arguments._signature_of.cache_clear()
    for _ in range(3):
        arguments.checked(tasks.add.func, False, (1, 2), {})

    assert arguments._signature_of.cache_info().misses == 1
