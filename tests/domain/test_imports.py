"""The rules and the loops can be had where neither Django nor redis is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PURE_MODULES = [
    "smallage_django",
    "smallage_django.errors",
    "smallage_django.ports",
    "smallage_django.scheduler",
    "smallage_django.worker",
    "smallage_django.maintenance",
    "smallage_django.domain",
    "smallage_django.domain.envelope",
    "smallage_django.domain.identity",
    "smallage_django.domain.leadership",
    "smallage_django.domain.lifecycle",
    "smallage_django.domain.planning",
    "smallage_django.domain.policies",
    "smallage_django.domain.recurrence",
    "smallage_django.domain.retry",
]


def import_without(blocked: list[str], module: str) -> subprocess.CompletedProcess[str]:
    """Import a module in a fresh interpreter that has neither settings nor the blocked packages."""
    code = (
        "import sys, importlib\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        f"importlib.import_module({module!r})\n"
    )
    clean = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def modules_of_the_domain() -> set[str]:
    folder = ROOT / "smallage_django" / "domain"
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in folder.rglob("*.py")
    }


@pytest.mark.parametrize("module", sorted(set(PURE_MODULES) | modules_of_the_domain()))
def test_it_is_importable_without_django_and_redis(module: str) -> None:
    done = import_without(["django", "django_tasks", "redis", "valkey"], module)

    assert done.returncode == 0, done.stderr


def test_schedules_are_declared_without_configured_settings() -> None:
    """``smallage_django.schedules`` may need Django installed, but no settings until ``schedule()`` is called."""
    done = import_without([], "smallage_django.schedules")

    assert done.returncode == 0, done.stderr


def test_blocking_django_is_noticed() -> None:
    """The experiment can fail: what does need Django cannot be imported this way."""
    done = import_without(["django"], "smallage_django.models")

    assert done.returncode != 0
    assert "django" in done.stderr
