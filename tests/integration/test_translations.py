"""The German catalogue is whole, is compiled as it stands, and is what a German browser gets."""

from __future__ import annotations

import ast
import gettext
import re
from pathlib import Path

import pytest
from django.test.utils import override_settings
from django.urls import reverse
from django.utils import translation

import smallage_django
from tests.support.admin import client_of, make_run, make_schedule, person

CATALOGUE = Path(smallage_django.__file__).parent / "locale/de/LC_MESSAGES/django.po"
#: Python's placeholders, by name or by position.
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sdr]")

Entry = dict[str, str]


def entries(text: str) -> list[Entry]:
    """The entries of a .po file by keyword (msgid, msgid_plural, msgstr, msgstr[0] …), without the header."""
    found: list[Entry] = []
    for block in re.split(r"\n\s*\n", text):
        entry: Entry = {}
        keyword = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            name, _, quoted = line.partition('"')
            keyword = name.strip() or keyword
            entry[keyword] = entry.get(keyword, "") + ast.literal_eval(f'"{quoted}')
        if entry.get("msgid"):
            found.append(entry)
    return found


def translations(entry: Entry) -> list[str]:
    return [text for keyword, text in entry.items() if keyword.startswith("msgstr")]


@pytest.fixture(scope="module")
def german() -> list[Entry]:
    return entries(CATALOGUE.read_text(encoding="utf-8"))


def test_the_german_catalogue_has_no_guessed_no_obsolete_and_no_empty_entry(
    german: list[Entry],
) -> None:
    text = CATALOGUE.read_text(encoding="utf-8")

    assert len(german) > 400
    assert not re.search(r"^#,.*fuzzy|^#~", text, re.MULTILINE)
    assert [entry["msgid"] for entry in german if not all(translations(entry))] == []


def test_german_sentences_keep_the_placeholders_of_the_english_ones(german: list[Entry]) -> None:
    wrong = [
        entry["msgid"]
        for entry in german
        for text in translations(entry)
        if sorted(PLACEHOLDER.findall(text)) != sorted(PLACEHOLDER.findall(entry["msgid"]))
    ]

    assert wrong == []


def test_the_compiled_german_catalogue_is_the_one_that_people_edit(german: list[Entry]) -> None:
    """After an edit: ``msgfmt --check -o django.mo django.po`` in the catalogue's folder."""
    compiled_file = CATALOGUE.with_suffix(".mo")
    with compiled_file.open("rb") as file:
        compiled = gettext.GNUTranslations(file)

    for entry in german:
        if "msgid_plural" in entry:
            forms = [compiled.ngettext(entry["msgid"], entry["msgid_plural"], n) for n in (1, 2)]
        else:
            forms = [compiled.gettext(entry["msgid"])]
        assert forms == translations(entry)
    # The format's third number counts its strings; the header is one of them.
    count = int.from_bytes(compiled_file.read_bytes()[8:12], "little")
    assert count == len(german) + 1, "the compiled catalogue has entries that the other has not"


@pytest.mark.django_db
@override_settings(
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.locale.LocaleMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
)
@pytest.mark.parametrize(("language", "state"), [("de", "verpasst"), ("en", "missed")])
def test_the_list_of_runs_tells_states_in_the_reader_s_language(language: str, state: str) -> None:
    make_run(schedule=make_schedule(), state="missed", started_at=None, finished_at=None)
    reader = client_of(person(superuser=True))

    # The middleware leaves its language behind in the thread.
    with translation.override("en"):
        page = reader.get(
            reverse("admin:smallage_django_run_changelist"), headers={"Accept-Language": language}
        )

    assert page.status_code == 200
    badge = re.search(
        r'class="smallage-state smallage-state-missed">.*?</span> (\w+)</span>', page.text
    )
    assert badge is not None
    assert badge[1] == state
