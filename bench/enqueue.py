"""How fast an application enqueues: one by one, and in bulk, beside what the ORM and Redis alone would take."""

from __future__ import annotations

import time

from bench.harness import DATA, Bench, clear, redis


def main() -> None:
    bench = Bench("enqueue", count=2000, bulk=20_000)
    with bench.servers():
        count = bench.options.count
        limit = bench.measure("create() + XADD", "rows/s", lambda: create_and_xadd(count))
        ours = bench.measure("enqueue()", "rows/s", lambda: one_by_one(count))
        bench.rows[-1] |= {"ratio": round(ours / limit, 2), "reach": 0.7}
        bench.measure(
            "enqueue_many(), 1,000 a call",
            "rows/s",
            lambda: in_bulk(bench.options.bulk),
            reach=8000.0,
        )
    bench.show()


def create_and_xadd(count: int) -> float:
    from django.utils import timezone

    from smallage_django.models import Run

    clear()
    client = redis()
    began = time.perf_counter()
    for n in range(count):
        now = timezone.now()
        Run.objects.create(
            fire_id=f"bench:{n}",
            kind="enqueue",
            task="bench.tasks.mark",
            kwargs={"number": n, "data": DATA},
            scheduled_for=now,
            due_at=now,
        )
        client.xadd("bench", {"id": n, "payload": DATA})
    return count / (time.perf_counter() - began)


def one_by_one(count: int) -> float:
    from bench.tasks import mark

    clear()
    began = time.perf_counter()
    for n in range(count):
        mark.enqueue(number=n, data=DATA)
    taken = time.perf_counter() - began
    check(count)
    return count / taken


def in_bulk(count: int) -> float:
    from bench.tasks import mark
    from smallage_django import enqueue_many

    clear()
    began = time.perf_counter()
    for start in range(0, count, 1000):
        enqueue_many(mark, [{"number": n, "data": DATA} for n in range(start, start + 1000)])
    taken = time.perf_counter() - began
    check(count)
    return count / taken


def check(count: int) -> None:
    from smallage_django.models import Run

    rows, entries = Run.objects.count(), redis().xlen("{bench}:q:default:0")
    if rows != count or entries != count:
        raise SystemExit(f"{count} were enqueued, {rows} rows and {entries} entries came of it")


if __name__ == "__main__":
    main()
