"""One installation with workers in threads of the test's process and a transport in memory."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connections

from smallage_django.domain import identity
from smallage_django.models import Run
from smallage_django.ports import Delivery
from smallage_django.runner import TaskRunner
from smallage_django.store.clock import CalibratedClock, DatabaseNow
from smallage_django.store.working import WorkingStore
from smallage_django.worker import Options, Worker
from tests.support.memory_broker import MemoryBroker
from tests.support.runs import make_run

TASKS = "tests.app.tasks."


@dataclass
class Site:
    """One installation: the broker, the rows, and any number of workers in threads of this process."""

    broker: MemoryBroker
    started: list[tuple[Worker, threading.Thread]] = field(default_factory=list)

    def enqueue(self, path: str, **values: Any) -> Run:
        """A claimed run and its entry."""
        name = path if "." in path else TASKS + path
        kwargs = values.pop("kwargs", {})
        run = make_run(**{"task": name, "kwargs": kwargs, "due_at": self.now(), **values})
        self.add(run)
        return run

    def add(self, run: Run, **fields: bytes) -> Delivery:
        """An entry of a run."""
        return self.broker.add(
            {
                b"v": b"1",
                b"id": run.fire_id.encode(),
                b"task": run.task.encode(),
                b"payload": b"{}",
                b"enqueued_at": b"1893499200000",
                b"attempt": b"0",
                **{key.encode(): value for key, value in fields.items()},
            },
            at_ms=identity.epoch_ms(self.now()),
        )

    def promote_retry(self, run: Run) -> None:
        """What the scheduler does when a retry is due."""
        assert Run.objects.filter(pk=run.pk, state="retrying").update(state="claimed") == 1
        self.add(run)

    def now(self) -> Any:
        return DatabaseNow("default").now()

    def worker(self, name: str = "w1", threads: int = 4, **options: Any) -> Worker:
        values = {"alive_ttl": timedelta(seconds=6), "reclaim_every": timedelta(seconds=0.05)}
        store = WorkingStore("default", silent_after=timedelta(seconds=6))
        facts = {"host": "h", "pid": 1, "version": "0", "threads": threads}
        return Worker(
            store,
            self.broker,
            TaskRunner(threads),
            CalibratedClock(DatabaseNow("default").now),
            Options(name=name, queues=["default"], facts=facts, **{**values, **options}),
        )

    def start(self, name: str = "w1", **options: Any) -> Worker:
        """Run a worker in a thread until the test ends."""
        worker = self.worker(name, **options)
        self.launch(worker)
        return worker

    def launch(self, worker: Worker) -> None:
        def run() -> None:
            worker.run()
            connections.close_all()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.started.append((worker, thread))

    def burst(self, name: str = "w1", **options: Any) -> Worker:
        """Work off what is ready."""
        worker = self.worker(name, burst=True, **options)
        worker.run()
        return worker

    def stop(self, worker: Worker) -> float:
        """Stop a started worker; how many seconds it took."""
        thread = next(thread for one, thread in self.started if one is worker)
        before = time.monotonic()
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()
        return time.monotonic() - before
