"""The app's place in the project."""

from __future__ import annotations

from django.apps import AppConfig


class SchoolConfig(AppConfig):
    name = "example_project.school"
    label = "school"
    default_auto_field = "django.db.models.BigAutoField"
