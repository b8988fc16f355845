"""Which bulk statements fit a database."""

from __future__ import annotations

from typing import Any

from django.db import connections

from . import portable_promoting, postgres_promoting


def bulk_of(alias: str) -> Any:
    """PostgreSQL's own statements, or those that every database understands."""
    if connections[alias].vendor == "postgresql":
        return postgres_promoting
    return portable_promoting
