"""The pages of schedules: list, form, pause and resume."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import router
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import registry
from ..models import Schedule
from ..publishing import wake_after_commit
from ..querysets import PLANNING_INPUTS
from ..store import revising
from ..store.clock import DatabaseNow
from ..store.revising import Author
from . import formatting, salvage
from .buttons import Done, Question, SmallageButtonsMixin, smallage_button
from .schedule_form import ScheduleForm
from .schedule_list import QueueFilter, ScheduleChangeList, StateFilter, TaskFilter
from .schedule_rows import computed_fire, fire_words, pending_fire, rule_text, shown_state

PAUSE: Final = "smallage_django.pause_schedule"
VIEW_PAYLOAD: Final = "smallage_django.view_payload"
_WHAT: Final = ("name", "task", "kwargs", "queue", "tags", "description")
_WHEN: Final = (
    "kind",
    "expression",
    ("every", "unit"),
    "anchor",
    "timezone",
    "starts_at",
    "ends_at",
    "max_runs",
    "jitter",
)
_WRONG: Final = (
    "late_after",
    "start_deadline",
    "missed_policy",
    "misfire_grace",
    ("catch_up_limit", "catch_up_window"),
    "overlap_policy",
    "max_attempts",
    "backoff",
    "timeout",
)
#: Fields that a page without a form shows by a method of the same name with this ending.
_SHOWN: Final = "_shown"
_BY_METHOD: Final = (
    "kwargs",
    "tags",
    "anchor",
    "starts_at",
    "ends_at",
    "jitter",
    "late_after",
    "start_deadline",
    "misfire_grace",
    "catch_up_window",
    "timeout",
)


class Conflict(Exception):
    """The row changed between the check of the form and its saving."""


class PauseForm(forms.Form):
    """Why a schedule is paused."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=255,
        required=False,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


@admin.register(Schedule)
class ScheduleAdmin(SmallageButtonsMixin, admin.ModelAdmin):  # type: ignore[type-arg, misc]
    """Schedules: the standing rules."""

    form = ScheduleForm
    list_display = ("name", "rule", "work", "next_fire", "shown_state", "last_run", "is_enabled")
    list_filter = (StateFilter, "enabled", "kind", QueueFilter, TaskFilter)
    search_fields = ("name", "task", "expression", "owner")
    search_help_text = _("Name, task, expression or owner.")
    ordering = (F("next_due_at").asc(nulls_last=True), "pk")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    save_on_top = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ScheduleChangeList

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Schedule | None:
        try:
            found: Any = super().get_object(request, object_id, from_field)
            found = salvage.checked(found) if found is not None else None
        except salvage.UNREADABLE:
            found = salvage.one(Schedule, object_id)
        if found is not None:
            found.may_see_payload = request.user.has_perm(VIEW_PAYLOAD)
        return found  # type: ignore[no-any-return]

    # -- columns

    @admin.display(description=_("rule"), ordering="expression")
    def rule(self, obj: Schedule) -> SafeString:
        return format_html(
            '<code class="smallage-code">{}</code><br><span class="smallage-quiet">{}</span>',
            rule_text(obj),
            obj.timezone,
        )

    @admin.display(description=_("task"), ordering="task")
    def work(self, obj: Schedule) -> SafeString:
        module, _dot, name = obj.task.rpartition(".")
        text = format_html('{}<br><span class="smallage-quiet">{}</span>', name or obj.task, module)
        if registry.is_registered(obj.task):
            return text
        return format_html("{} {}", text, formatting.badge(_("unknown task"), "error"))

    @admin.display(description=_("next fire"), ordering=F("next_due_at").asc(nulls_last=True))
    def next_fire(self, obj: Any) -> SafeString | str:
        at, why = pending_fire(obj, obj.page_now)
        if at is None:
            # The column beside has the reason in full.
            return format_html('<span class="smallage-quiet">{}</span>', why.partition(":")[0])
        return formatting.moment(at, obj.timezone, obj.page_now)

    @admin.display(description=_("state"))
    def shown_state(self, obj: Any) -> SafeString:
        now = obj.page_now if hasattr(obj, "page_now") else self._now()
        state, reason = shown_state(obj, now)
        shown = formatting.schedule_badge(state)
        if not reason:
            return shown
        return format_html('{}<br><span class="smallage-reason">{}</span>', shown, reason)

    @admin.display(description=_("last run"))
    def last_run(self, obj: Any) -> SafeString | str:
        run = obj.last_run
        if run is None:
            return formatting.EMPTY
        late = bool(run.late_at and run.first_started_at and run.first_started_at > run.late_at)
        url = reverse(f"{self.admin_site.name}:smallage_django_run_change", args=[run.pk])
        return format_html(
            '<a href="{}">{}</a><br><span class="smallage-quiet">{}</span>',
            url,
            formatting.state_badge(run.state, late=late),
            formatting.relative(run.scheduled_for, obj.page_now),
        )

    @admin.display(description=_("enabled"), boolean=True, ordering="enabled")
    def is_enabled(self, obj: Schedule) -> bool:
        return obj.enabled

    # -- the form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        state: tuple[Any, ...] = ("enabled", "owner", "note", "seen_version")
        what: tuple[Any, ...] = _WHAT
        if obj is not None and not self.has_change_permission(request, obj):
            state = ("shown_state", "next_shown", "enabled", "owner")
            return _by_method(_sets(what, state))
        if obj is not None:
            state = ("shown_state", "next_shown", *state)
            if not obj.may_see_payload:
                what = tuple("kwargs_shown" if name == "kwargs" else name for name in what)
        return _sets(what, state)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return ()
        return ("shown_state", "next_shown", *(f"{name}{_SHOWN}" for name in _BY_METHOD))

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        if obj is not None and not obj.may_see_payload:
            # Who may not see the arguments cannot change them either.
            return type(form)("ScheduleForm", (form,), {"kwargs": None})
        return form

    @admin.display(description=_("next fire"))
    def next_shown(self, obj: Schedule) -> SafeString | str:
        now = self._now()
        at, why = pending_fire(obj, now)
        return formatting.moment(at, obj.timezone, now) if at is not None else why

    @admin.display(description=_("arguments"))
    def kwargs_shown(self, obj: Schedule) -> SafeString | str:
        if not getattr(obj, "may_see_payload", False):
            return gettext(
                "hidden: seeing them needs the permission “Can see arguments and results”"
            )
        return format_html(
            '<pre class="smallage-code">{}</pre>', formatting.pretty_json(obj.kwargs)
        )

    @admin.display(description=_("tags"))
    def tags_shown(self, obj: Schedule) -> str:
        return ", ".join(map(str, obj.tags)) if isinstance(obj.tags, list) else str(obj.tags)

    # -- saving

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        try:
            answer: HttpResponse = super().changeform_view(
                request, object_id, form_url, extra_context
            )
        except Conflict:
            # Somebody was faster by a moment: checked anew, the form tells who and what.
            answer = super().changeform_view(request, object_id, form_url, extra_context)
        return answer

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Write what was changed, where the row is still what the form showed; nothing is fired.

        Raises ``Conflict`` where it is not.
        """
        alias = router.db_for_write(Schedule)
        author = Author(request.user.get_username(), "admin", form.cleaned_data.get("note", ""))
        if not change:
            obj.save(using=alias)
            revising.record_creation(alias, obj, list(ScheduleForm.Meta.fields), author)
            # An interval counts from the moment of saving, which is the database's to tell.
            obj.refresh_from_db(using=alias, fields=["created_at"])
            now = self._now()
            at, why = computed_fire(obj, now) if obj.enabled else (None, gettext("paused"))
            told = gettext("Nothing was fired. The next fire is %(now)s.")
            self.message_user(request, told % {"now": fire_words(obj, at, why)})
            return
        before = salvage.one(Schedule, obj.pk)
        if before is None:
            raise Conflict
        now = self._now()
        was = pending_fire(before, now)
        values = _changed(before, obj, form)
        seen = form.cleaned_data.get("seen_version")
        if values:
            before.version = seen if seen is not None else before.version
            if not revising.revise(alias, before, values, author):
                raise Conflict
            wake_after_commit(alias)
        self._tell_change(request, obj, was, values, now)

    def _tell_change(
        self,
        request: HttpRequest,
        obj: Schedule,
        was: tuple[datetime | None, str],
        values: dict[str, Any],
        now: datetime,
    ) -> None:
        if not values:
            self.message_user(request, gettext("Nothing was different, nothing was changed."))
            return
        if not obj.enabled:
            is_now: tuple[datetime | None, str] = (None, gettext("paused"))
        elif values.keys() & set(PLANNING_INPUTS) or was[0] is None:
            is_now = computed_fire(obj, now)
        else:
            is_now = was
        told = gettext("Nothing was fired. The pending fire was %(was)s, is now %(now)s.")
        facts = {"was": fire_words(obj, *was), "now": fire_words(obj, *is_now)}
        self.message_user(request, told % facts)

    def _now(self) -> datetime:
        return DatabaseNow(router.db_for_read(Schedule)).now()

    # -- pause and resume

    @smallage_button(permission=PAUSE, label=_("Pause…"), visible=lambda obj: obj.enabled)
    def pause(self, request: HttpRequest, obj: Schedule) -> HttpResponse:
        at, _why = pending_fire(obj, self._now())
        consequences = [
            gettext("The fire at %(at)s will not happen.")
            % {"at": formatting.plain(at, obj.timezone)}
            if at is not None
            else gettext("There is no pending fire."),
            gettext("Nothing is owed for the time it is paused."),
            gettext("Runs that have already been handed over go on."),
        ]
        question = Question(
            heading=gettext("Pause %(name)s?") % {"name": obj.name},
            consequences=consequences,
            act=lambda facts: self._switch(request, obj, on=False, reason=facts["reason"]),
            confirm=_("Pause"),
            form=PauseForm,
        )
        return self.ask(request, question, obj)

    @smallage_button(permission=PAUSE, label=_("Resume…"), visible=lambda obj: not obj.enabled)
    def resume(self, request: HttpRequest, obj: Schedule) -> HttpResponse:
        at, why = computed_fire(obj, self._now())
        question = Question(
            heading=gettext("Resume %(name)s?") % {"name": obj.name},
            consequences=[
                gettext("The next fire is %(at)s.") % {"at": fire_words(obj, at, why)},
                gettext("Nothing is owed for the time it was paused."),
            ],
            act=lambda _facts: self._switch(request, obj, on=True, reason=""),
            confirm=_("Resume"),
        )
        return self.ask(request, question, obj)

    def _switch(self, request: HttpRequest, obj: Schedule, *, on: bool, reason: str) -> Done:
        alias = router.db_for_write(Schedule)
        author = Author(request.user.get_username(), "admin", reason)
        values = {"enabled": on, "pause_reason": reason}
        if not revising.revise(alias, obj, values, author, enabled=not on):
            return Done(
                gettext("%(name)s had changed meanwhile; nothing was done.") % {"name": obj.name},
                messages.WARNING,
            )
        wake_after_commit(alias)
        self.log_change(request, obj, [{"changed": {"fields": ["enabled"]}}])
        told = gettext("%(name)s was resumed.") if on else gettext("%(name)s was paused.")
        return Done(told % {"name": obj.name})


# -- Pages without a form ---------------------------------------------------------------------------------------------


def _sets(what: Any, state: Any) -> list[tuple[Any, dict[str, Any]]]:
    return [
        (_("What"), {"fields": what}),
        (_("When"), {"fields": _WHEN}),
        (_("If things go wrong"), {"fields": _WRONG}),
        (_("State"), {"fields": state}),
    ]


def _by_method(sets: list[tuple[Any, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any]]]:
    """The same fieldsets, with a method in place of each field that Django would show without zone or unit."""

    def shown(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(shown(inner) for inner in item)
        return f"{item}{_SHOWN}" if item in _BY_METHOD else item

    return [(name, {"fields": tuple(map(shown, options["fields"]))}) for name, options in sets]


def _changed(before: Schedule, after: Schedule, form: Any) -> dict[str, Any]:
    """The inputs that differ from the row, or could not be read there."""
    broken = salvage.unreadable(before)
    values = {
        name: getattr(after, name)
        for name in ScheduleForm.Meta.fields
        if name in form.fields and (name in broken or getattr(after, name) != getattr(before, name))
    }
    if "enabled" in values:
        values["pause_reason"] = "" if after.enabled else form.cleaned_data.get("note", "")[:255]
    return values


def _shown_method(name: str) -> Callable[[ScheduleAdmin, Schedule], Any]:
    label = getattr(Schedule._meta.get_field(name), "verbose_name", name)

    @admin.display(description=label)
    def shown(_admin: ScheduleAdmin, obj: Schedule) -> Any:
        value = getattr(obj, name)
        if isinstance(value, datetime):
            return formatting.both_zones(value, obj.timezone)
        return formatting.exact_duration(value) or formatting.EMPTY

    return shown


for _name in _BY_METHOD[2:]:
    setattr(ScheduleAdmin, f"{_name}{_SHOWN}", _shown_method(_name))
