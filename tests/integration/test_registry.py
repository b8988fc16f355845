"""Which tasks a row may name."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from smallage_django import registry
from smallage_django.compat import Task, task
from smallage_django.errors import UnknownTask
from tests.app import tasks


def test_tasks_of_installed_apps_are_found_by_their_path() -> None:
    found = registry.tasks()

    assert found["tests.app.tasks.add"] is tasks.add
    assert list(found) == sorted(found)
    assert all(isinstance(value, Task) for value in found.values())


def test_a_path_gives_the_task() -> None:
    assert registry.resolve("tests.app.tasks.async_add") is tasks.async_add


@pytest.mark.parametrize(
    "path",
    [
        "tests.app.tasks.nothing",
        "tests.app.nowhere.add",
        "nowhere.add",
        "add",
        "",
        "os.system",
        "tests.app.tasks.Boom",
        "tests.app.tasks._leave_effect",
        "tests.app.tasks.add.func",
        "tests.app.tasks. add",
        "tests..tasks",
        "../etc/passwd",
        "a" * 300 + ".b",
        "a\0.b",
    ],
)
def test_whatever_else_a_path_names_is_unknown(path: str) -> None:
    with pytest.raises(UnknownTask):
        registry.resolve(path)
    assert not registry.is_registered(path)


def test_a_module_that_cannot_be_imported_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "broken_module_of_a_test.py").write_text("raise SystemError('broken on purpose')")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UnknownTask, match="broken on purpose"):
        registry.resolve("broken_module_of_a_test.task")


def test_a_task_outside_of_the_apps_can_run_but_not_be_scheduled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("jobs_of_a_test")
    exec("def job(): ...", module.__dict__)
    module.job = task(module.job)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jobs_of_a_test", module)

    assert registry.resolve("jobs_of_a_test.job") is module.job
    assert not registry.is_registered("jobs_of_a_test.job")
    registry._resolved.pop("jobs_of_a_test.job")


def test_tasks_on_other_backends_are_not_ours(settings: Any) -> None:
    root = Task.__module__.partition(".base")[0]
    settings.TASKS = {"default": {"BACKEND": f"{root}.backends.dummy.DummyBackend"}}

    assert registry.tasks() == {}
    assert registry.aliases() == []


def test_an_alias_that_cannot_be_built_is_not_ours(settings: Any) -> None:
    settings.TASKS = {**settings.TASKS, "broken": {"BACKEND": "no.such.Backend"}}

    assert registry.aliases() == ["default"]
    assert not registry.is_ours("missing")
