"""``DATABASE_URL`` as one entry of Django's ``DATABASES``."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}

# Writers queue for the lock when they begin instead of failing when they first write.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
}


def database_from_url(url: str, *, test_suffix: str = "") -> dict[str, Any]:
    """Turn a URL into Django's settings of one database.

    ``sqlite:////absolute/path`` or ``sqlite:///relative/path``;
    ``postgres://user:password@host:port/name``; ``mysql://`` likewise. ``test_suffix`` is added to the name of the
    database that the test runner makes, so that several runs can share a server. Raises ``ValueError`` for a scheme
    that is none of these.
    """
    parts = urlsplit(url)
    try:
        engine = ENGINES[parts.scheme]
    except KeyError:
        raise ValueError(
            f"DATABASE_URL {url!r}: scheme must be one of {', '.join(ENGINES)}"
        ) from None
    if engine.endswith("sqlite3"):
        return {"ENGINE": engine, "NAME": unquote(parts.path[1:]), "OPTIONS": dict(SQLITE_OPTIONS)}
    suffix = re.sub(r"\W", "_", test_suffix)
    name = unquote(parts.path[1:]) or "smallage"
    return {
        "ENGINE": engine,
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": {"charset": "utf8mb4"} if engine.endswith("mysql") else {},
        "TEST": {"NAME": f"test_{name}{suffix}"},
    }


def url_from_database(settings: dict[str, Any]) -> str:
    """The inverse: the URL under which a child process reaches the database that ``settings`` names now."""
    schemes = {engine: scheme for scheme, engine in ENGINES.items()}
    scheme, name = schemes[settings["ENGINE"]], quote(str(settings["NAME"]))
    if settings["ENGINE"].endswith("sqlite3"):
        return f"{scheme}:///{name}"
    user, password = quote(settings["USER"], safe=""), quote(settings["PASSWORD"], safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    port = f":{settings['PORT']}" if settings["PORT"] else ""
    return f"{scheme}://{login}{settings['HOST']}{port}/{name}"
