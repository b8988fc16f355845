"""Column types of our own: instants that are always aware UTC, ids that always compare byte by byte."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import Func
from django.utils import timezone


class DatabaseClock(Func):
    """The database's clock in UTC at the moment of the statement, not of the transaction.

    Django's ``Now()`` is not used: it stands still inside a PostgreSQL transaction, has other digits on SQLite and
    answers in the session's zone on MariaDB.
    """

    arity = 0
    template = "%(function)s"

    def __init__(self, **extra: Any) -> None:
        super().__init__(output_field=InstantField(), **extra)

    # Django's own name three more parameters, which a function without arguments has no use for.
    def as_sql(  # type: ignore[override]
        self, compiler: Any, connection: Any, **extra: Any
    ) -> tuple[str, tuple[Any, ...]]:
        return "STATEMENT_TIMESTAMP()", ()

    def as_postgresql(
        self, compiler: Any, connection: Any, **extra: Any
    ) -> tuple[str, tuple[Any, ...]]:
        return "CLOCK_TIMESTAMP()", ()

    def as_sqlite(
        self, compiler: Any, connection: Any, **extra: Any
    ) -> tuple[str, tuple[Any, ...]]:
        return "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f000', 'now')", ()

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[Any, ...]]:
        return "UTC_TIMESTAMP(6)", ()


class InstantField(models.DateTimeField):  # type: ignore[type-arg]
    """An instant: aware UTC in Python, UTC in the column, with ``USE_TZ`` on or off.

    A naive value is read in the current time zone (the project's, where ``USE_TZ`` is off).
    """

    def get_prep_value(self, value: Any) -> Any:
        value = models.Field.get_prep_value(self, value)
        value = self.to_python(value)
        if isinstance(value, datetime) and timezone.is_naive(value):
            zone = timezone.get_current_timezone() if settings.USE_TZ else _project_zone()
            value = value.replace(tzinfo=zone)
        return value

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        if isinstance(value, datetime):
            value = value.astimezone(UTC)
            if not settings.USE_TZ and connection.vendor != "postgresql":
                value = value.replace(tzinfo=None)
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(
        self, value: Any, expression: Any, connection: BaseDatabaseWrapper
    ) -> datetime | None:
        instant: datetime | None = value
        if not isinstance(instant, datetime):
            return instant  # None, or what the driver could not read
        if timezone.is_naive(instant):
            at_home = connection.vendor == "postgresql"
            instant = instant.replace(tzinfo=_project_zone() if at_home else UTC)
        return instant.astimezone(UTC)


class FireIdField(models.CharField):  # type: ignore[type-arg]
    """A fire id: compared byte by byte on every database (MariaDB's default would ignore letter case)."""

    _COLLATIONS = {"postgresql": "C", "mysql": "utf8mb4_bin", "sqlite": "BINARY"}

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        if connection.vendor == "postgresql":
            # Spelled out so that Django adds no second index for LIKE: under "C" the unique one serves prefixes too.
            return f"character varying({self.max_length})"
        return super().db_type(connection)

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        parameters["collation"] = self._COLLATIONS.get(connection.vendor)
        return parameters


def _project_zone() -> ZoneInfo:
    return ZoneInfo(settings.TIME_ZONE)
