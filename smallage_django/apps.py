"""The app's place in a Django project. Nothing here queries or connects."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SmallageConfig(AppConfig):
    name = "smallage_django"
    label = "smallage_django"
    verbose_name = _("Smallage")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, the framework's own among them: it has one only once it is imported."""
        from . import checks, compat, receivers  # noqa: F401 - importing compat imports the tasks framework

        checks.register()
