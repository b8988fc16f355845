"""How fast due work reaches the streams: N one-off rows due at one instant, N schedules due at one minute."""

from __future__ import annotations

import time
from datetime import timedelta

from bench.harness import DATA, Bench, clear, redis


def main() -> None:
    bench = Bench("promote", count=10_000)
    with bench.servers():
        count = bench.options.count
        bare = bench.measure("bare path, one-off rows", "s", lambda: bare_path(count))
        ours = bench.measure("one-off rows handed over", "s", lambda: delayed(count), reach=2.0)
        bench.rows[-1]["ratio"] = round(ours / bare, 2)
        ours = bench.measure("schedules handed over", "s", lambda: schedules(count), reach=3.0)
        bench.rows[-1]["ratio"] = round(ours / bare, 2)
    bench.show()


def delayed(count: int) -> float:
    from smallage_django.models import DelayedRun, Run
    from smallage_django.wiring import clock

    clear()
    run_at = clock().now() - timedelta(seconds=1)
    DelayedRun.objects.bulk_create(
        [
            DelayedRun(run_at=run_at, task="bench.tasks.mark", kwargs={"number": n, "data": DATA})
            for n in range(count)
        ],
        batch_size=1000,
    )
    taken = promote()
    check(count, Run.objects.filter(kind="delayed", state="enqueued").count())
    return taken


def schedules(count: int) -> float:
    from smallage_django.models import Run, Schedule
    from smallage_django.store.scheduling import SchedulingStore
    from smallage_django.wiring import clock

    clear()
    Schedule.objects.bulk_create(
        [
            Schedule(
                name=f"s{n}",
                expression="* * * * *",
                task="bench.tasks.mark",
                kwargs={"number": n, "data": DATA},
            )
            for n in range(count)
        ],
        batch_size=1000,
    )
    now = clock().now()
    store = SchedulingStore()
    while store.plan_stale(now, 1000):
        pass
    minute = now.replace(second=0, microsecond=0)
    Schedule.objects.update(next_due_at=minute)
    taken = promote()
    check(count, Run.objects.filter(scheduled_for=minute, state="enqueued").count())
    return taken


def promote() -> float:
    """From the first look at the rows until nothing is due."""
    from smallage_django import wiring

    scheduler = wiring.scheduler()
    began = time.perf_counter()
    scheduler.once()
    return time.perf_counter() - began


def check(count: int, found: int) -> None:
    """Nothing doubled, nothing lost."""
    entries = {fields[b"id"] for _, fields in redis().xrange("{bench}:q:default:0")}
    if found != count or len(entries) != count:
        raise SystemExit(f"{count} were due, {found} rows and {len(entries)} entries came of it")


def bare_path(count: int) -> float:
    """The same work with nothing around it: insert by unnest, XADD by script, mark, a thousand at a time."""
    import json

    from django.db import connection

    client = redis()
    client.delete("bare")
    script = client.register_script(
        "local r = {} for i = 1, #ARGV, 2 do "
        "r[#r + 1] = redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'payload', ARGV[i + 1]) end return r"
    )
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bare")
        cursor.execute(
            "CREATE TABLE bare (id bigserial PRIMARY KEY, fire_id text UNIQUE, payload jsonb, state text, entry text)"
        )
    began = time.perf_counter()
    for start in range(0, count, 1000):
        ids = [f"bare:{n}" for n in range(start, min(start + 1000, count))]
        payloads = [json.dumps({"number": n, "data": DATA}) for n in range(len(ids))]
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO bare (fire_id, payload, state) SELECT i, p::jsonb, 'claimed' "
                "FROM unnest(%s::text[], %s::text[]) u(i, p) RETURNING id",
                [ids, payloads],
            )
            rows = [row[0] for row in cursor.fetchall()]
        pairs = [value for pair in zip(ids, payloads, strict=True) for value in pair]
        entries = [entry.decode() for entry in script(keys=["bare"], args=pairs)]
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE bare b SET state = 'enqueued', entry = u.e FROM unnest(%s::bigint[], %s::text[]) u(i, e) "
                "WHERE b.id = u.i",
                [rows, entries],
            )
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
