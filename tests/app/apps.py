"""The test suite's own app: tasks to schedule and a table in which they leave a trace."""

from __future__ import annotations

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    name = "tests.app"
    label = "tests_app"
    default_auto_field = "django.db.models.BigAutoField"
