"""Text from user code, made fit for any database column."""

from __future__ import annotations

from typing import Final

_CUT: Final = " … [cut]"


def clean(text: str, limit: int) -> str:
    """``text`` without NUL and lone surrogates, in at most ``limit`` characters; the end is marked where it was cut.

    PostgreSQL refuses NUL, every driver refuses half a surrogate pair, and a column's end would lose the whole row.
    """
    if "\0" in text:
        text = text.replace("\0", "")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    return text[: max(0, limit - len(_CUT))] + _CUT[:limit]


def shorten(text: str, limit: int) -> str:
    """Like :func:`clean`, but cut in the middle: of a traceback both ends matter."""
    text = clean(text, max(limit, len(text)))
    if len(text) <= limit:
        return text
    half = (limit - len(_CUT) - 1) // 2
    return f"{text[:half]}{_CUT}\n{text[-half:]}"
