"""Form fields and widgets of the admin's forms: a task of the registry, a zone, an instant, a duration, JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from django import forms
from django.apps import apps
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from .. import registry
from ..arguments import describe
from ..conf import config
from ..errors import SmallageError
from .formatting import exact_duration
from .reading import read_duration, read_json

_NO_CHOICE: Final = ("", "---------")


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Every IANA zone of the ``tzdata`` package, as it lists them."""
    text = (resources.files("tzdata") / "zones").read_text("utf-8")
    return tuple(sorted(text.split()))


class ZoneInput(forms.TextInput):
    """A text input that offers the zones."""

    template_name = "admin/smallage_django/widgets/zone.html"

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, value, attrs)
        widget = context["widget"]
        list_id = f"{widget['attrs'].get('id', name)}_zones"
        widget["attrs"] |= {"list": list_id, "autocomplete": "off", "spellcheck": "false"}
        widget["zones"], widget["list_id"] = zone_names(), list_id
        return context


class ZoneField(forms.CharField):
    """The name of a zone. Whether there is such a one is the model's to say."""

    widget = ZoneInput(attrs={"class": "vTextField", "size": 40})

    def __init__(self, **options: Any) -> None:
        options.setdefault("max_length", 64)
        super().__init__(**options)


class InstantText(forms.CharField):
    """A date and time as text; the form reads it in the zone that it names."""

    widget = forms.TextInput(
        attrs={"class": "vTextField", "size": 32, "placeholder": "YYYY-MM-DD HH:MM"}
    )

    def __init__(self, **options: Any) -> None:
        options.setdefault("max_length", 40)
        super().__init__(**options)


class DurationText(forms.CharField):
    """A duration with units; ``empty`` is what an empty box means."""

    widget = forms.TextInput(attrs={"class": "smallage-duration", "size": 16})

    def __init__(self, *, empty: timedelta | None = None, **options: Any) -> None:
        self.empty = empty
        super().__init__(**{"required": False, "max_length": 64, **options})

    def prepare_value(self, value: Any) -> Any:
        return exact_duration(value) if isinstance(value, timedelta) else value

    def clean(self, value: Any) -> timedelta | None:
        text: str = super().clean(value)
        return read_duration(text) if text else self.empty

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != initial)
        except ValidationError:
            return True


class JSONText(forms.CharField):
    """A JSON value of one type, with messages that name line and column, and the text kept as it was typed."""

    def __init__(self, *, kind: type, words: Any, **options: Any) -> None:
        self.kind, self.words = kind, words
        rows = {
            "rows": 4,
            "cols": 60,
            "class": "vLargeTextField smallage-code",
            "spellcheck": "false",
        }
        super().__init__(**{"required": False, "widget": forms.Textarea(attrs=rows), **options})

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False) if value is not None else ""

    def clean(self, value: Any) -> Any:
        text: str = super().clean(value)
        return read_json(text, self.kind, str(self.words)) if text.strip() else self.kind()

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != initial)
        except ValidationError:
            return True


class TagsText(forms.CharField):
    """Tags, separated by commas."""

    def __init__(self, **options: Any) -> None:
        widget = forms.TextInput(attrs={"class": "vTextField"})
        super().__init__(**{"required": False, "widget": widget, **options})

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(str(tag) for tag in value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        text: str = super().clean(value)
        return list(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.clean(data) != (initial or []))


class TaskField(forms.ChoiceField):
    """A task of the registry, grouped by app. What a row has now may be kept, also where nobody knows it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"choices": task_choices, **options})

    def keep(self, path: str) -> None:
        """Offer ``path`` although no process may know it."""
        if path and not registry.is_registered(path):
            known = _choices_of(task_choices)
            self.choices = [*known, (_("Not registered in this process"), [(path, path)])]

    def validate(self, value: Any) -> None:
        forms.Field.validate(self, value)
        if value and not self.valid_value(value):
            raise ValidationError(
                _("%(value)r is not registered in this process."),
                code="invalid_choice",
                params={"value": str(value)[:255]},
            )


def _choices_of(choices: Callable[[], Any]) -> list[Any]:
    found: list[Any] = choices()
    return found


def task_choices() -> list[Any]:
    """App > task, with the first line of the docstring."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for path, task in registry.tasks().items():
        groups.setdefault(_app_name(path), []).append((path, _task_words(path, task)))
    return [_NO_CHOICE, *sorted(groups.items())]


def task_help(path: str) -> str:
    """The first line of a task's docstring and the arguments that it takes; empty where it is unknown."""
    task: Any = registry.tasks().get(path)
    if task is None:
        return ""
    parts = [_first_line(task), str(_("Arguments: %s") % describe(task.func, task.takes_context))]
    return " ".join(part for part in parts if part)


def _app_name(path: str) -> str:
    config_of = apps.get_containing_app_config(path)
    return str(config_of.verbose_name) if config_of is not None else path.rpartition(".")[0]


def _task_words(path: str, task: Any) -> str:
    name, line = path.rpartition(".")[2], _first_line(task)
    return f"{name} – {line}" if line else name


def _first_line(task: Any) -> str:
    lines = (inspect.getdoc(task.func) or "").splitlines()
    return lines[0][:100] if lines else ""


def queue_choices(empty: Any) -> list[tuple[str, Any]]:
    """The queues of the settings; the first choice, ``empty``, leaves it to the task."""
    try:
        names = config().queues
    except SmallageError:
        names = ()
    return [("", empty), *((name, name) for name in names)]


def with_current(choices: Mapping[Any, Any] | list[tuple[Any, Any]], value: Any) -> list[Any]:
    """Choices that have the value of the row, whatever it is."""
    listed = list(choices.items()) if isinstance(choices, Mapping) else list(choices)
    if value not in (None, "") and value not in [key for key, _label in listed]:
        listed.append((value, value))
    return listed
