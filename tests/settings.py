"""Django settings of the test suite; also what the acceptance tests' real processes run under.

``DATABASE_URL`` and ``SMALLAGE_REDIS_URL`` choose the servers. Without them each test run makes an SQLite
file and starts a Redis or Valkey of its own (``tests/conftest.py``).
"""

from __future__ import annotations

import json
import os

import django

from tests.support.database_url import database_from_url

SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "/static/"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en-us"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Slow hashing protects passwords, and the tests have none worth it.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "django.contrib.staticfiles",
    "admin_extra_buttons",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "smallage_django",
    "tests.app",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": database_from_url(
        os.environ.get("DATABASE_URL") or "sqlite:///:memory:",
        test_suffix=os.environ.get("SMALLAGE_TEST_DB_SUFFIX", ""),
    )
}

TASKS = {
    "default": {
        "BACKEND": "smallage_django.backend.SmallageBackend",
        "QUEUES": ["default", "mail", "reports"],
    }
}

SMALLAGE = {
    "REDIS_URL": os.environ.get("SMALLAGE_REDIS_URL") or "redis://127.0.0.1:6379/0",
    "NAMESPACE": os.environ.get("SMALLAGE_NAMESPACE") or "smallage-tests",
    "QUEUES": ["default", "mail", "reports"],
    # What one acceptance test asks of its child processes (tests/support/processes.py).
    **json.loads(os.environ.get("SMALLAGE_TEST_SETTINGS") or "{}"),
}
