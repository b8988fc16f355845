"""Django's test runner for tests that leave connections behind."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test.runner import DiscoverRunner


class Runner(DiscoverRunner):
    """Ends the sessions of event loop threads, which nobody can close any more, before the test database goes."""

    def teardown_databases(self, old_config: Any, **kwargs: Any) -> None:
        if old_config and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        super().teardown_databases(old_config, **kwargs)
