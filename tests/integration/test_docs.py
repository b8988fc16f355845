"""The documentation says what the code does: tables are held to it, snippets compile, links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import re
from dataclasses import fields
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from smallage_django.backend import _OPTIONS
from smallage_django.conf import _READERS, Config, build
from smallage_django.domain.lifecycle import INITIAL, REASONS, TRANSITIONS, State
from smallage_django.domain.recurrence import Cron, next_occurrences

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMES = re.compile(r"`([^`]+)`")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def table(text: str, head: str) -> list[list[str]]:
    """The rows of the tables whose header begins with ``head``, as cells."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(head):
            inside = True
        elif inside and not line.startswith("|---"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    assert found, f"there is no table {head!r}"
    return found


def name_in(cell: str) -> str:
    return NAMES.findall(cell)[0]


def anchors(path: Path) -> set[str]:
    """What the headings of a page are linked by."""
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def snippets() -> list[Any]:
    return [
        pytest.param(code, id=f"{path.relative_to(ROOT).as_posix()}-{number}")
        for path in PAGES
        for number, (language, code) in enumerate(CODE.findall(path.read_text(encoding="utf-8")))
        if language == "python"
    ]


class TestLifeOfARun:
    def test_the_transition_table_is_the_one_of_the_code(self) -> None:
        told = {
            State(name_in(source)): {State(target) for target in NAMES.findall(targets)}
            for source, targets in table(page("life-of-a-run.md"), "| from | to |")
        }

        assert told == {state: set(targets) for state, targets in TRANSITIONS.items()}

    def test_every_state_is_explained(self) -> None:
        told = [name_in(row[0]) for row in table(page("life-of-a-run.md"), "| state | meaning |")]

        assert sorted(told) == sorted(state.value for state in State)

    def test_the_states_of_insertion_are_those_of_the_code(self) -> None:
        (sentence,) = re.findall(r"A row is inserted as one of: (.+)\.", page("life-of-a-run.md"))

        assert set(NAMES.findall(sentence)) == {state.value for state in INITIAL}

    def test_every_reason_code_stands_with_its_state(self) -> None:
        rows = table(page("life-of-a-run.md"), "| state | code | when |")
        told = [(name_in(state), name_in(code)) for state, code, _ in rows]

        assert sorted(told) == sorted(
            (state.value, reason.value) for state, reasons in REASONS.items() for reason in reasons
        )

    def test_a_reason_that_nothing_gives_yet_is_marked_so(self) -> None:
        rows = table(page("life-of-a-run.md"), "| state | code | when |")
        package = ROOT / "smallage_django"
        acting = [*(package / "store").rglob("*.py"), *(package / "domain").glob("*.py")]
        acting += [package / name for name in ("worker.py", "runner.py", "outcomes.py")]
        text = "\n".join(
            path.read_text(encoding="utf-8") for path in acting if path.name != "lifecycle.py"
        )

        for _, code, when in rows:
            name = name_in(code)
            given = f"Reason.{name.upper()}" in text
            # The verdict has a word for an end that no runner reports yet.
            assert (when == "*later*") is (not given or name == "timed_out"), name


class TestSettings:
    def test_the_table_has_every_key_in_order(self) -> None:
        rows = table(page("settings.md"), "| key | type | default | meaning |")
        told = [name_in(row[0]) for row in rows]
        known = [item.name.upper() for item in fields(Config)]

        assert told[: len(known)] == known
        assert sorted(told[len(known) :]) == sorted(_OPTIONS)

    def test_the_defaults_are_those_of_the_code(self) -> None:
        rows = table(page("settings.md"), "| key | type | default | meaning |")
        told = {
            name_in(key): ast.literal_eval(name_in(value))
            for key, _, value, _ in rows[: len(fields(Config))]
        }

        assert build(told) == Config()

    def test_durations_are_called_durations(self) -> None:
        rows = table(page("settings.md"), "| key | type | default | meaning |")[
            : len(fields(Config))
        ]
        told = {name_in(key).lower() for key, kind, _, _ in rows if kind == "duration"}

        assert told == {item.name for item in fields(Config)} - set(_READERS)

    def test_what_has_no_effect_is_marked_so(self) -> None:
        rows = table(page("settings.md"), "| key | type | default | meaning |")[
            : len(fields(Config))
        ]
        text = "\n".join(
            path.read_text(encoding="utf-8")
            for path in (ROOT / "smallage_django").rglob("*.py")
            if path.name != "conf.py"
        )

        for key, _, _, meaning in rows:
            read = re.search(rf"(?:settings|config\(\)|Config\(\))\.{name_in(key).lower()}\b", text)
            assert ("*no effect yet*" in meaning) is (read is None), name_in(key)


class TestChecks:
    def test_the_table_has_every_id(self) -> None:
        told = [name_in(row[0]) for row in table(page("checks.md"), "| id | means |")]
        text = "\n".join(
            path.read_text(encoding="utf-8") for path in (ROOT / "smallage_django").rglob("*.py")
        )

        assert sorted(told) == sorted(set(re.findall(r'id="(smallage_django\.[A-Z]\d{3})"', text)))


class TestCommands:
    def test_the_page_has_every_command(self) -> None:
        told = re.findall(r"^## (smallage_\w+)$", page("commands.md"), re.MULTILINE)
        folder = ROOT / "smallage_django" / "management" / "commands"

        assert sorted(told) == sorted(
            path.stem for path in folder.glob("*.py") if path.stem != "__init__"
        )

    @pytest.mark.parametrize("name", ["smallage_scheduler", "smallage_worker", "smallage_demo"])
    def test_each_command_is_told_with_all_its_options(self, name: str) -> None:
        section = page("commands.md").partition(f"## {name}\n")[2].partition("\n## ")[0]
        rows = table(section, "| option | meaning |")
        told = {name_in(row[0]).split()[0] for row in rows}

        assert told == options_of(load_command_class("smallage_django", name)) - options_of(
            BaseCommand()
        )


def options_of(command: BaseCommand) -> set[str]:
    parser = command.create_parser("manage.py", "command")
    # The list of actions has no public name.
    actions: list[argparse.Action] = parser._actions
    return {option for action in actions for option in action.option_strings}


class TestTheClock:
    def test_the_nights_in_berlin_are_as_told(self) -> None:
        for rule, after, occurrences, _ in table(page("clock.md"), "| rule | strictly after"):
            asked = datetime.fromisoformat(after).replace(tzinfo=UTC)
            told = occurrences.split(", ")
            found = next_occurrences(Cron(name_in(rule), tz="Europe/Berlin"), asked, len(told))

            assert [at.strftime("%m-%d %H:%M") for at in found] == told, rule


class TestPages:
    @pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
    def test_every_link_leads_somewhere(self, path: Path) -> None:
        text = CODE.sub("", path.read_text(encoding="utf-8"))
        for link in LINK.findall(text):
            if link.startswith(("http://", "https://")):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.is_file(), link
            assert ROOT in target.parents, link
            assert not anchor or anchor in anchors(target), link

    def test_the_index_leads_to_every_page(self) -> None:
        told = set(LINK.findall(page("index.md")))
        missing = [
            path.name for path in PAGES if path.parent.name == "docs" and path.name not in told
        ]

        assert missing == ["index.md"]

    @pytest.mark.parametrize("code", snippets())
    def test_every_snippet_is_python_and_imports_what_there_is(self, code: str) -> None:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("smallage_django"):
                module = import_module(str(node.module))
                for name in node.names:
                    whole = f"{node.module}.{name.name}"
                    # A module is an attribute of its package only once somebody has imported it.
                    assert hasattr(module, name.name) or find_spec(whole), whole

    @pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
    def test_nothing_more_is_promised_than_is_kept(self, path: Path) -> None:
        assert "exactly once" not in path.read_text(encoding="utf-8").lower().replace("-", " ")
