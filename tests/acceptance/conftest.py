"""Acceptance tests run real schedulers and workers against a database that is committed to and emptied after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.support.database_url import url_from_database
from tests.support.ledger import Ledger
from tests.support.processes import Processes
from tests.support.servers import Server


@pytest.fixture(autouse=True)
def _own_namespace(smallage_settings: Callable[..., dict[str, Any]]) -> None:
    """What the test itself calls and what it starts meet in one namespace."""


@pytest.fixture
def own_broker(
    make_server: Callable[..., Server], smallage_settings: Callable[..., dict[str, Any]]
) -> Server:
    """A broker for this test alone, to flush, freeze and kill; the test's ``processes`` use it too."""
    server = make_server()
    smallage_settings(REDIS_URL=server.url)
    return server


@pytest.fixture
def processes(
    request: pytest.FixtureRequest,
    transactional_db: None,
    smallage_settings: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> Iterator[Processes]:
    """Start real processes against the test database, which they see because nothing here is rolled back.

    They are all gone before the database is emptied: this fixture is built on it, so it ends first.
    """
    if "own_broker" in request.fixturenames:
        request.getfixturevalue("own_broker")
    configured = smallage_settings()
    started = Processes(
        {
            "DATABASE_URL": url_from_database(connection.settings_dict),
            "SMALLAGE_REDIS_URL": configured["REDIS_URL"],
            "SMALLAGE_NAMESPACE": configured["NAMESPACE"],
        },
        tmp_path,
    )
    yield started
    started.close()


@pytest.fixture
def ledger(processes: Processes) -> Ledger:
    """The accounts of what this test's processes do."""
    env = processes.env
    return Ledger(env["SMALLAGE_REDIS_URL"], env["SMALLAGE_NAMESPACE"])
