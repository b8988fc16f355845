"""System checks: each with its id, none with an exception."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.db import connection

from smallage_django import checks
from smallage_django.compat import NATIVE
from smallage_django.models import Schedule


def found(*ids: str, **options: Any) -> list[django_checks.CheckMessage]:
    """What ``manage.py check`` says, of these ids."""
    messages = django_checks.run_checks(**options)
    return [message for message in messages if not ids or message.id in ids]


def ours(**options: Any) -> list[str]:
    return sorted(
        message.id
        for message in django_checks.run_checks(**options)
        if message.id and message.id.startswith("smallage_django.")
    )


def test_the_suites_own_settings_are_clean() -> None:
    assert ours() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SHARD": 3}, "unknown key 'SHARD'"),
        ({"shards": 3}, "unknown key 'shards'"),
        ({"SHARDS": 0}, "SHARDS is 0"),
        ({"SHARDS": "two"}, "SHARDS"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL"),
        ({"LEASE_TTL": 2, "INTERVAL": 1}, "LEASE_TTL"),
        ({"RETENTION": {"done": "7d"}}, "done"),
        ({"QUEUES": ["a b"]}, "QUEUES"),
    ],
)
def test_settings_that_cannot_work_are_told(
    smallage_settings: Any, changes: dict[str, Any], words: str
) -> None:
    smallage_settings(**changes)

    messages = found("smallage_django.E001")
    assert len(messages) == 1
    assert words in messages[0].msg


def test_settings_that_are_no_dictionary_are_told(settings: Any) -> None:
    settings.SMALLAGE = "redis://"

    assert found("smallage_django.E001")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"MAX_ATTEMPT": 3}, "MAX_ATTEMPT"),
        ({"MAX_ATTEMPTS": 0}, "max_attempts"),
        ({"TIMEOUT": "soon"}, "timeout"),
        ({"BACKOFF": "often"}, "backoff"),
        ({"POLICIES": ["a"]}, "POLICIES"),
        ({"POLICIES": {"a.b": {"attempts": 1}}}, "attempts"),
        ({"POLICIES": {"a.b": {"max_attempts": -1}}}, "max_attempts"),
    ],
)
def test_options_of_the_backend_are_checked_by_the_frameworks_own_check(
    settings: Any, options: dict[str, Any], words: str
) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}

    messages = found("smallage_django.E003")
    assert len(messages) == 1
    assert words in messages[0].msg


def test_a_queue_that_no_worker_reads_is_told(settings: Any) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "film"]}}

    (message,) = found("smallage_django.W003")
    assert "film" in message.msg


def test_a_project_without_an_alias_of_ours_is_told(settings: Any) -> None:
    root = "django.tasks" if NATIVE else "django_tasks"
    settings.TASKS = {"default": {"BACKEND": f"{root}.backends.dummy.DummyBackend"}}

    assert found("smallage_django.W002")


def test_a_wrong_path_of_a_backend_does_not_break_ours(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": "no.such.Backend"}}

    assert [message.id for message in checks.check_platform()] == ["smallage_django.W002"]


class TestSqlite:
    @pytest.fixture(autouse=True)
    def _sqlite(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(connection._connections["default"]), "vendor", "sqlite")  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("options", "wanting"),
        [
            ({}, ["IMMEDIATE", "WAL"]),
            ({"transaction_mode": "IMMEDIATE"}, ["WAL"]),
            ({"transaction_mode": "EXCLUSIVE", "init_command": "PRAGMA journal_mode = wal"}, []),
            (
                {
                    "transaction_mode": "IMMEDIATE",
                    "init_command": "PRAGMA journal_mode=WAL;",
                    "timeout": 1,
                },
                ["timeout"],
            ),
        ],
    )
    def test_what_is_lacking_is_told(
        self, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], wanting: list[str]
    ) -> None:
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)

        messages = checks.check_sqlite()

        assert len(messages) == len(wanting)
        for message, words in zip(messages, wanting, strict=True):
            assert message.id == "smallage_django.W001"
            assert words in message.msg


@pytest.mark.django_db
class TestSchedules:
    def test_a_schedule_whose_task_is_gone_is_told_where_the_database_is_asked(self) -> None:
        Schedule.objects.create(name="fine", task="tests.app.tasks.noop")
        Schedule.objects.create(name="paused", task="gone.away", enabled=False)
        Schedule.objects.create(name="broken", task="gone.away")

        assert found("smallage_django.W004") == []
        (message,) = found("smallage_django.W004", databases=["default"])
        assert "'broken'" in message.msg
        assert "gone.away" in message.msg


def test_the_check_command_passes() -> None:
    call_command("check")


BARE = """
import sys, json
sys.modules["django_tasks"] = None
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "smallage_django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"}}},
    USE_TZ=True,
)
django.setup()
from django.core.checks import run_checks
import smallage_django.models, smallage_django.backend, smallage_django.api, smallage_django.results
import smallage_django.context, smallage_django.testing, smallage_django.registry
from smallage_django.compat import task
try:
    task(lambda: None)
    declared = "yes"
except Exception as error:
    declared = type(error).__name__
print(json.dumps({
    "checks": sorted(m.id for m in run_checks() if m.id and m.id.startswith("smallage")),
    "declared": declared,
    "tasks": len(smallage_django.registry.tasks()),
}))
"""


def test_without_the_backport_all_imports_and_a_check_says_so(project_root: Path) -> None:
    """On Django 6 a blocked backport changes nothing; on 5.2 it is an error with its mend."""
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BARE],
        cwd=project_root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    if NATIVE:
        assert said["checks"] == ["smallage_django.W002"]
    else:
        assert said == {
            "checks": ["smallage_django.E002"],
            "declared": "InvalidConfiguration",
            "tasks": 0,
        }
