"""Runs Django's own tests of its task framework against our backends: ``python -m tests.upstream.run``.

The tests come from the source distribution of the installed Django. Django 5.2 has none: there the tests of Django 6.0
run against the backport, with its names put in. Three variants, each on the database of ``DATABASE_URL``:

* ``smallage``: all tests with ``SmallageBackend``: as it is where they use the dummy backend, and with a worker that is
  drained after each enqueue where they use the immediate one;
* ``testing``: the dummy and immediate tests with the backends of ``smallage_django.testing``;
* ``custom``: the tests of custom backends, unchanged, with our app installed.

The exit code is 0 if all of them passed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import django

from smallage_django.compat import NATIVE

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "upstream"
#: What pip is asked for where the installed Django has no tests of tasks.
FOR_THE_BACKPORT = "django>=6.0,<6.1"

DUMMY = "django.tasks.backends.dummy.DummyBackend"
IMMEDIATE = "django.tasks.backends.immediate.ImmediateBackend"


@dataclass(frozen=True)
class Variant:
    """Test modules, what is changed in their text first, and tests that say something else of our backend."""

    modules: tuple[str, ...]
    rewrite: Callable[[str], str]
    #: ``module.method`` to the reason why it cannot be asked of us.
    not_ours: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, module: str, text: str) -> str:
        """The text of a module as this variant runs it."""
        if module not in self.modules:
            return text
        for name in self.not_ours:
            if name.startswith(f"{module}."):
                method = name.removeprefix(f"{module}.")
                text = text.replace(f"def {method}(", f"def not_ours_{method}(")
        return self.rewrite(text)


def with_smallage(text: str) -> str:
    """Rows instead of a list: the tests need a database, and mean our class where they name the dummy one."""
    text = text.replace(f'"{DUMMY}"', '"tests.upstream.backends.ListedBackend"')
    text = text.replace(f'"{IMMEDIATE}"', '"tests.upstream.backends.DrainedBackend"')
    for module, name, ours in (
        ("dummy", "DummyBackend", "ListedBackend"),
        ("immediate", "ImmediateBackend", "DrainedBackend"),
    ):
        text = text.replace(
            f"from django.tasks.backends.{module} import {name}",
            f"from tests.upstream.backends import {ours} as {name}",
        )
    return re.sub(r"\bSimpleTestCase\b", "TransactionTestCase", text)


def with_testing(text: str) -> str:
    """Our backends for other people's tests."""
    text = text.replace(f'"{DUMMY}"', '"smallage_django.testing.DummyBackend"')
    return text.replace(f'"{IMMEDIATE}"', '"smallage_django.testing.ImmediateBackend"')


def for_the_backport(text: str) -> str:
    """The names of the backport instead of Django's."""
    text = text.replace("django.tasks", "django_tasks").replace("async Tasks.", "async tasks.")
    return re.sub(r"\b(InvalidTask|InvalidTaskBackend)\b", r"\1Error", text)


_OFFERED = "holds that results and run_after are not supported, which we do support"
_IN_MEMORY = "changes a result in the dummy backend's list and expects refresh() to find it there"
VARIANTS = {
    "smallage": Variant(
        ("test_tasks", "test_dummy_backend", "test_immediate_backend"),
        with_smallage,
        {
            "test_dummy_backend.test_refresh_result": _IN_MEMORY,
            "test_dummy_backend.test_refresh_result_async": _IN_MEMORY,
            "test_immediate_backend.test_cannot_get_result": _OFFERED,
            "test_immediate_backend.test_cannot_refresh_result": _OFFERED,
            "test_immediate_backend.test_cannot_pass_run_after": _OFFERED,
            "test_immediate_backend.test_throws_keyboard_interrupt": (
                "nobody's caller: a worker gives the run back and stops"
            ),
        },
    ),
    "testing": Variant(("test_dummy_backend", "test_immediate_backend"), with_testing),
    "custom": Variant(
        ("test_custom_backend",),
        lambda text: text,
        {"test_custom_backend.test_no_enqueue": "expects a message of Python 3.12 and later"},
    ),
}


def source() -> Path:
    """The archive with the tests, downloaded once."""
    wanted = f"django=={django.get_version()}" if NATIVE else FOR_THE_BACKPORT
    folder = CACHE / re.sub(r"\W+", "-", wanted)
    if not list(folder.glob("*.tar.gz")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += [
            "--no-binary",
            ":all:",
            "--ignore-requires-python",
            "--dest",
            str(folder),
            wanted,
        ]
        subprocess.run(command, check=True)
    return next(folder.glob("*.tar.gz"))


def unpack(archive: Path, name: str, variant: Variant) -> Path:
    """A folder with a package ``tasks`` of rewritten tests in it."""
    # Two Djangos can use one archive, and may do so at the same time.
    place = (
        CACHE / "build" / f"on-{django.get_version()}" / f"{archive.name.split('.tar')[0]}-{name}"
    )
    shutil.rmtree(place, ignore_errors=True)
    package = place / "tasks"
    package.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            if path.parts[1:-1] != ("tests", "tasks") or path.suffix != ".py":
                continue
            content = tar.extractfile(member)
            assert content is not None
            text = variant.prepare(path.stem, content.read().decode())
            (package / path.name).write_text(text if NATIVE else for_the_backport(text))
    return place


def run(name: str, archive: Path) -> bool:
    """Run one variant; whether it passed."""
    variant = VARIANTS[name]
    place = unpack(archive, name, variant)
    sys.stdout.write(f"-- {archive.name}: {name}\n")
    sys.stdout.flush()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]),
        "DJANGO_SETTINGS_MODULE": "tests.upstream.settings",
        # Some of the tests refresh a result inside a coroutine, which a backend in memory lets them.
        "DJANGO_ALLOW_ASYNC_UNSAFE": "1",
    }
    labels = [f"tasks.{module}" for module in variant.modules]
    command = [
        sys.executable,
        "-W",
        "error::DeprecationWarning",
        "-m",
        "django",
        "test",
        "--noinput",
    ]
    command += labels
    return subprocess.run(command, cwd=place, env=environment, check=False).returncode == 0


def main() -> int:
    archive = source()
    passed = [run(name, archive) for name in VARIANTS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
