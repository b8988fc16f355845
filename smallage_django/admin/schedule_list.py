"""The list of schedules: its rows with their last runs, and its filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import registry
from ..models import Run, Schedule, ScheduleState
from ..store.clock import DatabaseNow
from . import fields, salvage


class ScheduleChangeList(ChangeList):
    """Reads a page's rows whatever state they are in, and their last runs in one query more."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = salvage.rows(self.result_list)
        alias = self.root_queryset.db
        now = DatabaseNow(alias).now()
        last = last_runs(alias, [row.pk for row in found])
        for row in found:
            row.page_now, row.last_run = now, last.get(row.pk)
        self.result_list = found
        if not self.query:
            # Else the page would offer to "show all" of what it shows.
            self.full_result_count = self.result_count


def last_runs(alias: str, schedule_ids: Sequence[int]) -> dict[int, Run]:
    """The newest run of each schedule by its ideal instant: one index look-up each, all in one statement."""
    newest = Run.objects.filter(schedule=OuterRef("pk")).order_by("-scheduled_for").values("pk")[:1]
    wanted = (
        Schedule.objects.using(alias)
        .filter(pk__in=schedule_ids)
        .annotate(newest_run=Subquery(newest))
        .values("newest_run")
    )
    runs = Run.objects.using(alias).filter(pk__in=wanted)
    shown = runs.only("id", "schedule_id", "state", "scheduled_for", "first_started_at", "late_at")
    return {run.schedule_id: run for run in shown if run.schedule_id is not None}


class StateFilter(admin.SimpleListFilter):
    """The state as the list shows it: disabled counts as paused."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(state.value, state.label) for state in ScheduleState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        state = self.value()
        if not state:
            return queryset
        if state == ScheduleState.PAUSED:
            return queryset.filter(Q(enabled=False) | Q(state=state))
        return queryset.filter(state=state, enabled=True)


class QueueFilter(admin.SimpleListFilter):
    """The queues of the settings."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return fields.queue_choices("")[1:]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue=self.value()) if self.value() else queryset


class TaskFilter(admin.SimpleListFilter):
    """The tasks of the registry."""

    title = _("task")
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(path, path.rpartition(".")[2]) for path in registry.tasks()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(task=self.value()) if self.value() else queryset
