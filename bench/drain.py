"""How fast one worker process works off N no-op tasks whose outcomes are recorded in SQL."""

from __future__ import annotations

import os
import time

from bench.harness import DATA, Bench, clear, marks, marks_count, process, redis, wait_for


def main() -> None:
    bench = Bench("drain", count=10_000, threads=16)
    with bench.servers():
        limit = bench.measure(
            "bare loop: read, update 100 at a time, ack",
            "runs/s",
            lambda: bare_loop(bench.options.count),
        )
        results = [
            drain(bench.options.count, bench.options.threads) for _ in range(bench.options.runs)
        ]
        bench.add(
            f"drain, {bench.options.threads} threads",
            "runs/s",
            [r[0] for r in results],
            reach=1200.0,
        )
        bench.rows[-1]["ratio"] = round(bench.rows[-1]["median"] / limit, 2)
        bench.add("worker's CPU", "s per 1,000", [r[1] for r in results])
    bench.show()


def drain(count: int, threads: int) -> tuple[float, float]:
    """(Runs a second from the first mark to the last outcome, CPU seconds of the worker per 1,000.)"""
    import psutil

    from bench.tasks import mark
    from smallage_django import enqueue_many
    from smallage_django.models import Run

    clear()
    for start in range(0, count, 1000):
        numbers = range(start, min(start + 1000, count))
        enqueue_many(mark, [{"number": n, "data": DATA} for n in numbers])
    with process("smallage_worker", "--threads", str(threads)) as child:
        watched = psutil.Process(child.pid)
        wait_for(lambda: marks_count() > 0)
        cpu, began = _cpu(watched), time.time()
        wait_for(lambda: marks_count() >= count)
        wait_for(lambda: not Run.objects.exclude(state="succeeded").exists(), every=0.02)
        taken = time.time() - began
        spent = _cpu(watched) - cpu
    found = [number for number, _ in marks()]
    if len(found) != count or len(set(found)) != count:
        raise SystemExit(f"{count} were enqueued, {len(found)} ran, {len(set(found))} different")
    return count / taken, spent / count * 1000


def bare_loop(count: int) -> float:
    """The same transport and table with nothing around them: runs a second of one Python loop."""
    from django.db import connection

    clear()
    client = redis()
    client.delete("bare")
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bare")
        cursor.execute(
            "CREATE TABLE bare (id bigint PRIMARY KEY, state text, finished_at timestamptz)"
        )
        cursor.execute(
            "INSERT INTO bare SELECT n, 'enqueued' FROM generate_series(1, %s) n", [count]
        )
    pipe = client.pipeline(transaction=False)
    for number in range(1, count + 1):
        pipe.xadd("bare", {"id": number, "payload": DATA})
    pipe.execute()
    client.xgroup_create("bare", "workers", id="0")
    began, done = time.perf_counter(), 0
    while done < count:
        entries = client.xreadgroup("workers", "one", {"bare": ">"}, count=100)[0][1]
        ids = [int(fields[b"id"]) for _, fields in entries]
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE bare SET state = 'succeeded', finished_at = clock_timestamp() "
                "WHERE id = ANY(%s) AND state = 'enqueued'",
                [ids],
            )
        client.xack("bare", "workers", *(entry_id for entry_id, _ in entries))
        done += len(entries)
    return count / (time.perf_counter() - began)


def _cpu(watched: object) -> float:
    times = watched.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
