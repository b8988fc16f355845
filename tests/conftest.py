"""What every test can ask for: a broker, a namespace of its own, settings that point there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis

from tests.support.servers import ExternalServer, Kind, Server, start_redis

# Two busy cores make a deadline per example a coin toss; bounded time has tests of its own.
hypothesis.settings.register_profile("default", deadline=None)
# In CI the examples are the same each time: a failure there is of the change under test.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def broker_kind() -> Kind:
    """Which server the tests start: SMALLAGE_TEST_BROKER is ``valkey`` (embedded, the default) or ``redis``."""
    return os.environ.get("SMALLAGE_TEST_BROKER", "valkey")  # type: ignore[return-value]


def pytest_report_header() -> list[str]:
    """Say at the top what the run was against."""
    from django.conf import settings
    from django.db import connection

    url = os.environ.get("SMALLAGE_REDIS_URL")
    database = f"{connection.vendor} {settings.DATABASES['default'].get('HOST', '')}".strip()
    return [f"database: {database}", f"broker: {url or broker_kind()}"]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Give SQLite a file in a directory of this run.

    Threads share an in-memory database through one lock without a timeout, and child processes cannot see it at all.
    """
    from django.db import connection

    if connection.vendor == "sqlite":
        path = tmp_path_factory.mktemp("database") / "test.sqlite3"
        connection.settings_dict["TEST"]["NAME"] = str(path)


@pytest.fixture(scope="session")
def broker_server() -> Iterator[Server | ExternalServer]:
    """The run's one server, shared by all its tests: keep to your namespace, never flush or stop it.

    SMALLAGE_REDIS_URL names one that is running already.
    """
    url = os.environ.get("SMALLAGE_REDIS_URL")
    if url:
        yield ExternalServer(url)
        return
    with Server(broker_kind()) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def redis_client(broker_server: Server | ExternalServer) -> Iterator[redis.Redis]:
    """A client of the shared server that answers in bytes."""
    with broker_server.client() as client:
        yield client


@pytest.fixture
def make_server() -> Iterator[Callable[..., Server]]:
    """Start servers of this test's own, which it may flush, freeze, kill and restart."""
    servers: list[Server] = []

    def make(kind: Kind | None = None, *, persistent: bool = False) -> Server:
        servers.append(start_redis(kind or broker_kind(), persistent=persistent))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def smallage_settings(
    settings: Any, broker_server: Server | ExternalServer, namespace: str
) -> Callable[..., dict[str, Any]]:
    """Point SMALLAGE at the shared server under this test's namespace; call it to change keys further.

    ``smallage_settings(LEASE_TTL=3)`` returns the dict now in force.
    """

    def change(**changes: Any) -> dict[str, Any]:
        settings.SMALLAGE = {**settings.SMALLAGE, **changes}
        return settings.SMALLAGE

    change(REDIS_URL=broker_server.url, NAMESPACE=namespace)
    return change


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parent.parent
