"""Indexes that only some databases can have. They are extras: no promise rests on them."""

from __future__ import annotations

from typing import Any

from django.db import migrations

#: The unfinished runs of a schedule: what the overlap policy asks for at every fire.
ACTIVE = "('pending', 'held', 'claimed', 'enqueued', 'running', 'retrying')"
CREATE = (
    f"CREATE INDEX smallage_run_active ON smallage_django_run (schedule_id) WHERE state IN {ACTIVE}"
)
DROP = "DROP INDEX smallage_run_active"


def create(_apps: Any, editor: Any) -> None:
    if editor.connection.features.supports_partial_indexes:
        editor.execute(CREATE)


def drop(_apps: Any, editor: Any) -> None:
    if editor.connection.features.supports_partial_indexes:
        editor.execute(DROP)


class Migration(migrations.Migration):
    dependencies = [("smallage_django", "0001_initial")]
    operations = [migrations.RunPython(create, drop)]
