"""Settings of the example project.

``DATABASE_URL`` and ``SMALLAGE_REDIS_URL`` choose real servers. Without them the data is in the folder ``.demo``: an
SQLite file, and the socket of the embedded Valkey that ``smallage_demo`` starts.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import django

from example_project.database_url import database

BASE_DIR = Path(__file__).resolve().parent.parent
DEMO_DIR = BASE_DIR / ".demo"
DEMO_DIR.mkdir(exist_ok=True)
#: In the folder for temporary files, since the path of a socket may have about 100 characters only.
VALKEY_SOCKET = (
    Path(tempfile.gettempdir())
    / f"smallage-demo-{hashlib.sha256(str(BASE_DIR).encode()).hexdigest()[:12]}.sock"
)

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only for the demo on this machine")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "admin_extra_buttons",
    # Django 6 has the tasks framework itself.
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "smallage_django",
    "example_project.school",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
            ],
        },
    },
]
DATABASES = {
    "default": database(os.environ.get("DATABASE_URL") or f"sqlite:///{DEMO_DIR / 'db.sqlite3'}")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

TASKS = {
    "default": {
        "BACKEND": "smallage_django.backend.SmallageBackend",
        "QUEUES": ["default", "mail", "reports"],
    }
}
SMALLAGE = {
    "REDIS_URL": os.environ.get("SMALLAGE_REDIS_URL") or f"unix://{VALKEY_SOCKET}",
    "NAMESPACE": "school",
    "QUEUES": ["default", "mail", "reports"],
}
