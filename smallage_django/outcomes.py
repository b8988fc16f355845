"""What user code returned or raised, as an ``Outcome`` that every database can store."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from hashlib import sha256
from traceback import TracebackException
from types import TracebackType
from typing import Any, Final

from .compat import normalize_json
from .domain.lifecycle import Ending, Reason
from .ports import Outcome

#: The longest result that a row keeps, as JSON, in characters.
RESULT_LENGTH: Final = 1_000_000
#: An escaped NUL: an odd number of backslashes before it.
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def success(value: Any) -> Outcome:
    """The outcome of an attempt that returned ``value``; failed where JSON has no such type."""
    if value is None:
        return Outcome(Ending.SUCCEEDED)
    try:
        result = normalize_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = error if isinstance(error, TypeError) else TypeError(str(error))
        return failure(wrong, give_up=Reason.NOT_RETRYABLE)
    note = unkeepable(result)
    if note:
        return Outcome(Ending.SUCCEEDED, note=f"the result was not kept: {note}")
    return Outcome(Ending.SUCCEEDED, result=result)


def unkeepable(result: Any) -> str:
    """Why a JSON value cannot go into every database's JSON column; empty where it can."""
    if isinstance(result, bool | int) and -(2**63) <= result < 2**63:
        return ""
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    if len(text) > RESULT_LENGTH:
        return f"{len(text)} characters of JSON are more than {RESULT_LENGTH}"
    if _NUL.search(text):
        return "it has the character NUL"
    if "\\ud" in text:
        try:
            json.dumps(result, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "it has half of a surrogate pair"
    return ""


def failure(
    error: BaseException, *, give_up: Reason | None = None, retry_in: timedelta | None = None
) -> Outcome:
    """The outcome of an attempt that raised."""
    kind = type(error)
    told = _words(error)
    return Outcome(
        Ending.FAILED,
        error_class=f"{kind.__module__}.{kind.__qualname__}",
        error=told,
        traceback=_traceback(error),
        retry_in=retry_in,
        give_up=give_up.value if give_up is not None else "",
        fingerprint=_fingerprint(error),
        exception=error,
    )


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception's own text may raise anything
        return "(its text cannot be had)"


def _traceback(error: BaseException) -> str:
    try:
        # Without our own frame at its top.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        told = TracebackException(type(error), error, trace, compact=True)
        return "".join(told.format())
    except Exception:  # noqa: BLE001 - formatting calls user code: __str__, __repr__, __notes__
        return f"{type(error).__qualname__}: {_words(error)}"


def _fingerprint(error: BaseException) -> str:
    """A digest of the class and the innermost place, so that the same fault counts as the same."""
    place = _innermost(error.__traceback__)
    kind = type(error)
    return sha256(f"{kind.__module__}.{kind.__qualname__} {place}".encode()).hexdigest()[:16]


def _innermost(trace: TracebackType | None) -> str:
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{code.co_name}"
