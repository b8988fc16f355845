"""Integration tests meet a real database and a real broker, always in a namespace of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smallage_django import publishing
from tests.support.fake_broker import FakeBroker


@pytest.fixture(autouse=True)
def _own_namespace(smallage_settings: Callable[..., dict[str, Any]]) -> None:
    """No integration test can reach another's keys, or a server that is not the tests'."""


@pytest.fixture
def fake_broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """What is published on commit is remembered instead; its ``error`` makes it be away."""
    fake = FakeBroker()
    monkeypatch.setattr(publishing, "_broker", lambda: fake)
    monkeypatch.setattr(publishing, "breaker", publishing.Breaker())
    return fake
