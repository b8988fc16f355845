"""``DATABASE_URL`` as an entry of ``DATABASES``."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}
#: Several processes share the file: writers queue for it when they begin, and readers never wait for them.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
}


def database(url: str) -> dict[str, Any]:
    """The database that a URL names. Raises ``ValueError`` for a scheme that is none of :data:`ENGINES`."""
    parts = urlsplit(url)
    if parts.scheme not in ENGINES:
        raise ValueError(f"DATABASE_URL {url!r}: the scheme must be one of {', '.join(ENGINES)}")
    engine = ENGINES[parts.scheme]
    name = unquote(parts.path[1:])
    if parts.scheme == "sqlite":
        return {"ENGINE": engine, "NAME": name, "OPTIONS": dict(SQLITE_OPTIONS)}
    return {
        "ENGINE": engine,
        "NAME": name or "smallage",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }
