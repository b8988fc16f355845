"""Arguments against a task's signature: what cannot be called, or cannot be stored, is refused before any row exists.

The check of names and annotated types reads the function once. JSON's own limits are checked with it: a value that
SQLite, PostgreSQL or MariaDB would refuse must not fail inside the caller's transaction.
"""

from __future__ import annotations

import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NewType, Union

from .errors import InvalidArguments, UnknownTask, UnserialisableArgument

#: MariaDB's JSON columns refuse more than 32 levels, the one of the arguments themselves included.
DEEPEST: Final = 30
#: Python turns no longer number into text.
_MOST_BITS: Final = 4096

#: The ``type`` statement of Python 3.12.
_ALIAS: Final[Any] = getattr(typing, "TypeAliasType", ())

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Call:
    """Checked arguments, as JSON will give them back."""

    args: list[Any]
    kwargs: dict[str, Any]


def checked(
    func: Callable[..., Any], takes_context: bool, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Call:
    """The arguments in JSON's types. Raises ``InvalidArguments`` naming the argument and what it may be."""
    signature = _signature_of(func, takes_context)
    names = signature.positional
    plain_args = [
        _plain(value, names[at] if at < len(names) else f"argument {at + 1}", 1)
        for at, value in enumerate(args)
    ]
    plain_kwargs = {}
    for name, value in kwargs.items():
        if not isinstance(name, str):
            raise InvalidArguments(f"the argument name {name!r} is no text", argument=repr(name))
        plain_kwargs[_text(name, name)] = _plain(value, name, 1)
    signature.accept(plain_args, plain_kwargs)
    return Call(plain_args, plain_kwargs)


def payload_of(task_path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The payload on the wire: a JSON object of named arguments, UTF-8.

    Positional arguments get their names from the task where this process has it; those without a name (``*args``, an
    unknown task) travel as the list ``"*"``, which only our own workers would read, and they read the row.
    """
    if not args:
        return json.dumps(kwargs, separators=(",", ":"), ensure_ascii=False).encode()
    from .registry import resolve

    names: tuple[str, ...] = ()
    try:
        task = resolve(task_path)
        names = _signature_of(task.func, task.takes_context).positional
    except UnknownTask:
        names = ()
    named = dict(zip(names, args, strict=False))
    if len(args) > len(names):
        named["*"] = list(args[len(names) :])
    return json.dumps({**named, **kwargs}, separators=(",", ":"), ensure_ascii=False).encode()


def describe(func: Callable[..., Any], takes_context: bool) -> str:
    """The accepted arguments in words: ``class_id: int, urgent: bool = False``."""
    return _signature_of(func, takes_context).words


class _Signature:
    """What a function accepts, read once."""

    def __init__(self, func: Callable[..., Any], takes_context: bool) -> None:
        parameters = list(inspect.signature(func).parameters.values())
        if takes_context:
            parameters = parameters[1:]
        hints = _hints(func)
        kinds = inspect.Parameter
        self.positional = tuple(
            p.name
            for p in parameters
            if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        )
        self.by_name = frozenset(
            p.name
            for p in parameters
            if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
        )
        self.required = tuple(
            p.name
            for p in parameters
            if p.default is kinds.empty and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        )
        self.more_args = next((p for p in parameters if p.kind is kinds.VAR_POSITIONAL), None)
        self.more_kwargs = next((p for p in parameters if p.kind is kinds.VAR_KEYWORD), None)
        self.types = {p.name: hints[p.name] for p in parameters if p.name in hints}
        self.checks = {
            name: check
            for name, hint in self.types.items()
            if (check := _check_for(hint)) is not None
        }
        self.words = ", ".join(_parameter_words(p, self.types) for p in parameters) or "none"

    def accept(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Raise ``InvalidArguments`` unless the function can be called so."""
        given = self.positional[: len(args)]
        if len(args) > len(self.positional) and self.more_args is None:
            raise self._refusal(
                f"{len(args)} positional arguments were given, it takes {len(self.positional)}",
                None,
            )
        for name in given:
            if name in kwargs and name in self.by_name:
                raise self._refusal(f"argument {name!r} was given twice", name)
        for name in self.required:
            if name not in given and not (name in kwargs and name in self.by_name):
                raise self._refusal(f"argument {name!r} is missing", name)
        more = self.more_args.name if self.more_args else ""
        for at, value in enumerate(args):
            name = given[at] if at < len(given) else ""
            self._accept_value(name or more, name, value)
        for name, value in kwargs.items():
            self._accept_value(self._parameter_for(name), name, value)

    def _parameter_for(self, name: str) -> str:
        if name in self.by_name:
            return name
        if self.more_kwargs is None:
            raise self._refusal(f"there is no argument {name!r}", name)
        return self.more_kwargs.name

    def _accept_value(self, parameter: str, name: str, value: Any) -> None:
        check = self.checks.get(parameter)
        if check is not None and not check(value):
            shown = name or f"*{parameter}"
            raise self._refusal(
                f"argument {shown!r} is {_value_words(value)}, "
                f"it must be {_type_words(self.types[parameter])}",
                shown,
            )

    def _refusal(self, problem: str, argument: str | None) -> InvalidArguments:
        return InvalidArguments(f"{problem}; accepted arguments: {self.words}", argument=argument)


@lru_cache(maxsize=4096)
def _signature_of(func: Callable[..., Any], takes_context: bool) -> _Signature:
    return _Signature(func, takes_context)


def _hints(func: Callable[..., Any]) -> dict[str, Any]:
    """Annotations as types; one that cannot be read (imported for type checkers only) is left out."""
    try:
        return typing.get_type_hints(func, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are the user's code and may raise anything when evaluated
        found: dict[str, Any] = {}
        for name, annotation in inspect.get_annotations(func).items():
            value = _evaluated(annotation, func)
            if value is not inspect.Parameter.empty:
                found[name] = value
        return found


def _evaluated(annotation: Any, func: Callable[..., Any]) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"value": annotation}
    holder.__module__ = func.__module__
    try:
        return typing.get_type_hints(
            holder, getattr(func, "__globals__", {}), include_extras=True
        ).get("value", inspect.Parameter.empty)
    except Exception:  # noqa: BLE001 - see _hints
        return inspect.Parameter.empty


# -- types --------------------------------------------------------------------------------------------------------


def _check_for(hint: Any) -> Check | None:  # noqa: PLR0911 - one line a kind of annotation
    """A test of a JSON value against an annotation; None where the annotation says nothing about JSON values."""
    if isinstance(hint, NewType):
        return _check_for(hint.__supertype__)
    if isinstance(hint, _ALIAS):
        return _check_for(hint.__value__)
    simple = _SIMPLE.get(hint) if isinstance(hint, type) or hint is None else None
    if simple is not None:
        return simple
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _check_for(inner[0])
    if origin is Literal:
        return lambda value: any(value == one and type(value) is type(one) for one in inner)
    if origin in (Union, types.UnionType):
        return _any_of([_check_for(one) for one in inner])
    if origin in _LISTS:
        one_kind = inner[1:] == (...,) if origin is tuple else bool(inner)
        return _list_of(_check_for(inner[0]) if one_kind else None)
    if origin in _MAPPINGS:
        return _mapping_of(_check_for(inner[1]) if len(inner) == 2 else None)
    return None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


_SIMPLE: Final[dict[Any, Check]] = {
    int: _is_int,
    float: _is_number,
    bool: _is(bool),
    str: _is(str),
    list: _is(list),
    tuple: _is(list),
    Sequence: _is(list),
    dict: _is(dict),
    Mapping: _is(dict),
    None: lambda value: value is None,
    type(None): lambda value: value is None,
}
_LISTS: Final = (list, tuple, Sequence)
_MAPPINGS: Final = (dict, Mapping)


def _any_of(checks: list[Check | None]) -> Check | None:
    known = [check for check in checks if check is not None]
    if len(known) < len(checks):
        return None
    return lambda value: any(check(value) for check in known)


def _list_of(check: Check | None) -> Check:
    if check is None:
        return _is(list)
    return lambda value: isinstance(value, list) and all(map(check, value))


def _mapping_of(check: Check | None) -> Check:
    if check is None:
        return _is(dict)
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _type_words(hint: Any) -> str:
    if hint is type(None) or hint is None:
        return "None"
    if isinstance(hint, type) and not typing.get_args(hint):
        name: str = hint.__name__
        return name
    text = str(hint)
    return text.replace("typing.", "").replace("collections.abc.", "")


def _parameter_words(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> str:
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    words = stars.get(parameter.kind, "") + parameter.name
    if parameter.name in hints:
        words += f": {_type_words(hints[parameter.name])}"
    if parameter.default is not inspect.Parameter.empty:
        words += f" = {_short(parameter.default)}"
    return words


def _value_words(value: Any) -> str:
    return "None" if value is None else f"{_short(value)} ({type(value).__name__})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- JSON ---------------------------------------------------------------------------------------------------------


def _plain(value: Any, argument: str, depth: int) -> Any:
    """``value`` in JSON's own types. Raises ``InvalidArguments`` for what JSON, or a database's JSON, cannot hold."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value, argument)
    if kind is int:
        if value.bit_length() > _MOST_BITS:
            raise InvalidArguments(
                f"argument {argument!r} has too large a number", argument=argument
            )
        return value
    if kind is float:
        if not math.isfinite(value):
            raise InvalidArguments(
                f"argument {argument!r} holds {value}, which JSON does not have", argument=argument
            )
        return value
    if depth > DEEPEST:
        raise InvalidArguments(
            f"argument {argument!r} is nested deeper than {DEEPEST} levels", argument=argument
        )
    return _plain_other(value, argument, depth)


def _plain_other(value: Any, argument: str, depth: int) -> Any:
    if isinstance(value, Mapping):
        plain = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidArguments(
                    f"argument {argument!r} has the key {_short(key)}; JSON has only text as keys",
                    argument=argument,
                )
            plain[_text(str(key), argument)] = _plain(inner, argument, depth + 1)
        return plain
    if isinstance(value, bytes):
        try:
            return _text(value.decode(), argument)
        except UnicodeDecodeError:
            raise UnserialisableArgument(
                f"Unsupported value: argument {argument!r} holds bytes that are no UTF-8 text",
                argument=argument,
            ) from None
    # Subclasses (an IntegerChoices member, a SafeString) are stored as what they are a kind of.
    for base in (str, int, float):
        if isinstance(value, base):
            return _plain(base(value) if base is not str else str.__str__(value), argument, depth)
    if isinstance(value, Sequence):
        return [_plain(inner, argument, depth + 1) for inner in value]
    raise UnserialisableArgument(
        f"Unsupported type: argument {argument!r} is {_short(value)}, a {type(value).__qualname__}; "
        "pass text, numbers, lists and dictionaries, or a primary key",
        argument=argument,
    )


def _text(value: str, argument: str) -> str:
    if "\0" in value:
        raise InvalidArguments(
            f"argument {argument!r} holds a NUL character, which databases do not store",
            argument=argument,
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(
            f"argument {argument!r} holds half a surrogate pair, which is no text",
            argument=argument,
        ) from None
    return value
