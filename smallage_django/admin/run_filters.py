"""The filters of the list of runs. None of them counts, and none lists what may be ten thousand names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..domain.lifecycle import State
from ..models import KIND_LABELS, STATE_LABELS, Schedule
from ..querysets import late_condition
from ..store.clock import DatabaseNow
from . import fields, formatting, reading

PROBLEM_STATES: Final = (State.MISSED.value, State.FAILED.value, State.EXPIRED.value)
#: A running run that nobody heard of for so long is shown among the problems.
_STUCK_AFTER: Final = timedelta(hours=24)
_WINDOWS: Final = {
    "1h": (timedelta(hours=1), _("last hour")),
    "24h": (timedelta(hours=24), _("last 24 hours")),
    "7d": (timedelta(days=7), _("last 7 days")),
}


class _FormFilter(admin.SimpleListFilter):
    """A filter with boxes to type into instead of links; the other parameters travel along."""

    #: Further parameters besides the first.
    more: tuple[str, ...] = ()

    def __init__(self, request: HttpRequest, params: dict[str, Any], *args: Any) -> None:
        super().__init__(request, params, *args)
        self.request = request
        for name in self.more:
            if name in params:
                given = params.pop(name)
                self.used_parameters[name] = given[-1] if isinstance(given, list) else given

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return []

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter_name, *self.more]

    def text(self, name: str) -> str:
        """What was typed into a box."""
        return str(self.used_parameters.get(name) or "").strip()

    def choices(self, changelist: Any) -> Iterator[Any]:
        own = [str(name) for name in self.expected_parameters()]
        kept = changelist.filter_params
        yield {
            "filter": self,
            "kept": [(key, one) for key, many in kept.items() if key not in own for one in many],
            "clear": changelist.get_query_string(remove=own),
            "is_used": any(self.text(name) for name in own),
        }


class StateFilter(admin.SimpleListFilter):
    """Several states at once: each link adds or takes away one."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(state.value, label) for state, label in STATE_LABELS.items()]

    def chosen(self) -> list[str]:
        """The states that were asked for, in the table's order."""
        given = (self.value() or "").split(",")
        return [state.value for state in State if state.value in given]

    def choices(self, changelist: Any) -> Iterator[Any]:
        chosen = self.chosen()
        name = str(self.parameter_name)
        yield {
            "selected": not chosen,
            "query_string": changelist.get_query_string(remove=[name]),
            "display": _("All"),
        }
        for value, label in self.lookup_choices:
            wanted = [s for s in chosen if s != value] if value in chosen else [*chosen, value]
            yield {
                "selected": value in chosen,
                "query_string": changelist.get_query_string({name: ",".join(wanted)})
                if wanted
                else changelist.get_query_string(remove=[name]),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.chosen()
        return queryset.filter(state__in=chosen) if chosen else queryset


class ProblemFilter(admin.SimpleListFilter):
    """What wants a look: late, missed, or anything that went wrong."""

    title = _("problems")
    parameter_name = "problem"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("any", _("missed, failed, expired, late or stuck")),
            ("late", _("late")),
            ("missed", _("missed")),
        ]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "missed":
            return queryset.filter(state=State.MISSED.value)
        if self.value() not in ("any", "late"):
            return queryset
        now = DatabaseNow(queryset.db).now()
        late = late_condition(now)
        if self.value() == "late":
            return queryset.filter(late)
        stuck = Q(state=State.RUNNING.value, started_at__lt=now - _STUCK_AFTER)
        return queryset.filter(Q(state__in=PROBLEM_STATES) | stuck | late)


class KindFilter(admin.SimpleListFilter):
    """What made the run."""

    title = _("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(kind.value, label) for kind, label in KIND_LABELS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class QueueFilter(admin.SimpleListFilter):
    """The queues of the settings."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return fields.queue_choices("")[1:]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue=self.value()) if self.value() else queryset


class ScheduleFilter(_FormFilter):
    """The runs of one schedule, by its exact name, which may be that of a deleted one."""

    title = _("schedule")
    parameter_name = "schedule_name"
    template = "admin/smallage_django/filters/text.html"
    label = _("Exact name")

    @property
    def given(self) -> str:
        return self.text("schedule_name")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(runs_of(self.given, queryset.db)) if self.given else queryset


def runs_of(name: str, alias: str) -> Q:
    """The runs of the schedule of that name; by the name that runs keep, where no such schedule is left."""
    pk = Schedule.objects.using(alias).filter(name=name).values_list("pk", flat=True).first()
    return Q(schedule_id=pk) if pk is not None else Q(schedule_name=name)


class WindowFilter(_FormFilter):
    """A window of ideal instants: the last hour, day or week, or from and to in a named zone."""

    title = _("time")
    parameter_name = "window"
    more = ("from", "to", "zone")
    template = "admin/smallage_django/filters/window.html"

    @property
    def zone(self) -> str:
        return self.text("zone") or timezone.get_current_timezone_name()

    @property
    def given_from(self) -> str:
        return self.text("from")

    @property
    def given_to(self) -> str:
        return self.text("to")

    @property
    def zones(self) -> tuple[str, ...]:
        return fields.zone_names()

    def windows(self) -> list[tuple[str, Any]]:
        """The ready-made windows."""
        return [(key, label) for key, (_length, label) in _WINDOWS.items()]

    def choices(self, changelist: Any) -> Iterator[Any]:
        own = [str(name) for name in self.expected_parameters()]
        for choice in super().choices(changelist):
            links = [
                {
                    "display": label,
                    "selected": self.value() == key,
                    "query_string": changelist.get_query_string({"window": key}, own),
                }
                for key, label in self.windows()
            ]
            yield {**choice, "links": links}

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """From and to as instants. Raises ``ValidationError``."""
        zone, shown = formatting.zone(self.zone)
        if shown != self.zone:
            raise ValidationError(gettext("There is no time zone %r.") % self.zone)
        first, last = self.given_from, self.given_to
        return (
            reading.read_instant(_with_time(first), zone, shown) if first else None,
            reading.read_instant(_with_time(last), zone, shown) if last else None,
        )

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        ready = _WINDOWS.get(self.value() or "")
        if ready is not None:
            now = DatabaseNow(queryset.db).now()
            return queryset.filter(scheduled_for__gt=now - ready[0])
        try:
            first, last = self.bounds()
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
            return queryset.none()
        if first is not None:
            queryset = queryset.filter(scheduled_for__gte=first)
        return queryset.filter(scheduled_for__lt=last) if last is not None else queryset

    def words(self) -> str:
        """The window for people; empty where none was chosen."""
        ready = _WINDOWS.get(self.value() or "")
        if ready is not None:
            return str(ready[1])
        if not (self.given_from or self.given_to):
            return ""
        return gettext("%(from)s to %(to)s %(zone)s") % {
            "from": self.given_from or "…",
            "to": self.given_to or "…",
            "zone": self.zone,
        }


def _with_time(text: str) -> str:
    """A date alone means its first minute."""
    return text if ":" in text else f"{text} 00:00"
