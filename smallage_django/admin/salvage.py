"""Reading rows that something outside Django has broken: a page shows them with what is wrong, it never fails.

A date of the year 10000, an infinite date or JSON that is none make a database driver, or Django, raise while a whole
list is fetched. Here the rows are then fetched one by one, and the bad one column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, router
from django.db.models.functions import Cast
from django.db.utils import DataError, NotSupportedError, ProgrammingError

M = TypeVar("M", bound=Any)

#: What drivers and Django's converters raise for a value that Python cannot hold.
UNREADABLE: Final = (
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    DataError,
    NotSupportedError,
    ProgrammingError,
)


def rows(queryset: models.QuerySet[M]) -> list[M]:
    """All rows of a (sliced) queryset in its order; those that cannot be read as :func:`one` gives them."""
    try:
        return list(queryset)
    except UNREADABLE:
        model = queryset.model
        found = (one(model, pk, queryset) for pk in list(queryset.values_list("pk", flat=True)))
        return [row for row in found if row is not None]


def one(model: type[M], pk: Any, queryset: models.QuerySet[M] | None = None) -> M | None:
    """One row, or None if it is gone. ``unreadable`` has the raw text of each column that could not be read."""
    manager = model.objects.using(queryset.db) if queryset is not None else None
    base: Any = manager if manager is not None else model.objects.all()
    try:
        source: Any = queryset.order_by() if queryset is not None else base
        row: M | None = _unsliced(source, base).filter(pk=pk).first()
    except UNREADABLE:
        return _by_columns(model, pk, base)
    return checked(row) if row is not None else None


def _unsliced(source: Any, base: Any) -> Any:
    return base if source.query.is_sliced else source


def _by_columns(model: type[M], pk: Any, base: Any) -> M | None:
    if not base.filter(pk=pk).exists():
        return None
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for field in model._meta.concrete_fields:
        try:
            values[field.attname] = base.filter(pk=pk).values_list(field.attname, flat=True).get()
        except UNREADABLE:
            unreadable[field.attname] = _raw(base, pk, field)
            values[field.attname] = None if field.null else _default(field)
    names = [field.attname for field in model._meta.concrete_fields]
    row: M = model.from_db(base.db, names, [values[name] for name in names])
    row.unreadable = unreadable  # type: ignore[attr-defined]
    return row


def _default(field: models.Field[Any, Any]) -> Any:
    value = field.get_default()
    return value if not hasattr(value, "resolve_expression") else None


def _raw(base: Any, pk: Any, field: models.Field[Any, Any]) -> str:
    text = Cast(field.attname, models.TextField())
    return str(base.filter(pk=pk).values_list(text, flat=True).get())[:200]


def unreadable(row: Any) -> dict[str, str]:
    """The columns of a row that could not be read, with their raw text."""
    found: dict[str, str] = getattr(row, "unreadable", {})
    return found


def checked(row: M) -> M:
    """The same row, with the columns noted that SQLite has text in and Python reads as None.

    SQLite keeps a date that nobody can read as text, and Django turns that into None without a word.
    """
    database = router.db_for_read(type(row), instance=row)
    if connections[database].vendor != "sqlite" or unreadable(row):
        return row
    names = [
        field.attname
        for field in row._meta.concrete_fields
        if isinstance(field, models.DateTimeField) and getattr(row, field.attname) is None
    ]
    texts = [Cast(name, models.TextField()) for name in names]
    found = row._meta.model.objects.using(database).filter(pk=row.pk)
    raw = found.values_list(*texts).first() or ()
    noted = {name: text for name, text in zip(names, raw, strict=False) if text is not None}
    row.unreadable = noted  # type: ignore[attr-defined]
    return row


def labels(model: type[models.Model], names: Sequence[str]) -> str:
    """The columns' names for people."""
    shown = []
    for name in names:
        try:
            shown.append(str(getattr(model._meta.get_field(name), "verbose_name", name)))
        except FieldDoesNotExist:
            shown.append(name)
    return ", ".join(shown)
