"""The leading scheduler stands still for longer than its lease, and comes back."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from smallage_django.models import LeaderTerm, Run
from tests.support.freezing import freeze_between_writes
from tests.support.ledger import QUICK, Ledger, one_offs
from tests.support.processes import Processes
from tests.support.waiting import wait_until


def test_a_leader_that_was_stopped_past_its_lease_steps_down_and_doubles_nothing(
    processes: Processes, ledger: Ledger
) -> None:
    """R065, G6. Given a leader stopped in the middle of its work, when a standby leads and the old one goes on, then
    the old one is fenced: it steps down, stands by, and leads again when its turn comes."""
    processes.configure(**QUICK)
    schedulers = [processes.scheduler(), processes.scheduler()]
    processes.worker()
    first = ledger.leader(*schedulers)
    second = next(one for one in schedulers if one is not first)
    one_offs(200, timezone.now() + timedelta(milliseconds=500), timedelta(milliseconds=60))

    for frozen, other, done in ((first, second, 15), (second, first, 120)):
        wait_until(lambda at=done: Run.objects.count() >= at, 30, message=ledger.tell)
        terms = LeaderTerm.objects.count()
        freeze_between_writes(frozen)
        assert ledger.leader(other) is other
        at = Run.objects.count() + 1
        wait_until(lambda at=at: Run.objects.count() >= at, 30, message=ledger.tell)
        frozen.resume()
        frozen.wait_for_output(r"term \d+ is over: ")
        # A busy machine may cost a leader its short lease once more; the frozen one's is over in any case.
        assert LeaderTerm.objects.count() > terms

    rows = ledger.settle(200)
    assert {run.attempt for run in rows} == {1}
    assert first.alive
    assert second.alive
    assert "Traceback" not in first.output + second.output
    epochs = list(LeaderTerm.objects.order_by("id").values_list("epoch", flat=True))
    assert epochs == sorted(set(epochs))
