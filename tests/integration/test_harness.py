"""The test suite's own tools do what the other tests rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.app.models import Effect
from tests.support.database_url import database_from_url, url_from_database
from tests.support.servers import Server
from tests.support.waiting import stays, wait_until


def test_a_server_comes_back_on_its_port_without_what_it_held(
    make_server: Callable[..., Server],
) -> None:
    server = make_server()
    url, pid = server.url, server.pid
    with server.client() as client:
        client.set("key", "value")

    server.restart(kill=True)

    assert server.url == url
    assert server.pid != pid
    with server.client() as client:
        assert client.get("key") is None


def test_a_persistent_server_keeps_every_acknowledged_write(
    make_server: Callable[..., Server],
) -> None:
    server = make_server(persistent=True)
    with server.client() as client:
        client.set("key", "value")

    server.restart(kill=True)

    with server.client() as client:
        assert client.get("key") == b"value"


def test_a_rolled_back_server_has_forgotten_what_came_after_the_snapshot(
    make_server: Callable[..., Server],
) -> None:
    server = make_server()
    with server.client() as client:
        client.set("before", "1")
        snapshot = server.snapshot()
        client.set("after", "1")

    server.roll_back(snapshot)

    with server.client() as client:
        assert client.get("before") == b"1"
        assert client.get("after") is None


def test_a_frozen_server_answers_only_after_it_is_resumed(
    make_server: Callable[..., Server],
) -> None:
    server = make_server()
    server.freeze()
    with (
        redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.ping()

    server.resume()

    with server.client() as client:
        assert client.ping()


def test_a_flushed_server_is_empty(make_server: Callable[..., Server]) -> None:
    server = make_server()
    with server.client() as client:
        client.set("key", "value")

        server.flush()

        assert client.dbsize() == 0


def test_every_test_is_pointed_at_a_namespace_of_its_own(
    settings: Any, namespace: str, redis_client: redis.Redis
) -> None:
    assert settings.SMALLAGE["NAMESPACE"] == namespace
    assert redis_client.keys(f"*{namespace}*") == []


def test_waiting_ends_with_the_last_answer_in_the_message() -> None:
    with pytest.raises(AssertionError, match=r"last answer 0\. the log"):
        wait_until(lambda: 0, 0.02, message=lambda: "the log")


def test_what_stays_true_is_told_as_soon_as_it_is_not() -> None:
    answers = iter([True, True, False])

    with pytest.raises(AssertionError, match="did not stay true"):
        stays(lambda: next(answers), 5)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////var/data/db.sqlite3",
        "sqlite:///db.sqlite3",
        "postgres://user@127.0.0.1:5432/name",
        "postgres://us%40er:p%2Fw@db.example/name",
        "mysql://root@127.0.0.1:3306/name",
    ],
)
def test_a_database_url_survives_the_way_there_and_back(url: str) -> None:
    there = database_from_url(url)

    assert database_from_url(url_from_database(there)) == there


def test_runs_on_one_server_are_told_apart_by_their_suffix() -> None:
    database = database_from_url("postgres://u@h/name", test_suffix="_py311-redis")

    assert database["TEST"]["NAME"] == "test_name_py311_redis"


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        database_from_url("oracle://u@h/name")


@pytest.mark.django_db
def test_the_app_of_the_tests_has_its_table() -> None:
    assert Effect.objects.count() == 0
