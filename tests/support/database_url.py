"""``DATABASE_URL`` as one entry of Django's ``DATABASES``, and back."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from example_project.database_url import ENGINES, database


def database_from_url(url: str, *, test_suffix: str = "") -> dict[str, Any]:
    """The database that a URL names, as the example project reads it.

    ``test_suffix`` is added to the name of the database that the test runner makes on a server, so that several runs
    can share it. Raises ``ValueError`` for an unknown scheme.
    """
    settings = database(url)
    if not settings["ENGINE"].endswith("sqlite3"):
        suffix = re.sub(r"\W", "_", test_suffix)
        settings["TEST"] = {"NAME": f"test_{settings['NAME']}{suffix}"}
    return settings


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
