"""What the benchmarks share: servers, a database of their own, child processes, marks, one table."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()  # noqa: S108
DATA = "x" * 80


class Bench:
    """One run of one benchmark: its options, its servers, its rows."""

    def __init__(self, name: str, **counts: int) -> None:
        parser = argparse.ArgumentParser(prog=f"python -m bench.{name}")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument("--runs", type=int, default=3, help="runs of each measure (default 3)")
        for option, default in counts.items():
            parser.add_argument(f"--{option}", type=int, default=default)
        self.name = name
        self.options = parser.parse_args()
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def servers(self) -> Iterator[None]:
        """PostgreSQL by ``DATABASE_URL`` with a database of its own; Redis by ``SMALLAGE_REDIS_URL`` or its own."""
        from tests.support.servers import Server

        os.environ.setdefault("DATABASE_URL", "postgres://postgres@127.0.0.1:5432/smallage_bench")
        os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
        os.environ["BENCH_MARKS"] = f"{SHARED_MEMORY}/smallage-marks-{os.getpid()}"
        url = os.environ.get("SMALLAGE_REDIS_URL")
        server = None if url else Server("redis").start()
        os.environ["SMALLAGE_REDIS_URL"] = url or server.url  # type: ignore[union-attr]
        try:
            recreate_database(os.environ["DATABASE_URL"])
            import django

            django.setup()
            from django.core.management import call_command

            call_command("migrate", verbosity=0)
            yield
        finally:
            if server is not None:
                server.close()
            Path(os.environ["BENCH_MARKS"]).unlink(missing_ok=True)

    def measure(
        self,
        what: str,
        unit: str,
        once: Callable[[], float],
        *,
        reach: float | None = None,
        runs: int | None = None,
        **more: Any,
    ) -> float:
        """Run a measure several times and keep its median; ``reach`` is the floor or ceiling that is aimed at."""
        values = [once() for _ in range(runs or self.options.runs)]
        return self.add(what, unit, values, reach=reach, **more)

    def add(self, what: str, unit: str, values: Sequence[float], **more: Any) -> float:
        """Keep a row of values that were measured elsewhere; the median."""
        median = statistics.median(values)
        self.rows.append(
            {
                "measure": what,
                "median": round(median, 3),
                "min": round(min(values), 3),
                "max": round(max(values), 3),
                "unit": unit,
                **{key: value for key, value in more.items() if value is not None},
            }
        )
        return median

    def show(self) -> None:
        """Print the table, or the document."""
        if self.options.json:
            print(json.dumps({"benchmark": self.name, "rows": self.rows}, indent=1))
            return
        names = list(dict.fromkeys(key for row in self.rows for key in row))
        table = [names] + [[_cell(row.get(name, "")) for name in names] for row in self.rows]
        widths = [max(len(line[i]) for line in table) for i in range(len(names))]
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def recreate_database(url: str) -> None:
    """Drop and create the database that ``url`` names."""
    from tests.support.database_url import database_from_url

    settings = database_from_url(url)
    if settings["ENGINE"].endswith("sqlite3"):
        Path(settings["NAME"]).unlink(missing_ok=True)
        return
    import psycopg

    with psycopg.connect(
        host=settings["HOST"],
        port=settings["PORT"] or 5432,
        user=settings["USER"],
        password=settings["PASSWORD"],
        dbname="postgres",
        autocommit=True,
    ) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{settings["NAME"]}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{settings["NAME"]}"')


def clear() -> None:
    """Empty the tables, the namespace and the marks."""
    from django.apps import apps
    from django.db import connection

    models = apps.get_app_config("smallage_django").get_models()
    tables = ", ".join(model._meta.db_table for model in models)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables} CASCADE")
        cursor.execute("VACUUM ANALYZE")
    # Key by key: a server that was named by its address may hold what is not ours.
    client = redis()
    for key in (*client.scan_iter(match="{bench}:*", count=1000), b"bare", b"bench"):
        client.delete(key)
    Path(os.environ["BENCH_MARKS"]).write_bytes(b"")


def redis() -> Any:
    """A plain client of the server in use."""
    from redis import Redis

    return Redis.from_url(os.environ["SMALLAGE_REDIS_URL"])


def marks() -> list[tuple[int, float]]:
    """What the tasks left: (number, host time)."""
    from bench.tasks import RECORD

    return list(RECORD.iter_unpack(Path(os.environ["BENCH_MARKS"]).read_bytes()))


def marks_count() -> int:
    """How many marks there are."""
    from bench.tasks import RECORD

    return Path(os.environ["BENCH_MARKS"]).stat().st_size // RECORD.size


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A management command as a process of its own, ended by SIGTERM."""
    child = subprocess.Popen(
        [sys.executable, "-m", "django", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 120.0, every: float = 0.005) -> None:
    """Poll until a condition holds. Raises ``TimeoutError``."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} did not come true within {seconds} s")
        time.sleep(every)


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
