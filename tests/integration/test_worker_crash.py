"""A worker that dies at every single step: the crash matrix of the protocol, worker's half.

The steps are the calls into the broker and the store. Each is tried twice: the worker dies before the call reached
them, and after it did but before the answer was read.
"""

from __future__ import annotations

from collections import Counter

import pytest

from smallage_django.models import Attempt, Heartbeat, Run
from smallage_django.runner import InlineRunner
from smallage_django.worker import Worker
from tests.app.models import Effect
from tests.support.fate import Died, Fate, Mortal
from tests.support.memory_broker import MemoryBroker
from tests.support.site import Site

pytestmark = pytest.mark.django_db(transaction=True)


def work_until_death(site: Site, fate: Fate) -> bool:
    """One worker, in this thread, until nothing is left; whether it lived to see that."""
    model = site.worker("mortal")
    store, broker = Mortal(model._store, fate), Mortal(site.broker, fate)
    worker = Worker(store, broker, InlineRunner(), model._clock, model.options)  # type: ignore[arg-type]
    try:
        while site.broker.waiting() or site.broker.pending():
            worker.step()
            while worker.recorder.wait(0):
                worker.recorder.write()
    except Died:
        return False
    return True


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "answer lost"])
def test_whenever_a_worker_dies_each_run_is_recorded_once_and_none_is_lost(after: bool) -> None:
    """R083, R112, and rows 1 to 5 of the worker's table in PROTOCOL 2.4"""
    twice: Counter[str] = Counter()
    number = 0
    while True:
        # Given three runs, of which one fails, and a worker that dies at call `number`
        number += 1
        for model in (Run, Attempt, Effect, Heartbeat):
            model.objects.all().delete()
        site = Site(MemoryBroker())
        good = [site.enqueue("record", kwargs={"key": f"k{n}"}) for n in range(2)]
        bad = site.enqueue("fail")
        fate = Fate(number, after)

        # When it has died and its peers have found out
        survived = work_until_death(site, fate)
        site.broker.passed += 20
        site.burst("heir")

        # Then every run is over or waits for its retry, nothing is left in the stream, and what ran twice was
        # between its effect and its outcome
        states = dict(Run.objects.values_list("fire_id", "state"))
        where = f"died at call {number}, {fate.last}"
        assert [states[run.fire_id] for run in good] == ["succeeded"] * 2, where
        assert states[bad.fire_id] == "retrying", where
        assert (site.broker.pending(), site.broker.waiting()) == (0, 0), where
        effects = Counter(Effect.objects.values_list("key", flat=True))
        assert set(effects) == {"k0", "k1"}, where
        if max(effects.values()) > 1:
            twice[fate.last] += 1
        for run in Run.objects.all():
            assert run.promotion == (1 if run.state == "retrying" else 0), where
            assert run.attempt <= 2, where
        if survived:
            break

    assert number > 12
    assert set(twice) == ({"finish"} if not after else set())
