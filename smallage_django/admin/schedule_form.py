"""The form of a schedule: what, when, what to do when things go wrong, and its state.

Everything is checked by the model (``Schedule.clean``); this form reads what people type and shows each message at the
field that has to change.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django import forms
from django.conf import settings
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import router
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..domain.policies import MissedPolicy, OverlapPolicy
from ..models import MISSED_LABELS, OVERLAP_LABELS, Schedule, ScheduleKind, ScheduleRevision, Unit
from . import fields, formatting, reading, salvage

_INSTANTS: Final = ("starts_at", "ends_at", "anchor")
#: What an empty or absent box means, for columns that cannot be empty.
_DEFAULTS: Final[dict[str, Any]] = {
    "missed_policy": MissedPolicy.LATEST.value,
    "overlap_policy": OverlapPolicy.SKIP.value,
    "catch_up_limit": 100,
}
_BACKOFFS: Final = (
    ("", _("the task's own, else 1 s, 2 s, 4 s … up to 5 min")),
    ("constant(30)", _("always 30 s")),
    ("linear(30,cap=600)", _("30 s, 60 s, 90 s … up to 10 min")),
    ("exponential(10,cap=3600)", _("10 s, 20 s, 40 s … up to 1 h")),
    ("exponential(60,cap=86400)", _("1 min, 2 min, 4 min … up to 1 d")),
)


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """One form for every kind of schedule."""

    task = fields.TaskField(label=_("Task"))
    kwargs = fields.JSONText(
        kind=dict,
        words=_("a JSON object"),
        label=_("Arguments"),
        help_text=_('The task\'s named arguments as a JSON object, such as {"days": 7}.'),
    )
    queue = forms.ChoiceField(label=_("Queue"), required=False)
    tags = fields.TagsText(label=_("Tags"), help_text=_("Separated by commas."))
    kind = forms.ChoiceField(label=_("Kind"))
    unit = forms.ChoiceField(
        label=_("Unit"), required=False, choices=[("", "---------"), *Unit.choices]
    )
    timezone = fields.ZoneField(label=_("Time zone"))
    anchor = fields.InstantText(
        label=_("Counted from"),
        required=False,
        help_text=_("Intervals only. Empty: from the moment the schedule was created."),
    )
    starts_at = fields.InstantText(
        label=_("From"),
        required=False,
        help_text=_("In the schedule's time zone. Empty: at once."),
    )
    ends_at = fields.InstantText(
        label=_("Until"),
        required=False,
        help_text=_("In the schedule's time zone, included. Empty: for ever."),
    )
    jitter = fields.DurationText(
        label=_("Jitter"),
        empty=timedelta(0),
        help_text=_("Spreads each fire over so much time after its instant, always the same way."),
    )
    late_after = fields.DurationText(
        label=_("Late after"),
        help_text=_(
            "Mark a run late when it starts more than this after its time (only marks). E.g. 5 min."
        ),
    )
    start_deadline = fields.DurationText(
        label=_("Give up after"),
        help_text=_("A run that could start only later than this expires. Empty: run anyway."),
    )
    missed_policy = forms.ChoiceField(
        label=_("When no scheduler was alive"),
        required=False,
        widget=forms.RadioSelect(attrs={"class": "radiolist"}),
    )
    misfire_grace = fields.DurationText(
        label=_("Missed after"),
        empty=timedelta(seconds=60),
        help_text=_("An outage that reaches no further beyond an occurrence only makes it late."),
    )
    catch_up_limit = forms.IntegerField(
        label=_("At most"),
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text=_("Most runs that “each missed occurrence” may ask for after one outage."),
    )
    catch_up_window = fields.DurationText(
        label=_("Not older than"),
        help_text=_("“Each missed occurrence” looks back so far. Empty: the whole outage."),
    )
    overlap_policy = forms.ChoiceField(
        label=_("When the earlier run still works"),
        required=False,
        widget=forms.RadioSelect(attrs={"class": "radiolist"}),
    )
    backoff = forms.ChoiceField(label=_("Wait between attempts"), required=False)
    timeout = fields.DurationText(
        label=_("Timeout"), help_text=_("Of one attempt. Empty: the task's own, else none.")
    )
    note = forms.CharField(
        label=_("Note for this change"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Kept with the schedule's history."),
    )
    seen_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Schedule
        fields = (
            "name",
            "task",
            "kwargs",
            "queue",
            "tags",
            "description",
            "kind",
            "expression",
            "every",
            "unit",
            "anchor",
            "timezone",
            "starts_at",
            "ends_at",
            "max_runs",
            "jitter",
            "late_after",
            "start_deadline",
            "missed_policy",
            "misfire_grace",
            "catch_up_limit",
            "catch_up_window",
            "overlap_policy",
            "max_attempts",
            "backoff",
            "timeout",
            "enabled",
            "owner",
        )
        help_texts = {
            "name": _("Unique. Shown everywhere; may be changed."),
            "expression": _(
                "Five fields: minute, hour, day of month, month, day of week. "
                "E.g. 30 2 * * * is every day at 02:30."
            ),
            "max_runs": _("Empty: no limit."),
            "max_attempts": _("In all, the first included. Empty: the task's own, else 3."),
            "enabled": _("Off is paused: nothing is owed for the time it is off."),
        }
        labels = {"every": _("Every (intervals only)")}
        widgets = {"description": forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        self._offer(row)
        if row.pk is None:
            self.initial.setdefault("timezone", _site_zone())
            for name in self.fields.keys() & self.declared_fields.keys():
                # Django takes a model's defaults over only for the fields that it makes itself.
                self.initial.setdefault(name, getattr(row, name, None))
            return
        zone, _name = formatting.zone(row.timezone)
        for name in _INSTANTS:
            value = getattr(row, name)
            self.initial[name] = (
                reading.write_instant(value, zone) if isinstance(value, datetime) else ""
            )
        self.initial["seen_version"] = row.version
        broken = salvage.unreadable(row)
        self.initial.update({name: raw for name, raw in broken.items() if name in self.fields})

    def _offer(self, row: Schedule) -> None:
        """Set the choices: what works, and whatever the row has now."""
        kinds = [(kind.value, kind.label) for kind in (ScheduleKind.CRON, ScheduleKind.INTERVAL)]
        missed = [(key.value, MISSED_LABELS[key]) for key in MissedPolicy]
        overlaps = [
            (key.value, OVERLAP_LABELS[key]) for key in (OverlapPolicy.SKIP, OverlapPolicy.ALLOW)
        ]
        choices: dict[str, Any] = {
            "kind": kinds,
            "queue": fields.queue_choices(_("the task's own")),
            "missed_policy": missed,
            "overlap_policy": overlaps,
            "backoff": list(_BACKOFFS),
        }
        for name, offered in choices.items():
            if name in self.fields:
                field: Any = self.fields[name]
                field.choices = fields.with_current(offered, getattr(row, name))
        if "task" in self.fields:
            task: Any = self.fields["task"]
            task.keep(row.task)
            task.help_text = fields.task_help(row.task)
        if "timezone" in self.fields:
            self.fields["timezone"].help_text = _zone_help(row.timezone or _site_zone())

    def clean(self) -> dict[str, Any]:
        """Read the instants in the schedule's zone, fill in what was left out, see whether the row has moved on."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        for name, default in _DEFAULTS.items():
            if name not in self.errors and data.get(name) in (None, ""):
                data[name] = default
        self._read_instants(data)
        self._refuse_conflict(data.get("seen_version"))
        return data

    def _read_instants(self, data: dict[str, Any]) -> None:
        name = data.get("timezone") or "UTC"
        zone, shown = formatting.zone(name)
        known = shown == name
        for field in _INSTANTS:
            text = data.pop(field, None)
            if text is None:
                continue
            try:
                at = reading.read_instant(text, zone, name) if text else None
                if known:
                    # Else only its form was checked: the zone has a message of its own.
                    data[field] = at
            except ValidationError as error:
                self.add_error(field, error)

    def _refuse_conflict(self, seen: int | None) -> None:
        if self.instance.pk is None or seen is None:
            return
        rows = Schedule.objects.using(router.db_for_write(Schedule))
        current = rows.filter(pk=self.instance.pk).values_list("version", flat=True).first()
        if current is None:
            raise ValidationError(_("This schedule was deleted meanwhile."), code="gone")
        if current != seen:
            raise ValidationError(self._conflict_words(current - seen), code="conflict")

    def _conflict_words(self, changes: int) -> str:
        """Who changed what since this form was opened."""
        revisions = ScheduleRevision.objects.using(router.db_for_write(Schedule)).filter(
            schedule_uid=self.instance.uid
        )
        told = [
            gettext("%(who)s changed %(what)s on %(when)s")
            % {
                "who": revision.who or gettext("somebody"),
                "what": salvage.labels(Schedule, list(revision.changes)) or "?",
                "when": formatting.plain(revision.at, timezone.get_current_timezone_name()),
            }
            for revision in revisions.order_by("-number")[: max(1, min(changes, 5))]
        ]
        return gettext(
            "This schedule was changed since you opened it, so nothing was saved: %(changes)s. "
            "Open it again in another tab to compare, and repeat your change there."
        ) % {"changes": "; ".join(told) or "?"}

    def _update_errors(self, errors: ValidationError) -> None:
        """Put the model's messages at this form's fields; what has no field here is told above."""
        if not hasattr(errors, "error_dict"):
            super()._update_errors(errors)  # type: ignore[misc]
            return
        placed: dict[str, list[Any]] = {}
        for name, found in errors.error_dict.items():
            if name != NON_FIELD_ERRORS and name not in self.fields:
                label = salvage.labels(Schedule, [name])
                told = [ValidationError(f"{label}: {text}") for one in found for text in one]
                placed.setdefault(NON_FIELD_ERRORS, []).extend(told)
            elif name not in self.errors:
                # A box that could not be read needs no second message about the value it did not give.
                placed.setdefault(name, []).extend(found)
        if placed:
            super()._update_errors(ValidationError(placed))  # type: ignore[misc]


def _site_zone() -> str:
    return settings.TIME_ZONE if settings.TIME_ZONE in fields.zone_names() else "UTC"


def _zone_help(name: str) -> str:
    shown = formatting.plain(datetime.now(UTC), name)
    return gettext("An IANA name such as Europe/Berlin. Now it is %(now)s.") % {"now": shown}
