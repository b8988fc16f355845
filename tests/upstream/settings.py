"""Settings under which the framework's own tests run: the suite's, with nothing of Redis in the way.

Nobody listens at the broker's address, so every run also shows that a lost publication disturbs no caller.
"""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, SMALLAGE

SMALLAGE = {**SMALLAGE, "REDIS_URL": "redis://127.0.0.1:1/0"}
DATABASES = {
    "default": {
        **DATABASES["default"],
        "TEST": {"NAME": f"{DATABASES['default'].get('TEST', {}).get('NAME', 'test_up')}_upstream"},
    }
}
TEST_RUNNER = "tests.upstream.runner.Runner"
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": None}
