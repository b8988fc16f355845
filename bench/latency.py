"""How long an idle system takes: due instant to hand-over, enqueue to start, a dead leader to the next run."""

from __future__ import annotations

import random
import signal
import threading
import time
from datetime import timedelta

from bench.harness import Bench, clear, percentile, process, redis, wait_for


def main() -> None:
    bench = Bench("latency", count=200)
    count = bench.options.count
    with bench.servers():
        bench.add("bare hand-over by Redis, p50", "ms", [percentile(hand_over(count), 50)])
        bench.add("one commit, p50", "ms", [percentile(commits(count), 50)])
        handed, started = due_to_hand_over(count), enqueue_to_start(count)
        for what, lags, reach in (
            ("due instant to hand-over", handed, (12.0, 40.0)),
            ("enqueue to start", started, (8.0, 25.0)),
        ):
            bench.add(f"{what}, p50", "ms", [percentile(lags, 50)], reach=reach[0])
            bench.add(f"{what}, p99", "ms", [percentile(lags, 99)], reach=reach[1])
        bench.measure("kill -9 of the leader, next hand-over", "s", dead_leader, reach=6.0)
        bench.measure("SIGTERM of the leader, next hand-over", "s", stopped_leader, reach=1.0)
    bench.show()


def hand_over(count: int) -> list[float]:
    """From a push to the wake-up of a thread that blocks on the list."""
    client, found = redis(), []

    def listen() -> None:
        own = redis()
        for _ in range(count):
            _, at = own.blpop(["bare"], timeout=10)
            found.append((time.perf_counter() - float(at)) * 1000)

    listener = threading.Thread(target=listen)
    listener.start()
    for _ in range(count):
        time.sleep(0.005)
        client.lpush("bare", time.perf_counter())
    listener.join()
    return found


def commits(count: int) -> list[float]:
    """One row inserted and committed."""
    from django.db import connection

    found = []
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bare")
        cursor.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, state text)")
        for _ in range(count):
            began = time.perf_counter()
            cursor.execute("INSERT INTO bare (state) VALUES ('claimed')")
            found.append((time.perf_counter() - began) * 1000)
    return found


def due_to_hand_over(count: int) -> list[float]:
    """One-off runs at random instants, an idle scheduler in between."""
    from bench.tasks import mark
    from smallage_django import delay
    from smallage_django.models import Run
    from smallage_django.wiring import clock

    clear()
    with process("smallage_scheduler"):
        _leads()
        at = clock().now() + timedelta(seconds=1)
        for n in range(count):
            at += timedelta(seconds=random.uniform(0.03, 0.08))
            delay(mark, run_at=at, kwargs={"number": n})
        wait_for(lambda: Run.objects.filter(state="enqueued").count() == count)
    return [float(lag) for lag in Run.objects.values_list("dispatch_lag_ms", flat=True)]


def enqueue_to_start(count: int) -> list[float]:
    """Enqueued one at a time to an idle worker; from just before the call to the first line of the task."""
    from bench.harness import marks, marks_count
    from bench.tasks import mark
    from smallage_django.models import Heartbeat

    clear()
    asked: list[float] = []
    with process("smallage_worker"):
        wait_for(lambda: Heartbeat.objects.filter(role="worker").exists())
        for n in range(count + 20):
            time.sleep(0.02)
            asked.append(time.time())
            mark.enqueue(number=n)
            expected = n + 1
            wait_for(lambda: marks_count() >= expected, every=0.0005)  # noqa: B023
    return [(at - asked[n]) * 1000 for n, at in marks()[20:]]


def dead_leader() -> float:
    return _failover(signal.SIGKILL)


def stopped_leader() -> float:
    return _failover(signal.SIGTERM)


def _failover(signum: signal.Signals) -> float:
    """Two schedulers; the leader ends just before a run is due; when it is handed over after its end."""
    from bench.tasks import mark
    from smallage_django import delay
    from smallage_django.models import Run
    from smallage_django.wiring import clock

    clear()
    with process("smallage_scheduler") as leader:
        _leads()
        with process("smallage_scheduler"):
            time.sleep(2)
            delay(mark, run_at=clock().now() + timedelta(seconds=0.2), kwargs={"number": 1})
            leader.send_signal(signum)
            began = time.perf_counter()
            wait_for(lambda: Run.objects.filter(state="enqueued").exists())
            return time.perf_counter() - began


def _leads() -> None:
    from smallage_django.models import LeaderTerm

    wait_for(lambda: LeaderTerm.objects.filter(ended_at__isnull=True).exists())


if __name__ == "__main__":
    main()
