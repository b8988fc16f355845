"""What is published holds all that an installation needs, and a source release can be tested."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import smallage_django

BUILD = """
import sys
from hatchling.build import build_sdist, build_wheel
print(build_wheel(sys.argv[1]))
print(build_sdist(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def built(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source release of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=project_root,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def project(project_root: Path) -> dict[str, object]:
    """The [project] table of pyproject.toml."""
    loaded = tomllib.loads((project_root / "pyproject.toml").read_text())
    return loaded["project"]


def files_in(root: Path, folder: str) -> set[str]:
    return {
        path.relative_to(root).as_posix()
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def test_the_wheel_holds_every_file_of_the_package(
    built: tuple[Path, Path], project_root: Path
) -> None:
    """Scripts, templates, static files, translations and py.typed are files like any other here."""
    with zipfile.ZipFile(built[0]) as wheel:
        inside = set(wheel.namelist())

    package = files_in(project_root, "smallage_django")
    assert "smallage_django/py.typed" in inside
    assert "smallage_django/locale/de/LC_MESSAGES/django.mo" in inside
    assert any(name.endswith(".lua") for name in inside)
    assert package <= inside, f"left out: {sorted(package - inside)}"


def test_the_wheel_holds_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}

    version = smallage_django.__version__
    assert tops == {"smallage_django", f"smallage_django-{version}.dist-info"}


def test_the_source_release_can_be_tested(built: tuple[Path, Path], project_root: Path) -> None:
    with tarfile.open(built[1]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}

    wanted = files_in(project_root, "tests") | {"LICENSE", "CHANGELOG.md", "tox.ini", "Makefile"}
    assert wanted <= inside, f"left out: {sorted(wanted - inside)}"


def test_the_version_is_the_package_s_own(built: tuple[Path, Path]) -> None:
    assert built[0].name.startswith(f"smallage_django-{smallage_django.__version__}-")


@pytest.mark.parametrize(
    "extra", ["backport", "postgres", "mysql", "embedded", "metrics", "otel", "rich", "dev"]
)
def test_the_documented_extras_exist(extra: str, project: dict[str, object]) -> None:
    extras = project["optional-dependencies"]

    assert isinstance(extras, dict)
    assert extras[extra]


def test_the_license_travels_with_the_wheel(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        licenses = [name for name in wheel.namelist() if name.endswith("/LICENSE")]

    assert len(licenses) == 1
