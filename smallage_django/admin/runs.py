"""The pages of runs. Nobody adds, changes or deletes a run here, whatever their permissions are."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import F, QuerySet
from django.db.models.functions import Right
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..domain import identity
from ..domain.lifecycle import ACTIVE
from ..models import KIND_LABELS, DelayedRun, Run, Schedule
from ..store.clock import DatabaseNow
from . import formatting, run_page
from .buttons import LISTED_BREADCRUMBS, SmallageButtonsMixin, smallage_link
from .changelist import KeysetChangeList, Uncounted
from .run_filters import (
    KindFilter,
    ProblemFilter,
    QueueFilter,
    ScheduleFilter,
    StateFilter,
    WindowFilter,
)
from .run_search import search

VIEW: Any = "smallage_django.view_run"
#: Columns that a list never fetches.
HEAVY = ("args", "kwargs", "payload_ref", "progress", "result", "error", "traceparent")
#: Of a long error only its end is fetched: its last line is what the list shows.
_TAIL = 300


class RunChangeList(KeysetChangeList):
    """A page of runs, each knowing what time it is."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        now = DatabaseNow(self.root_queryset.db).now()
        for row in self.result_list:
            row.page_now = now


def is_late(run: Any, now: datetime) -> bool:
    """Whether a run started, or still waits, past its own limit of lateness."""
    if run.late_at is None:
        return False
    if run.first_started_at is not None:
        return bool(run.first_started_at > run.late_at)
    return bool(run.late_at < now and run.state in ACTIVE)


@admin.register(Run)
class RunAdmin(SmallageButtonsMixin, admin.ModelAdmin):  # type: ignore[type-arg, misc]
    """Runs: the record of every fire."""

    list_display = (
        "shown_state",
        "shown_fire_id",
        "shown_schedule",
        "shown_scheduled_for",
        "start_lag",
        "duration",
        "attempts_made",
        "outcome",
    )
    list_display_links = ("shown_fire_id",)
    list_filter = (
        StateFilter,
        ProblemFilter,
        WindowFilter,
        ScheduleFilter,
        KindFilter,
        QueueFilter,
    )
    # Only so that the box is shown: run_search says what it understands.
    search_fields = ("fire_id",)
    search_help_text = _(
        "A fire id or its beginning, or a schedule's name with a date: nightly-report 2027-03-28"
    )
    sortable_by = ()
    actions = None
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 100
    paginator = Uncounted
    change_list_template = "admin/smallage_django/run/change_list.html"

    # -- nobody changes a run

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(VIEW)

    # -- the list

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        return RunChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        found: QuerySet[Run] = super().get_queryset(request)
        match = getattr(request, "resolver_match", None)
        if match is None or not (match.url_name or "").endswith("_changelist"):
            return found
        return found.defer(*HEAVY).annotate(
            error_end=Right("error", _TAIL), schedule_zone=F("schedule__timezone")
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term.strip():
            return queryset, False
        found = search(queryset, search_term)
        if found is None:
            told = _("%(text)s is no fire id, no beginning of one and no schedule with a date.")
            messages.warning(request, told % {"text": search_term.strip()[:80]})
            return queryset.none(), False
        return found, False

    def counted_window(self, changelist: RunChangeList) -> str:
        """The window within which the matching runs may be counted; empty for no count."""
        for spec in changelist.filter_specs:
            if isinstance(spec, WindowFilter):
                return spec.words() if changelist.has_active_filters else ""
        return ""

    @admin.display(description=_("state"))
    def shown_state(self, obj: Any) -> SafeString:
        return formatting.state_badge(obj.state, late=is_late(obj, obj.page_now))

    @admin.display(description=_("fire id"))
    def shown_fire_id(self, obj: Run) -> SafeString:
        return formatting.fire_id(obj.fire_id)

    @admin.display(description=_("schedule or task"))
    def shown_schedule(self, obj: Any) -> SafeString:
        labels = {kind.value: label for kind, label in KIND_LABELS.items()}
        return format_html(
            '{}<br><span class="smallage-quiet">{}</span>',
            self._schedule_link(obj),
            labels.get(obj.kind, obj.kind),
        )

    def _schedule_link(self, obj: Any) -> SafeString | str:
        if not obj.schedule_name:
            return str(obj.task).rpartition(".")[2]
        if obj.schedule_zone is None:
            return format_html("{} {}", obj.schedule_name, formatting.badge(_("deleted"), "quiet"))
        name = f"{self.admin_site.name}:smallage_django_schedule_change"
        return format_html(
            '<a href="{}">{}</a>', reverse(name, args=[obj.schedule_id]), obj.schedule_name
        )

    @admin.display(description=_("scheduled for"))
    def shown_scheduled_for(self, obj: Any) -> SafeString | str:
        shown = formatting.instant(obj.scheduled_for, obj.schedule_zone or "UTC")
        if obj.occurrence_count == 1:
            return shown
        return format_html(
            '{}<br><span class="smallage-quiet">{}</span>',
            shown,
            _("%(count)s occurrences") % {"count": obj.occurrence_count},
        )

    @admin.display(description=_("start lag"))
    def start_lag(self, obj: Run) -> str:
        return formatting.lag(obj.start_lag_ms)

    @admin.display(description=_("duration"))
    def duration(self, obj: Any) -> str:
        if obj.started_at is None:
            return formatting.EMPTY
        end = obj.finished_at or (obj.page_now if obj.state == "running" else None)
        return formatting.duration(end - obj.started_at) if end else formatting.EMPTY

    @admin.display(description=_("attempts"))
    def attempts_made(self, obj: Run) -> str:
        return f"{obj.attempt}/{obj.max_attempts}"

    @admin.display(description=_("outcome"))
    def outcome(self, obj: Any) -> SafeString | str:
        text = formatting.one_line(obj.error_end or "") or formatting.one_line(obj.reason)
        if not text:
            return formatting.EMPTY
        return format_html('<span class="smallage-outcome" title="{}">{}</span>', text, text)

    # -- one run

    def get_urls(self) -> list[URLPattern]:
        by_id = path(
            "by-fire-id/<str:fire_id>/",
            self.admin_site.admin_view(self.by_fire_id),
            name="smallage_django_run_by_fire_id",
        )
        urls: list[URLPattern] = super().get_urls()
        return [by_id, *urls]

    def by_fire_id(self, request: HttpRequest, fire_id: str) -> HttpResponse:
        """Lead to the page of a run by its fire id; where there is none, say what can be said."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        site = self.admin_site.name
        fire_id = fire_id.strip()
        found = self.get_queryset(request).filter(fire_id=fire_id) if len(fire_id) < 64 else None
        pk = found.values_list("pk", flat=True).first() if found is not None else None
        if pk is not None:
            return HttpResponseRedirect(reverse(f"{site}:smallage_django_run_change", args=[pk]))
        request.current_app = site  # type: ignore[attr-defined]
        context = {
            **self.admin_site.each_context(request),
            **_what_is_known(fire_id, site),
            "opts": self.opts,
            "title": _("No such run"),
            "fire_id": fire_id,
            "media": self.media,
            "listed_breadcrumbs": LISTED_BREADCRUMBS,
        }
        return TemplateResponse(
            request, "admin/smallage_django/run/unknown.html", context, status=404
        )

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page of a run: reading only."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        run = self.get_object(request, unquote(object_id))
        if run is None:
            # Django's own answer: a message on the admin's index.
            base: Any = super()
            missing: HttpResponse = base.change_view(request, object_id, form_url, extra_context)
            return missing
        request.current_app = self.admin_site.name  # type: ignore[attr-defined]
        now = DatabaseNow(router.db_for_read(Run)).now()
        may_see = request.user.has_perm("smallage_django.view_payload")
        context = {
            **self.admin_site.each_context(request),
            **run_page.context(run, now, may_see_payload=may_see, late=is_late(run, now)),
            "opts": self.opts,
            "original": run,
            "title": _("Run"),
            "subtitle": run.fire_id,
            "media": self.media,
            "smallage_buttons": self.form_buttons(request, run),
            "listed_breadcrumbs": LISTED_BREADCRUMBS,
            "preserved_filters": self.get_preserved_filters(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/smallage_django/run/detail.html", context)

    # -- links of the run page

    def url_previous(self, obj: Run) -> str | None:
        before = {"scheduled_for__lt": obj.scheduled_for}
        return self._neighbour(obj, before, "-scheduled_for")

    def url_next(self, obj: Run) -> str | None:
        after = {"scheduled_for__gt": obj.scheduled_for}
        return self._neighbour(obj, after, "scheduled_for")

    def _neighbour(self, obj: Run, where: dict[str, Any], order: str) -> str | None:
        if obj.schedule_id is None:
            return None
        rows = Run.objects.filter(schedule_id=obj.schedule_id, **where).order_by(order)
        pk = rows.values_list("pk", flat=True).first()
        return self._url("run_change", pk) if pk is not None else None

    def url_all_of(self, obj: Run) -> str | None:
        if not obj.schedule_name:
            return None
        url = reverse(f"{self.admin_site.name}:smallage_django_run_changelist")
        return f"{url}?{run_page.query(schedule_name=obj.schedule_name)}"

    def _url(self, page: str, pk: Any) -> str:
        return reverse(f"{self.admin_site.name}:smallage_django_{page}", args=[pk])

    @smallage_link(
        permission=VIEW, label=_("Previous run"), target=lambda page, run: page.url_previous(run)
    )
    def previous_run(self, request: HttpRequest, obj: Run) -> None:
        """Leads to the schedule's run before this one."""

    @smallage_link(
        permission=VIEW, label=_("Next run"), target=lambda page, run: page.url_next(run)
    )
    def next_run(self, request: HttpRequest, obj: Run) -> None:
        """Leads to the schedule's run after this one."""

    @smallage_link(
        permission=VIEW,
        label=_("All runs of this schedule"),
        target=lambda page, run: page.url_all_of(run),
    )
    def all_runs(self, request: HttpRequest, obj: Run) -> None:
        """Leads to the list, filtered."""


def _what_is_known(fire_id: str, site: str) -> dict[str, Any]:
    """What a fire id without a run tells: its schedule and occurrence, or the delayed run it will come from."""
    if not identity.is_fire_id(fire_id):
        return {"malformed": True}
    kind, _colon, rest = fire_id.partition(":")
    if kind == "once":
        delayed = DelayedRun.objects.filter(uid=uuid.UUID(hex=rest)).values("pk", "state").first()
        if delayed is not None:
            url = reverse(f"{site}:smallage_django_delayedrun_change", args=[delayed["pk"]])
            return {"delayed": delayed, "delayed_url": url}
    if kind == "sched":
        uid, _colon, instant = rest.partition(":")
        row = (
            Schedule.objects.filter(uid=uuid.UUID(hex=uid)).values("pk", "name", "timezone").first()
        )
        milliseconds = int(instant.partition(".")[0].partition(":")[0])
        try:
            at = identity.from_epoch_ms(milliseconds)
        except OverflowError:
            return {"malformed": True}
        zone = row["timezone"] if row else "UTC"
        return {"schedule": row, "occurrence": formatting.instant(at, zone)}
    return {}
