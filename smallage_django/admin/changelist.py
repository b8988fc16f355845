"""A list of any length: pages by key instead of by number, and nothing is ever counted that has no limit.

The order is fixed, ``(scheduled_for, id)`` descending, and an index holds it; a page asks for one row more than it
shows to know whether there is another.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext, ngettext

from ..domain.identity import epoch_ms, from_epoch_ms
from . import salvage

OLDER: Final = "older"
NEWER: Final = "newer"
#: No count goes further; beyond it the page says "more than".
COUNT_LIMIT: Final = 10_000
_MICROSECONDS: Final = 1000


class Uncounted(Paginator):  # type: ignore[type-arg]
    """A paginator that never asks how many there are."""

    @cached_property
    def count(self) -> int:
        return len(self.object_list)


class KeysetChangeList(ChangeList):
    """The change list of a table that only grows."""

    result_list: list[Any]
    #: Query strings of the neighbouring pages; empty where there is none.
    newer_url: str
    older_url: str
    #: How many match in words; empty where that would need a look at everything.
    count_words: str
    newest_url: str

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Model]:
        """The matching rows. The place in the list is no filter: links and forms of the page start anew."""
        for name in (OLDER, NEWER):
            if name in self.params:
                self.cursor[name] = self.params.pop(name)
                del self.filter_params[name]
        found: QuerySet[Model] = super().get_queryset(request, exclude_parameters)
        return found

    @cached_property
    def cursor(self) -> dict[str, str]:
        """Where the page begins or ends: at most one of ``older`` and ``newer``."""
        return {}

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Model]) -> list[Any]:
        return ["-scheduled_for", "-pk"]

    def get_ordering_field_columns(self) -> dict[int, Any]:
        return {}

    def get_results(self, request: HttpRequest) -> None:
        """Fetch one page and a row more."""
        size = self.list_per_page
        queryset: Any = self.queryset
        backwards = NEWER in self.cursor and OLDER not in self.cursor
        token = self.cursor.get(NEWER if backwards else OLDER)
        if token is not None:
            queryset = queryset.filter(_beyond(*read_token(token), backwards=backwards))
        if backwards:
            queryset = queryset.order_by("scheduled_for", "pk")
        found = salvage.rows(queryset[: size + 1])
        more, found = len(found) > size, found[:size]
        if backwards:
            found.reverse()
        self._fill(found, older=more or backwards, newer=more if backwards else token is not None)

    def _fill(self, found: list[Any], *, older: bool, newer: bool) -> None:
        self.result_list = found
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = False
        self.show_admin_actions = bool(found)
        self.can_show_all, self.multi_page = False, False
        self.paginator = Uncounted(found, self.list_per_page)
        first, last = (found[0], found[-1]) if found else (None, None)
        self.older_url = self._page_url(OLDER, last) if older and last else ""
        self.newer_url = self._page_url(NEWER, first) if newer and first else ""
        moved = newer or (not found and bool(self.cursor))
        self.newest_url = self.get_query_string() if moved else ""
        self.count_words = self._count_words(len(found))

    def _page_url(self, way: str, row: Any) -> str:
        url: str = self.get_query_string({way: write_token(row.scheduled_for, row.pk)})
        return url

    def _count_words(self, shown: int) -> str:
        words = ngettext("%(shown)s shown", "%(shown)s shown", shown) % {"shown": shown}
        window = getattr(self.model_admin, "counted_window", lambda _: "")(self)
        if not window:
            return words
        limited = self.queryset.order_by()[: COUNT_LIMIT + 1]
        total = limited.count()
        if total > COUNT_LIMIT:
            matching = gettext("more than %(limit)s match") % {"limit": f"{COUNT_LIMIT:,}"}
        else:
            matching = ngettext("%(total)s matches", "%(total)s match", total) % {
                "total": f"{total:,}"
            }
        return f"{words}, {matching} ({window})"


def write_token(at: datetime, pk: int) -> str:
    """Where a page ends: the order's two columns, to the microsecond."""
    return f"{epoch_ms(at) * _MICROSECONDS + at.microsecond % _MICROSECONDS}.{pk}"


def read_token(token: str) -> tuple[datetime, int]:
    """The opposite of :func:`write_token`. Raises ``IncorrectLookupParameters``."""
    try:
        at, pk = token.split(".")
        micro = int(at)
        instant = from_epoch_ms(micro // _MICROSECONDS)
        return instant.replace(microsecond=instant.microsecond + micro % _MICROSECONDS), min(
            int(pk), 2**63 - 1
        )
    except (ValueError, OverflowError) as error:
        raise IncorrectLookupParameters(f"{token[:64]!r} is no place in this list") from error


def _beyond(at: datetime, pk: int, *, backwards: bool) -> Q:
    # The first comparison alone lets every database start in the index at the right place.
    if backwards:
        return Q(scheduled_for__gte=at) & (Q(scheduled_for__gt=at) | Q(pk__gt=pk))
    return Q(scheduled_for__lte=at) & (Q(scheduled_for__lt=at) | Q(pk__lt=pk))
