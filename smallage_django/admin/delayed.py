"""The pages of delayed runs: list, add, change while waiting, cancel."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .. import api, registry
from ..domain import identity
from ..errors import UnknownRun
from ..models import DelayedRun, DelayedState
from ..publishing import wake_after_commit
from ..store.clock import DatabaseNow
from ..taskpolicy import frozen_policy
from . import fields, formatting, reading, salvage
from .buttons import Done, Question, SmallageButtonsMixin, smallage_button
from .schedule_list import QueueFilter, TaskFilter

CANCEL: Final = "smallage_django.cancel_run"
VIEW_PAYLOAD: Final = "smallage_django.view_payload"
#: Names listed on a confirmation.
_LISTED: Final = 20
#: Rows of one act: each is a field of the form that confirms it, and Django takes a thousand of those.
_MOST: Final = 900


class Moved(Exception):
    """The delayed run fired, or was cancelled, while its form was open."""


class DelayedRunForm(forms.ModelForm):  # type: ignore[type-arg]
    """One promise: what, when, and until when it is useful."""

    task = fields.TaskField(label=_("Task"))
    kwargs = fields.JSONText(
        kind=dict,
        words=_("a JSON object"),
        label=_("Arguments"),
        help_text=_('The task\'s named arguments as a JSON object, such as {"class_id": 7}.'),
    )
    queue = forms.ChoiceField(label=_("Queue"), required=False)
    run_at = fields.InstantText(
        label=_("Run at"), help_text=_("A date and time in the time zone below.")
    )
    deadline = fields.InstantText(
        label=_("Useful until"),
        required=False,
        help_text=_("In the same zone. Later than this it expires instead. Empty: for ever."),
    )
    zone = fields.ZoneField(
        label=_("Time zone"),
        required=False,
        help_text=_("Of the two times above; only the instants are kept."),
    )
    late_after = fields.DurationText(
        label=_("Late after"), help_text=_("Mark it late when it starts more than this after.")
    )
    key = forms.CharField(
        label=_("Key"),
        required=False,
        max_length=191,
        empty_value=None,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Only one delayed run may have it. Empty: none."),
    )

    class Meta:
        model = DelayedRun
        fields = ("task", "kwargs", "queue", "run_at", "deadline", "late_after", "key", "origin")
        widgets = {"origin": forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})}
        help_texts = {"origin": _("What this promise is about, in words.")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row, zone_name = self.instance, timezone.get_current_timezone_name()
        if "task" in self.fields:
            task: Any = self.fields["task"]
            task.keep(row.task)
            queue: Any = self.fields["queue"]
            current = row.queue if row.pk else ""
            queue.choices = fields.with_current(fields.queue_choices(_("the task's own")), current)
        self.initial.setdefault("zone", zone_name)
        if row.pk is None:
            self.initial["queue"] = ""
            return
        zone, _shown = formatting.zone(self.initial["zone"])
        for name in ("run_at", "deadline"):
            value = getattr(row, name)
            self.initial[name] = reading.write_instant(value, zone) if value is not None else ""

    def clean(self) -> dict[str, Any]:
        """Read both instants in the named zone; an expired promise is refused, a past one only warned of."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        name = data.get("zone") or timezone.get_current_timezone_name()
        zone, shown = formatting.zone(name)
        if shown != name:
            self.add_error("zone", gettext("There is no time zone %r.") % name)
        for field in ("run_at", "deadline"):
            text = data.pop(field, None)
            if text is None or shown != name:
                continue
            try:
                data[field] = reading.read_instant(text, zone, name) if text else None
            except ValidationError as error:
                self.add_error(field, error)
        self._fill_from_task(data)
        return data

    def _fill_from_task(self, data: dict[str, Any]) -> None:
        """Queue, backend and priority are the task's unless the form says otherwise."""
        task = registry.tasks().get(data.get("task") or "")
        if task is not None:
            self.instance.backend = task.backend
            self.instance.priority = int(task.priority)
            data["queue"] = data.get("queue") or task.queue_name
        elif not data.get("queue"):
            data["queue"] = self.instance.queue

    def _update_errors(self, errors: ValidationError) -> None:
        """A box that could not be read needs no second message about the value it did not give."""
        if hasattr(errors, "error_dict"):
            known = {
                name if name in self.fields or name == "__all__" else "__all__": found
                for name, found in errors.error_dict.items()
                if name not in self.errors
            }
            if not known:
                return
            errors = ValidationError(known)  # type: ignore[arg-type]
        super()._update_errors(errors)  # type: ignore[misc]


class DelayedChangeList(ChangeList):
    """Rows that know what time it is."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = salvage.rows(self.result_list)
        now = DatabaseNow(self.root_queryset.db).now()
        for row in found:
            row.page_now = now
        self.result_list = found
        if not self.query:
            # Else the page would offer to "show all" of what it shows.
            self.full_result_count = self.result_count


@admin.register(DelayedRun)
class DelayedRunAdmin(SmallageButtonsMixin, admin.ModelAdmin):  # type: ignore[type-arg, misc]
    """Delayed runs: promises made by one event each."""

    form = DelayedRunForm
    list_display = (
        "shown_run_at",
        "shown_state",
        "work",
        "shown_deadline",
        "key",
        "shown_origin",
        "fired_run",
    )
    list_display_links = ("shown_run_at",)
    list_filter = ("state", QueueFilter, TaskFilter)
    list_select_related = False
    search_fields = ("key__startswith", "task", "origin")
    search_help_text = _("The beginning of a key, or part of a task or an origin.")
    ordering = ("-run_at",)
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    actions = ("cancel_selected",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return DelayedChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[DelayedRun]:
        found: QuerySet[DelayedRun] = super().get_queryset(request)
        match = getattr(request, "resolver_match", None)
        if match is not None and (match.url_name or "").endswith("_changelist"):
            return found.defer("args", "kwargs", "traceparent")
        return found

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> DelayedRun | None:
        try:
            found: Any = super().get_object(request, object_id, from_field)
            found = salvage.checked(found) if found is not None else None
        except salvage.UNREADABLE:
            found = salvage.one(DelayedRun, object_id)
        if found is not None:
            found.may_see_payload = request.user.has_perm(VIEW_PAYLOAD)
        return found  # type: ignore[no-any-return]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only what still waits can be changed; and only by who may see the arguments."""
        if not super().has_change_permission(request, obj):
            return False
        return obj is None or (
            obj.state == DelayedState.WAITING and getattr(obj, "may_see_payload", True)
        )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(
            super().has_view_permission(request, obj) or super().has_change_permission(request)
        )

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """For the list's action."""
        return request.user.has_perm(CANCEL)

    # -- columns

    @admin.display(description=_("run at"), ordering="run_at")
    def shown_run_at(self, obj: Any) -> SafeString | str:
        if not isinstance(obj.run_at, datetime):
            return formatting.badge(_("unreadable date"), "error")
        return formatting.moment(obj.run_at, timezone.get_current_timezone_name(), self._time(obj))

    @admin.display(description=_("state"), ordering="state")
    def shown_state(self, obj: DelayedRun) -> SafeString:
        shown = formatting.delayed_badge(obj.state)
        if not obj.reason:
            return shown
        return format_html('{}<br><span class="smallage-reason">{}</span>', shown, obj.reason)

    @admin.display(description=_("task"), ordering="task")
    def work(self, obj: DelayedRun) -> SafeString | str:
        if registry.is_registered(obj.task):
            return obj.task
        return format_html("{} {}", obj.task, formatting.badge(_("unknown task"), "error"))

    @admin.display(description=_("useful until"), ordering="deadline")
    def shown_deadline(self, obj: DelayedRun) -> SafeString | str:
        return formatting.instant(obj.deadline, timezone.get_current_timezone_name())

    @admin.display(description=_("origin"))
    def shown_origin(self, obj: DelayedRun) -> str:
        return formatting.one_line(obj.origin)

    @admin.display(description=_("run"))
    def fired_run(self, obj: DelayedRun) -> SafeString | str:
        if obj.run_id is None:
            return formatting.EMPTY
        url = reverse(f"{self.admin_site.name}:smallage_django_run_change", args=[obj.run_id])
        shown = formatting.fire_id(identity.once(obj.uid))
        return format_html('<a href="{}">{}</a>', url, shown)

    # -- the form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or self.has_change_permission(request, obj):
            return [
                (_("What"), {"fields": ("task", "kwargs", "queue")}),
                (_("When"), {"fields": ("run_at", "deadline", "zone", "late_after")}),
                (_("Why"), {"fields": ("key", "origin")}),
            ]
        what = ("shown_state", "fired_run", "task", "shown_kwargs", "queue")
        return [
            (_("What"), {"fields": what}),
            (_("When"), {"fields": ("both_run_at", "both_deadline", "both_created_at")}),
            (_("Why"), {"fields": ("key", "origin")}),
        ]

    @admin.display(description=_("run at"))
    def both_run_at(self, obj: DelayedRun) -> SafeString | str:
        return formatting.both_zones(obj.run_at, timezone.get_current_timezone_name())

    @admin.display(description=_("useful until"))
    def both_deadline(self, obj: DelayedRun) -> SafeString | str:
        return formatting.both_zones(obj.deadline, timezone.get_current_timezone_name())

    @admin.display(description=_("created at"))
    def both_created_at(self, obj: DelayedRun) -> SafeString | str:
        return formatting.both_zones(obj.created_at, timezone.get_current_timezone_name())

    @admin.display(description=_("arguments"))
    def shown_kwargs(self, obj: Any) -> SafeString | str:
        if not getattr(obj, "may_see_payload", False):
            return gettext(
                "hidden: seeing them needs the permission “Can see arguments and results”"
            )
        return format_html(
            '<pre class="smallage-code">{}</pre>', formatting.pretty_json(obj.kwargs)
        )

    # -- saving

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if object_id is not None and request.method == "POST":
            return self._change_waiting(request, object_id, form_url, extra_context)
        answer: HttpResponse = super().changeform_view(request, object_id, form_url, extra_context)
        return answer

    def _change_waiting(self, request: HttpRequest, object_id: str, *args: Any) -> HttpResponse:
        row = self.get_object(request, object_id)
        allowed = admin.ModelAdmin.has_change_permission(self, request)
        if row is not None and row.state != DelayedState.WAITING and allowed:
            return self._say_it_moved(request, object_id)
        try:
            answer: HttpResponse = super().changeform_view(request, object_id, *args)
        except Moved:
            return self._say_it_moved(request, object_id)
        return answer

    def _say_it_moved(self, request: HttpRequest, object_id: str) -> HttpResponse:
        told = gettext("It is no longer waiting, so nothing was changed.")
        self.message_user(request, told, messages.ERROR)
        name = f"{self.admin_site.name}:smallage_django_delayedrun_change"
        return HttpResponseRedirect(reverse(name, args=[object_id]))

    def save_model(self, request: HttpRequest, obj: DelayedRun, form: Any, change: bool) -> None:
        """Insert the promise, or change it while it waits. Raises ``Moved`` where it does no more."""
        alias = router.db_for_write(DelayedRun)
        if not change:
            task = registry.tasks().get(obj.task)
            policy = frozen_policy(task, alias=obj.backend)
            obj.max_attempts, obj.backoff = policy.max_attempts, policy.backoff
            obj.timeout = policy.timeout
            obj.save(using=alias)
        else:
            names = (*DelayedRunForm.Meta.fields, "backend", "priority")
            values = {name: getattr(obj, name) for name in names}
            waiting = DelayedRun.objects.using(alias).filter(pk=obj.pk, state=DelayedState.WAITING)
            if waiting.update(**values) != 1:
                raise Moved
        wake_after_commit(alias)
        self._warn_of_the_past(request, obj, DatabaseNow(alias).now())

    def _warn_of_the_past(self, request: HttpRequest, obj: DelayedRun, now: datetime) -> None:
        if obj.deadline is not None and obj.deadline < now:
            told = gettext("It was useful until %(ago)s: it will expire instead of running.")
            at = obj.deadline
        elif obj.run_at < now:
            told = gettext("Its time was %(ago)s: it fires in the scheduler's next pass.")
            at = obj.run_at
        else:
            return
        self.message_user(request, told % {"ago": formatting.relative(at, now)}, messages.WARNING)

    def _time(self, obj: Any) -> datetime:
        if not hasattr(obj, "page_now"):
            obj.page_now = DatabaseNow(router.db_for_read(DelayedRun)).now()
        now: datetime = obj.page_now
        return now

    # -- cancelling

    @smallage_button(
        permission=CANCEL,
        label=_("Cancel…"),
        visible=lambda obj: obj.state == DelayedState.WAITING,
    )
    def cancel(self, request: HttpRequest, obj: DelayedRun) -> HttpResponse:
        question = Question(
            heading=gettext("Cancel this delayed run?"),
            consequences=[str(obj), *_consequences()],
            act=lambda _facts: _cancel(request, [obj]),
            confirm=_("Cancel it"),
            danger=True,
        )
        return self.ask(request, question, obj)

    @admin.action(description=_("Cancel selected delayed runs…"), permissions=["cancel"])
    def cancel_selected(
        self, request: HttpRequest, queryset: QuerySet[DelayedRun]
    ) -> HttpResponse | None:
        if not self.has_cancel_permission(request):
            raise PermissionDenied
        found = list(queryset.only("pk", "uid", "task", "run_at")[: _MOST + 1])
        rows = found[:_MOST]
        names = [str(row) for row in rows[:_LISTED]]
        if len(rows) > _LISTED:
            names.append(gettext("and %(count)s more") % {"count": len(rows) - _LISTED})
        if len(found) > _MOST:
            names.append(
                gettext("No more than these are cancelled at once; repeat for the others.")
            )
        heading = ngettext(
            "Cancel %(count)s delayed run?", "Cancel %(count)s delayed runs?", len(rows)
        )
        hidden = [
            ("action", "cancel_selected"),
            *((ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows),
        ]
        question = Question(
            heading=heading % {"count": len(rows)},
            consequences=[*names, *_consequences()],
            act=lambda _facts: _cancel(request, rows),
            confirm=_("Cancel them"),
            danger=True,
            hidden=hidden,
        )
        return self.ask(request, question)


def _consequences() -> list[str]:
    return [
        gettext("What still waits does not run; its key is free again."),
        gettext("What has already begun goes on."),
    ]


def _cancel(request: HttpRequest, rows: Iterable[DelayedRun]) -> Done:
    """Cancel through the same function as the code does; how many, and how many had moved on."""
    who = request.user.get_username()
    reason = gettext("cancelled by %(who)s in the admin") % {"who": who}
    cancelled = moved = 0
    for row in rows:
        try:
            done = api.cancel(identity.once(row.uid), by=who, reason=reason)
        except UnknownRun:
            done = False
        cancelled, moved = cancelled + done, moved + (not done)
    told = ngettext(
        "%(count)s delayed run was cancelled.", "%(count)s delayed runs were cancelled.", cancelled
    ) % {"count": cancelled}
    if moved:
        told += " " + ngettext(
            "%(count)s had moved on and was left alone.",
            "%(count)s had moved on and were left alone.",
            moved,
        ) % {"count": moved}
    return Done(told, messages.SUCCESS if cancelled else messages.WARNING)
