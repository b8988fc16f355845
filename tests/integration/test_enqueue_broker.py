"""Enqueueing against a real broker: there, gone, frozen, and back again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from smallage_django import enqueue_many, publishing
from smallage_django.models import Run
from tests.app import tasks
from tests.support.servers import Server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "breaker", publishing.Breaker())


def entries(client: redis.Redis, namespace: str) -> list[dict[bytes, bytes]]:
    keys = sorted(client.scan_iter(match=f"*{namespace}*:q:*", _type="stream"))
    return [fields for key in keys for _, fields in client.xrange(key)]


def test_an_entry_is_in_its_stream_after_the_commit(
    redis_client: redis.Redis, namespace: str
) -> None:
    result = tasks.add.enqueue(1, b=2)

    (entry,) = entries(redis_client, namespace)
    assert entry[b"id"].decode() == result.id
    assert entry[b"task"] == b"tests.app.tasks.add"
    assert json.loads(entry[b"payload"]) == {"a": 1, "b": 2}
    assert (entry[b"v"], entry[b"attempt"]) == (b"1", b"0")
    assert Run.objects.get().state == "claimed"


def test_bulk_is_published_whole(redis_client: redis.Redis, namespace: str) -> None:
    results = enqueue_many(tasks.add, [{"a": n, "b": n} for n in range(1500)])

    found = [entry[b"id"].decode() for entry in entries(redis_client, namespace)]
    assert found == [result.id for result in results]


def test_every_priority_has_its_own_stream(redis_client: redis.Redis, namespace: str) -> None:
    tasks.noop.using(priority=-7).enqueue()
    tasks.noop.using(queue_name="mail").enqueue()

    assert len(entries(redis_client, namespace)) == 2


def test_a_broker_that_nobody_answers_for_costs_no_row(smallage_settings: Any) -> None:
    smallage_settings(REDIS_URL="redis://127.0.0.1:1/0")

    tasks.noop.enqueue()
    tasks.noop.using(run_after=timedelta(seconds=1)).enqueue()

    assert Run.objects.get().state == "claimed"


def test_a_frozen_broker_holds_up_one_request_and_only_briefly(
    smallage_settings: Any, make_server: Callable[..., Server]
) -> None:
    """Given a server that accepts and never answers, when three requests enqueue, then only the first one waits."""
    server = make_server()
    smallage_settings(REDIS_URL=server.url)
    tasks.noop.enqueue()
    server.freeze()

    took = []
    for _ in range(3):
        began = time.monotonic()
        tasks.noop.enqueue()
        took.append(time.monotonic() - began)

    assert Run.objects.count() == 4
    assert took[0] < 1.5
    assert max(took[1:]) < 0.2


def test_it_publishes_again_once_the_broker_is_back(
    smallage_settings: Any, make_server: Callable[..., Server], namespace: str
) -> None:
    server = make_server()
    smallage_settings(REDIS_URL=server.url)
    tasks.noop.enqueue()
    server.stop()
    tasks.noop.enqueue()
    server.start()
    now = time.monotonic()
    publishing.breaker._monotonic = lambda: now + publishing.BREAK_S

    result = tasks.noop.enqueue()

    with server.client() as client:
        assert [entry[b"id"].decode() for entry in entries(client, namespace)] == [result.id]
