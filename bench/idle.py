"""What a scheduler costs that has nothing to do: CPU and memory with 1,000 and 100,000 schedules, none due."""

from __future__ import annotations

import time

from bench.harness import Bench, clear, process, wait_for

FAR = "0 0 29 2 *"


def main() -> None:
    bench = Bench("idle", seconds=20)
    with bench.servers():
        for count in (1_000, 100_000):
            memory, cpu, edit = idle(count, bench.options.seconds)
            bench.add(f"memory, {count:,} schedules", "MB", [memory], reach=90.0)
            bench.add(f"CPU, {count:,} schedules", "s/min", [cpu], reach=0.3)
            bench.add(f"an edit acts, {count:,} schedules", "s", [edit], reach=1.2)
    bench.show()


def idle(count: int, seconds: int) -> tuple[float, float, float]:
    """(Memory in MB, CPU seconds a minute, seconds until an edit by ``update`` is planned)."""
    import psutil

    from smallage_django.models import Schedule

    clear()
    for start in range(0, count, 5000):
        Schedule.objects.bulk_create(
            [
                Schedule(
                    name=f"s{n}", expression=FAR, task="bench.tasks.mark", kwargs={"number": n}
                )
                for n in range(start, min(start + 5000, count))
            ]
        )
    with process("smallage_scheduler") as child:
        wait_for(lambda: not Schedule.objects.filter(is_stale=True).exists(), 300, every=0.2)
        time.sleep(3)
        watched = psutil.Process(child.pid)
        before = watched.cpu_times()
        time.sleep(seconds)
        after = watched.cpu_times()
        spent = after.user + after.system - before.user - before.system
        memory = watched.memory_full_info().pss / 1e6
        edit = _edit()
    return memory, spent / seconds * 60, edit


def _edit() -> float:
    from smallage_django.models import Schedule

    began = time.perf_counter()
    Schedule.objects.filter(name="s7").update(expression="30 3 1 1 *")
    wait_for(lambda: not Schedule.objects.filter(is_stale=True).exists(), 30)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
