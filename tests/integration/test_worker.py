"""The worker's loop over a real database and a transport in memory, which can be away or move its clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from smallage_django.compat import task
from smallage_django.errors import BrokerUnavailable, StoreUnavailable
from smallage_django.models import Attempt, Heartbeat, Run
from smallage_django.ports import Begun
from smallage_django.recorder import MOST_UNWRITTEN
from smallage_django.runner import InlineRunner
from smallage_django.store.working import WorkingStore
from smallage_django.worker import Worker
from tests.app.models import Effect
from tests.support.memory_broker import MemoryBroker
from tests.support.site import Site
from tests.support.waiting import stays, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@task
def interrupts() -> None:
    """What Ctrl-C inside user code looks like."""
    raise KeyboardInterrupt


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(MemoryBroker())
    yield made
    made.broker.away = False
    for worker, _ in made.started:
        worker.stop()
    for _, thread in made.started:
        thread.join(20)


def state_of(run: Run) -> str:
    return Run.objects.values_list("state", flat=True).get(pk=run.pk)


def wait_for(run: Run, state: str, timeout: float = 10.0) -> Run:
    wait_until(lambda: state_of(run) == state, timeout, message=lambda: state_of(run))
    run.refresh_from_db()
    return run


# -- the ordinary path ------------------------------------------------------------------------------------------------


def test_a_burst_works_off_what_is_ready_and_returns(site: Site) -> None:
    runs = [site.enqueue("record", kwargs={"key": f"k{n}"}) for n in range(30)]
    runs += [site.enqueue("async_add", kwargs={"a": n, "b": 1}) for n in range(10)]

    worker = site.burst()

    assert Run.objects.filter(state="succeeded", attempt=1).count() == 40
    assert sorted(Effect.objects.values_list("fire_id", flat=True)) == sorted(
        run.fire_id for run in runs[:30]
    )
    assert (site.broker.pending(), site.broker.waiting(), site.broker.alive) == (0, 0, {})
    assert worker.recorder.counts == {"succeeded": 40}
    runs[31].refresh_from_db()
    assert (runs[31].result, runs[31].worker) == (2, "w1")
    assert runs[31].finished_at >= runs[31].started_at >= runs[31].enqueued_at


def test_an_idle_burst_returns_at_once(site: Site) -> None:
    before = time.monotonic()

    site.burst()

    assert time.monotonic() - before < 1.0


def test_a_worker_that_waits_starts_what_arrives(site: Site) -> None:
    site.start()
    wait_until(Heartbeat.objects.exists)

    run = wait_for(site.enqueue("add", kwargs={"a": 1, "b": 2}), "succeeded")

    assert run.result == 3


def test_the_same_fire_twice_on_the_stream_runs_once(site: Site) -> None:
    """R113"""
    run = site.enqueue("record", kwargs={"key": "k"})
    for _ in range(3):
        site.add(run)

    site.burst()
    site.add(run)
    site.burst("w2")

    assert Effect.objects.count() == 1
    assert (site.broker.pending(), site.broker.waiting()) == (0, 0)


def test_an_entry_of_another_producer_runs_and_gets_its_row(site: Site) -> None:
    """R087, R117"""
    site.broker.add(
        {
            b"v": b"1",
            b"id": b"ab" * 16,
            b"task": b"tests.app.tasks.add",
            b"payload": b'{"a": 2, "b": 3}',
            b"enqueued_at": b"1893499200000",
            b"attempt": b"0",
            b"colour": b"blue",
        }
    )

    site.burst()

    run = Run.objects.get()
    assert (run.fire_id, run.kind, run.state, run.result) == ("ab" * 16, "enqueue", "succeeded", 5)


# -- failures and retries ---------------------------------------------------------------------------------------------


def test_a_failing_run_is_tried_again_until_its_budget_is_spent(site: Site) -> None:
    """R081: 1 s after the first failure and 2 s after the second, up to a fifth sooner."""
    run = site.enqueue("fail", kwargs={"message": "no"}, max_attempts=3)
    for attempt, seconds in ((1, 1.0), (2, 2.0)):
        site.burst()
        run.refresh_from_db()
        assert (run.state, run.attempt, run.promotion) == ("retrying", attempt, attempt)
        last = Attempt.objects.filter(run=run).latest("number")
        wait = (run.due_at - last.finished_at).total_seconds()
        assert seconds * 0.8 - 0.001 <= wait <= seconds + 0.001
        assert site.broker.pending() == 0
        site.promote_retry(run)

    site.burst()

    run.refresh_from_db()
    assert (run.state, run.reason_code, run.attempt) == ("failed", "attempts_exhausted", 3)
    assert run.reason == "attempt 3 of 3 failed: Boom: no"
    assert run.error_fingerprint
    attempts = Attempt.objects.filter(run=run).order_by("number")
    assert [(item.number, item.ending, item.worker) for item in attempts] == [
        (1, "failed", "w1"),
        (2, "failed", "w1"),
        (3, "failed", "w1"),
    ]
    assert all(item.error_class == "tests.app.tasks.Boom" for item in attempts)
    assert all("raise Boom(message)" in item.traceback for item in attempts)


def test_a_run_that_recovers_keeps_the_record_of_its_failures(site: Site) -> None:
    run = site.enqueue("fail_first", kwargs={"key": "k", "failures": 1})
    site.burst()
    site.promote_retry(run)

    site.burst()

    run.refresh_from_db()
    assert (run.state, run.attempt, run.error, run.reason) == ("succeeded", 2, "", "")
    assert Attempt.objects.get().number == 1


def test_a_task_that_this_process_does_not_have_waits_for_a_person(site: Site) -> None:
    run = site.enqueue("tests.app.tasks.gone")

    site.burst()

    run.refresh_from_db()
    assert (run.state, run.reason_code) == ("failed", "unknown_task")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"v": b"2"},
        {b"attempt": b"x"},
        {b"enqueued_at": b""},
        {b"task": b"\xff"},
        {b"id": b""},
        {b"id": b"a\0b"},
    ],
)
def test_an_entry_that_is_no_envelope_is_buried_and_a_lone_worker_goes_on(
    site: Site, fields: dict[bytes, bytes]
) -> None:
    """R086"""
    good = {
        b"v": b"1",
        b"id": b"x",
        b"task": b"tests.app.tasks.noop",
        b"payload": b"{}",
        b"enqueued_at": b"1893499200000",
        b"attempt": b"0",
    }
    site.broker.add({**good, **fields} if fields else {})
    run = site.enqueue("noop")

    site.burst()

    assert state_of(run) == "succeeded"
    assert [reason for _, reason in site.broker.buried] == ["malformed"]
    assert (site.broker.pending(), site.broker.waiting()) == (0, 0)


def test_the_run_of_a_malformed_entry_ends_with_it_instead_of_being_handed_over_for_ever(
    site: Site,
) -> None:
    """R086"""
    run = site.enqueue("noop")
    [delivery] = site.broker.take(["default"], "w1", 1)
    site.broker.ack([delivery])
    site.add(run, attempt=b"x")

    site.burst()

    run.refresh_from_db()
    assert (run.state, run.reason_code) == ("failed", "bad_arguments")
    assert run.reason.startswith("its entry cannot be read: attempt: attempt is 'x'")
    assert run.finished_at is not None
    assert [reason for _, reason in site.broker.buried] == ["malformed"]


def test_a_run_whose_instant_lies_before_1970_runs(site: Site) -> None:
    run = site.enqueue("noop")
    [delivery] = site.broker.take(["default"], "w1", 1)
    site.broker.ack([delivery])
    site.add(run, enqueued_at=b"-86400000")

    site.burst()

    assert state_of(run) == "succeeded"
    assert site.broker.buried == []


def test_a_malformed_entry_is_buried_while_the_database_is_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is then ended when it is handed over the next time."""
    run = site.enqueue("noop")
    [delivery] = site.broker.take(["default"], "w1", 1)
    site.broker.ack([delivery])
    worker = site.worker()
    with monkeypatch.context() as patch:
        patch.setattr(worker._store, "fail_unstarted", _away)
        worker.handle([site.add(run, attempt=b"x")])
    assert state_of(run) == "claimed"
    assert len(site.broker.buried) == 1

    worker.handle([site.add(run, attempt=b"x")])

    assert state_of(run) == "failed"
    assert len(site.broker.buried) == 2


def _away(*_: Any) -> bool:
    raise StoreUnavailable("gone")


def test_an_entry_that_kills_its_workers_before_they_begin_is_buried(site: Site) -> None:
    """R080: taken six times, and each of these workers died before it began the run."""
    run = site.enqueue("noop")
    for number in range(6):
        take = site.broker.take if number == 0 else site.broker.reclaim
        assert take(["default"], f"dead{number}", 1)
        site.broker.passed += 20

    site.burst()

    run.refresh_from_db()
    assert (run.state, run.reason_code, run.attempt) == ("failed", "too_many_deliveries", 0)
    assert [reason for _, reason in site.broker.buried] == ["too_many_deliveries"]


# -- owners that go silent --------------------------------------------------------------------------------------------


def dead_owner(site: Site, run: Run, name: str = "dead") -> Begun:
    """A worker that began a run and was killed."""
    worker = site.worker(name)
    [item] = site.broker.take(["default"], name, 1)
    [pair] = worker._readable([item])
    [begun] = WorkingStore("default").begin([pair], name, "t" * 32, site.now()).begun
    assert begun.run_id == run.pk
    return begun


def test_the_run_of_a_killed_worker_is_taken_over(site: Site) -> None:
    """R078"""
    run = site.enqueue("record", kwargs={"key": "k"})
    dead_owner(site, run)

    site.burst()
    assert state_of(run) == "running"
    site.broker.passed += 20
    site.burst()

    run.refresh_from_db()
    assert (run.state, run.attempt, run.worker) == ("succeeded", 2, "w1")
    assert [(item.number, item.ending) for item in Attempt.objects.all()] == [(1, "lost")]


def test_a_lost_run_without_an_attempt_left_ends_and_its_entry_goes(site: Site) -> None:
    run = site.enqueue("record", kwargs={"key": "k"}, max_attempts=1)
    dead_owner(site, run)
    site.broker.passed += 20

    site.burst()

    run.refresh_from_db()
    assert (run.state, run.reason_code) == ("failed", "worker_lost")
    assert not Effect.objects.exists()
    assert site.broker.pending() == 0


def test_a_worker_started_again_under_its_name_takes_its_own_entries_back(site: Site) -> None:
    run = site.enqueue("record", kwargs={"key": "k"})
    dead_owner(site, run, "w1")
    site.broker.passed += 20

    site.burst("w1")

    run.refresh_from_db()
    assert (run.state, run.attempt) == ("succeeded", 2)


def test_of_several_workers_only_one_takes_over(site: Site) -> None:
    """R079"""
    run = site.enqueue("record", kwargs={"key": "k"})
    dead_owner(site, run)
    site.broker.passed += 20

    for number in range(5):
        site.start(f"w{number}")

    wait_for(run, "succeeded")
    assert run.attempt == 2
    assert Effect.objects.count() == 1


def test_the_late_outcome_of_a_worker_that_was_thought_dead_is_refused(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a worker that went silent in user code, when another one took over, then its outcome does not count."""
    release = tmp_path / "release"
    run = site.enqueue("record_and_hold", kwargs={"key": "k", "path": str(release)})
    silent = site.start("silent")
    wait_until(lambda: Effect.objects.count() == 1)
    silent.hand.drop(silent.hand.all())
    silent._store.beat = lambda *_: None  # type: ignore[method-assign]
    Heartbeat.objects.filter(name="silent").delete()
    site.broker.passed += 20
    site.start("heir")
    wait_until(lambda: Effect.objects.count() == 2)

    with caplog.at_level(logging.WARNING):
        release.touch()
        wait_for(run, "succeeded")
        wait_until(lambda: silent.recorder.counts["ownership lost"] == 1)

    assert (run.attempt, run.worker) == (2, "heir")
    assert "ownership lost" in caplog.text
    wait_until(lambda: site.broker.pending() == 0)


# -- liveness ---------------------------------------------------------------------------------------------------------


def test_an_entry_looks_alive_for_as_long_as_its_code_runs(site: Site, tmp_path: Path) -> None:
    """R076, R077"""
    site.broker.alive_ttl = 0.6
    release = tmp_path / "release"
    run = site.enqueue("record_and_hold", kwargs={"key": "k", "path": str(release)})
    site.start(alive_ttl=timedelta(seconds=0.6))
    wait_until(Effect.objects.exists)

    stays(lambda: all(at > time.monotonic() for at in site.broker.alive.values()), 1.5)
    assert len(site.broker.alive) == 1
    release.touch()

    wait_for(run, "succeeded")
    wait_until(lambda: not site.broker.alive)


def test_busy_threads_do_not_look_dead(site: Site) -> None:
    """R105: more blocking tasks than threads, and a peer that would take over what looks abandoned."""
    site.broker.alive_ttl, site.broker.grace = 0.6, 0.1
    runs = [site.enqueue("slow", kwargs={"seconds": 0.25}) for _ in range(20)]

    for name in ("w1", "w2"):
        site.start(name, alive_ttl=timedelta(seconds=0.6))

    wait_until(lambda: Run.objects.filter(state="succeeded").count() == len(runs), 20)
    assert Run.objects.filter(attempt=1).count() == len(runs)


def test_a_worker_is_seen_while_it_lives_and_said_to_have_ended(site: Site) -> None:
    worker = site.start()
    beat = wait_until(lambda: Heartbeat.objects.filter(name="w1").first())
    assert (beat.role, beat.queues, beat.threads, beat.stopped_at) == (
        "worker",
        ["default"],
        4,
        None,
    )

    site.stop(worker)

    beat.refresh_from_db()
    assert beat.stopped_at is not None


# -- dependencies that go away ----------------------------------------------------------------------------------------


def test_redis_may_go_away_and_come_back(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """R100: told in few lines."""
    with caplog.at_level(logging.INFO, "smallage_django"):
        site.start()
        wait_for(site.enqueue("noop"), "succeeded")
        site.broker.away = True
        run = site.enqueue("noop")
        wait_until(lambda: "Redis is away" in caplog.text)
        stays(lambda: state_of(run) == "claimed", 0.5)
        site.broker.away = False

        wait_for(run, "succeeded")

    assert caplog.text.count("Redis is away; trying again") <= 2
    assert "worker: recovered after" in caplog.text


def test_redis_may_forget_everything(site: Site) -> None:
    """R101: what was in the stream is rebuilt by the scheduler; the worker goes on with what comes."""
    site.start()
    wait_for(site.enqueue("noop"), "succeeded")

    site.broker.flush()

    wait_for(site.enqueue("noop"), "succeeded")


class Flaky:
    """Makes one method of a store fail as if the database were away, until told otherwise."""

    def __init__(self, store: Any, name: str) -> None:
        self.away = True
        self.calls = 0
        self._real: Callable[..., Any] = getattr(store, name)
        setattr(store, name, self)

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.away:
            raise StoreUnavailable("the database is away")
        return self._real(*args)


def test_an_outcome_that_cannot_be_written_is_kept_and_not_acknowledged(site: Site) -> None:
    worker = site.worker()
    finish = Flaky(worker._store, "finish")
    run = site.enqueue("record", kwargs={"key": "k"})
    site.launch(worker)
    wait_until(lambda: finish.calls > 1)
    assert (state_of(run), site.broker.pending()) == ("running", 1)

    finish.away = False

    wait_for(run, "succeeded")
    wait_until(lambda: site.broker.pending() == 0)
    assert Effect.objects.count() == 1


def test_no_new_work_is_taken_while_too_many_outcomes_are_unwritten(site: Site) -> None:
    worker = site.worker()
    assert worker.room() == 4

    for _ in range(MOST_UNWRITTEN):
        worker.recorder.put(None, None)  # type: ignore[arg-type]

    assert worker.room() == 0


def test_entries_wait_in_hand_while_the_database_is_away(site: Site) -> None:
    """Given the database is away, when entries were taken, then waiting for it costs them no delivery."""
    worker = site.worker()
    begin = Flaky(worker._store, "begin")
    run = site.enqueue("noop")
    site.launch(worker)
    wait_until(lambda: begin.calls > 2)
    [entry] = site.broker.streams["ns:q:default:0"].values()
    assert entry.deliveries == 1

    begin.away = False

    wait_for(run, "succeeded")


def test_one_entry_that_cannot_be_begun_does_not_hold_up_the_others(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    worker = site.worker(burst=True)
    bad, good = site.enqueue("noop"), site.enqueue("noop")
    real = worker._store.begin

    def begin(pairs: Any, *rest: Any) -> Any:
        if any(letter.id == bad.fire_id for _, letter in pairs):
            raise ZeroDivisionError
        return real(pairs, *rest)

    worker._store.begin = begin  # type: ignore[method-assign]
    worker.run()

    assert (state_of(good), state_of(bad)) == ("succeeded", "claimed")
    assert site.broker.pending() == 1


def test_a_burst_does_not_wait_for_redis_for_ever(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smallage_django.worker.BURST_PATIENCE_S", 0.3)
    site.broker.away = True

    with pytest.raises(BrokerUnavailable):
        site.burst()


def test_work_can_be_done_in_the_callers_own_thread(site: Site) -> None:
    model = site.worker(burst=True)
    worker = Worker(model._store, site.broker, InlineRunner(), model._clock, model.options)
    runs = [site.enqueue("record", kwargs={"key": "k"}) for _ in range(3)]

    assert worker.work_off() == 3

    assert [state_of(run) for run in runs] == ["succeeded"] * 3
    assert site.broker.pending() == 0


# -- the end ----------------------------------------------------------------------------------------------------------


def test_an_idle_worker_stops_within_a_second(site: Site) -> None:
    """R099"""
    worker = site.start()
    wait_until(Heartbeat.objects.exists)

    assert site.stop(worker) < 1.0


def test_draining_ends_the_short_and_leaves_the_long_to_others(site: Site, tmp_path: Path) -> None:
    """R097"""
    short = site.enqueue("slow", kwargs={"seconds": 0.4})
    path = str(tmp_path / "never")
    long = site.enqueue("record_and_hold", kwargs={"key": "k", "path": path})
    worker = site.start(drain_timeout=timedelta(seconds=1))
    wait_until(lambda: Run.objects.filter(state="running").count() == 2)

    took = site.stop(worker)

    assert 0.9 < took < 2.5
    assert worker.left_running
    assert (state_of(short), state_of(long)) == ("succeeded", "running")
    assert (site.broker.pending(), site.broker.alive) == (1, {})
    (tmp_path / "never").touch()
    site.burst("heir")
    long.refresh_from_db()
    assert (long.state, long.attempt, long.worker) == ("succeeded", 2, "heir")


def test_nothing_is_taken_while_draining(site: Site) -> None:
    running = site.enqueue("slow", kwargs={"seconds": 0.5})
    worker = site.start()
    wait_until(lambda: state_of(running) == "running")
    worker.stop()
    later = site.enqueue("noop")

    wait_for(running, "succeeded")

    assert (state_of(later), site.broker.waiting()) == ("claimed", 1)


def test_a_second_stop_ends_at_once(site: Site, tmp_path: Path) -> None:
    """R098"""
    path = tmp_path / "never"
    run = site.enqueue("record_and_hold", kwargs={"key": "k", "path": str(path)})
    worker = site.start(drain_timeout=timedelta(seconds=60))
    wait_until(Effect.objects.exists)
    worker.stop()

    assert site.stop(worker) < 1.0

    assert state_of(run) == "running"
    assert site.broker.alive == {}
    path.touch()


def test_an_interrupt_in_user_code_gives_the_run_back_and_stops(site: Site) -> None:
    run = site.enqueue(interrupts.module_path)
    worker = site.start()
    thread = site.started[0][1]

    thread.join(10)

    assert not thread.is_alive()
    assert worker.stopping
    run.refresh_from_db()
    assert (run.state, run.attempt, run.worker) == ("claimed", 0, "")
    assert (site.broker.pending(), site.broker.alive) == (1, {})


def test_stopping_while_the_database_is_away_lets_the_entries_go(site: Site) -> None:
    worker = site.worker(drain_timeout=timedelta(seconds=0.3))
    begin = Flaky(worker._store, "begin")
    site.enqueue("noop")
    site.launch(worker)
    wait_until(lambda: begin.calls > 1)

    site.stop(worker)

    assert (site.broker.pending(), site.broker.alive) == (1, {})
