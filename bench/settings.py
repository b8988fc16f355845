"""Django settings of the benchmarks; ``bench.harness`` sets the servers in the environment."""

from __future__ import annotations

import os

from tests.support.database_url import database_from_url

SECRET_KEY = "only for benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "smallage_django", "bench"]
DATABASES = {"default": database_from_url(os.environ["DATABASE_URL"])}
TASKS = {"default": {"BACKEND": "smallage_django.backend.SmallageBackend", "QUEUES": ["default"]}}
SMALLAGE = {
    "REDIS_URL": os.environ["SMALLAGE_REDIS_URL"],
    "NAMESPACE": "bench",
    "MAX_BACKLOG": 1_000_000,
}
