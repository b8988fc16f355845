"""Integration tests meet a real database and a real broker, always in a namespace of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_namespace(smallage_settings: Callable[..., dict[str, Any]]) -> None:
    """No integration test can reach another's keys, or a server that is not the tests'."""
