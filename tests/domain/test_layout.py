"""The arrows of the architecture point down: every import in the package is held against one picture.

::

    commands, demo, admin, checks, testing, apps
      -> wiring, api, backend, results, publishing, schedules
        -> scheduler, worker, recorder, maintenance    (each other, ports, patience, domain, errors)
        -> store | broker | runner               (siblings: none imports another)
          -> models, querysets, fields, validation, registry, tasktypes, taskpolicy, arguments, context,
             conf, compat, nobackport, signals, triggers, migrations
            -> ports, patience
              -> domain
                -> errors

Imports inside functions and under TYPE_CHECKING count: both are dependencies.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "smallage_django"
ROOT = Path(__file__).resolve().parent.parent.parent / PACKAGE

# From the bottom to the top. A part may import any part of a lower row, and parts of its own row unless ONLY says less.
ROWS: list[set[str]] = [
    {"errors"},
    {"domain"},
    {"ports", "patience"},
    {
        "arguments",
        "compat",
        "conf",
        "context",
        "fields",
        "migrations",
        "models",
        "nobackport",
        "outcomes",
        "taskpolicy",
        "querysets",
        "registry",
        "rules",
        "signals",
        "tasktypes",
        "triggers",
        "validation",
    },
    {"store", "broker", "runner", "scheduler", "worker", "recorder", "maintenance"},
    {"wiring", "api", "backend", "publishing", "results", "schedules"},
    {"admin", "apps", "checks", "demo", "management", "receivers", "testing"},
]
ROW_OF = {part: row for row, parts in enumerate(ROWS) for part in parts}

PURE = {"errors", "domain", "ports", "patience"}
FOUNDATION = PURE | ROWS[3]
ONLY: dict[str, set[str]] = {
    # The loops know the world through ports alone.
    "scheduler": PURE | {"maintenance"},
    "worker": PURE | {"recorder"},
    "recorder": PURE,
    "maintenance": PURE,
    # Siblings; the broker knows no Django, hence no models and no settings.
    "broker": PURE,
    "store": FOUNDATION,
    "runner": FOUNDATION,
}
# Where each of these libraries may be imported; anywhere else it is a way around a port.
KEEPERS: dict[str, set[str]] = {
    "redis": {"broker"},
    "croniter": {"domain"},
    "cron_descriptor": {"admin"},
    "admin_extra_buttons": {"admin"},
    "django_tasks": {"compat"},
}
WITHOUT_DJANGO = PURE | {"broker", "scheduler", "worker", "recorder", "maintenance"}
# What would let a clock, a die, a log or a socket into the rules.
IMPURE = {"asyncio", "logging", "os", "random", "secrets", "socket", "threading", "time"}
CLOCKS = {"now", "utcnow", "today"}

REQUIRED = {
    "admin",
    "api",
    "apps",
    "backend",
    "broker",
    "checks",
    "compat",
    "conf",
    "domain",
    "errors",
    "maintenance",
    "management",
    "migrations",
    "models",
    "ports",
    "querysets",
    "registry",
    "runner",
    "scheduler",
    "schedules",
    "signals",
    "store",
    "testing",
    "wiring",
    "worker",
}


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, as ``file:line`` says it."""

    part: str
    module: str
    where: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def target(self) -> str | None:
        """The part of our own package that is imported; None for other people's and for ``__version__``."""
        names = self.module.split(".")
        ours = names[0] == PACKAGE and len(names) > 1 and not names[1].startswith("__")
        return names[1] if ours else None


def part_of(path: Path) -> str:
    """The part a file belongs to: its first folder, or its own name."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def sources() -> list[Path]:
    return sorted(
        path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__"
    )


def imports_of(path: Path) -> Iterator[Import]:
    package = [PACKAGE, *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        where = f"{path.relative_to(ROOT.parent)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(part_of(path), alias.name, where)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # ``from smallage_django import api`` names a part; ``from smallage_django.api import x`` has named it.
            names = [a.name for a in node.names] if module == PACKAGE else []
            for name in names or [None]:
                yield Import(part_of(path), f"{module}.{name}" if name else module, where)


@cache
def all_imports() -> list[Import]:
    return [found for path in sources() for found in imports_of(path)]


def is_allowed(found: Import) -> bool:
    """Whether one part of the package may import another."""
    if found.target is None or found.target == found.part:
        return True
    allowed = ONLY.get(found.part)
    if allowed is not None:
        return found.target in allowed
    return found.target in ROW_OF and ROW_OF[found.target] <= ROW_OF[found.part]


def told(broken: list[Import]) -> str:
    return "\n".join(f"{found.where}: {found.part} imports {found.module}" for found in broken)


def test_every_part_has_its_place_in_the_picture() -> None:
    parts = {part_of(path) for path in sources()}

    assert parts <= set(ROW_OF), f"not in the picture: {sorted(parts - set(ROW_OF))}"
    assert parts >= REQUIRED, f"missing: {sorted(REQUIRED - parts)}"


def test_imports_point_down() -> None:
    broken = [found for found in all_imports() if not is_allowed(found)]

    assert not broken, told(broken)


def test_the_package_itself_imports_nothing() -> None:
    """The public names are found lazily, so that the rules can be had without Django."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    names = {
        node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
        for statement in tree.body
        for node in [statement]
        if isinstance(node, ast.Import | ast.ImportFrom)
    }

    assert names <= {"__future__", "importlib", "typing"}, names


@pytest.mark.parametrize("library", sorted(KEEPERS))
def test_a_library_is_met_in_one_place_only(library: str) -> None:
    broken = [
        found
        for found in all_imports()
        if found.top == library and found.part not in KEEPERS[library]
    ]

    assert not broken, told(broken)


def test_loops_rules_and_broker_do_not_know_django() -> None:
    broken = [
        found for found in all_imports() if found.part in WITHOUT_DJANGO and found.top == "django"
    ]

    assert not broken, told(broken)


def test_the_rules_have_no_clock_no_dice_and_no_log() -> None:
    broken = [
        found
        for found in all_imports()
        if found.part in {"domain", "errors"} and found.top in IMPURE
    ]
    assert not broken, told(broken)

    asked = [
        f"{path.relative_to(ROOT.parent)}:{node.lineno}"
        for path in sources()
        if part_of(path) == "domain"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCKS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"datetime", "date"}
    ]
    assert not asked, f"asks a clock: {asked}"


@pytest.mark.parametrize(
    ("part", "module", "allowed"),
    [
        ("scheduler", "smallage_django.ports", True),
        ("scheduler", "smallage_django.domain.planning", True),
        ("scheduler", "smallage_django.models", False),
        ("scheduler", "smallage_django.worker", False),
        ("store", "smallage_django.models", True),
        ("store", "smallage_django.broker.keys", False),
        ("broker", "smallage_django.conf", False),
        ("runner", "smallage_django.store", False),
        ("models", "smallage_django.store", False),
        ("api", "smallage_django.store", True),
        ("wiring", "smallage_django.scheduler", True),
        ("api", "smallage_django.admin", False),
        ("domain", "smallage_django.ports", False),
        ("admin", "smallage_django.api", True),
        ("store", "smallage_django.never_heard_of", False),
    ],
)
def test_the_picture_can_tell_up_from_down(part: str, module: str, allowed: bool) -> None:
    assert is_allowed(Import(part, module, "example:1")) is allowed
