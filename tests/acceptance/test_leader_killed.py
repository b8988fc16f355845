"""The leading scheduler dies, politely or not, and another one goes on from the rows."""

from __future__ import annotations

import random
from datetime import timedelta

from django.utils import timezone

from smallage_django.models import Heartbeat, LeaderTerm, Run
from tests.support.ledger import QUICK, Ledger, one_offs
from tests.support.processes import Processes
from tests.support.waiting import wait_until

#: What a busy machine adds to a promise about time, seconds.
SLACK_S = 2.0


def test_a_leader_killed_again_and_again_loses_and_doubles_nothing(
    processes: Processes, ledger: Ledger
) -> None:
    """R052, R058, R059. Given 300 one-offs over four seconds, when each leader in turn is killed at a random moment,
    then a standby takes over under a higher epoch, and each one-off runs once."""
    processes.configure(**QUICK)
    schedulers = [processes.scheduler(), processes.scheduler()]
    processes.worker()
    ledger.leader(*schedulers)
    one_offs(300, timezone.now() + timedelta(seconds=1), timedelta(milliseconds=13))

    # Counted in runs, a moment falls into every step of a pass sooner or later.
    moments = sorted(random.sample(range(10, 240), 3))
    for moment in moments:
        wait_until(lambda at=moment: Run.objects.count() >= at, 30, message=ledger.tell)
        leader = ledger.leader(*schedulers)
        leader.kill()
        schedulers.remove(leader)
        schedulers.append(processes.scheduler())

    rows = ledger.settle(300)
    assert {run.attempt for run in rows} == {1}
    # Where the last one died after its work was done, the next has still to take its place.
    ledger.leader(*schedulers)
    epochs = list(LeaderTerm.objects.order_by("id").values_list("epoch", flat=True))
    assert len(epochs) >= 4
    assert epochs == sorted(set(epochs))
    assert max(run.fence for run in rows) > epochs[0]


def test_a_due_run_flows_again_within_the_lease_of_a_killed_leader(
    processes: Processes, ledger: Ledger
) -> None:
    """R052, with the defaults: at most 6 s from kill -9 of the leader to the next hand-over."""
    schedulers = [processes.scheduler(), processes.scheduler()]
    processes.worker()
    leader = ledger.leader(*schedulers)
    standby = next(one for one in schedulers if one is not leader)
    # A standby that is still starting would be measured with its start.
    wait_until(lambda: _beats(standby.pid), 20, message=standby.tail)

    killed_at = timezone.now()
    leader.kill()
    one_offs(1, killed_at + timedelta(milliseconds=100))

    [run] = ledger.settle(1)
    assert run.enqueued_at is not None
    assert (run.enqueued_at - killed_at).total_seconds() <= 6 + SLACK_S
    assert ledger.leader(standby) is standby


def test_a_leader_that_is_asked_to_stop_hands_over_at_once(
    processes: Processes, ledger: Ledger
) -> None:
    """With the defaults: at most 1 s from SIGTERM to the first hand-over of the next leader."""
    schedulers = [processes.scheduler(), processes.scheduler()]
    processes.worker()
    leader = ledger.leader(*schedulers)
    standby = next(one for one in schedulers if one is not leader)
    wait_until(lambda: _beats(standby.pid), 20, message=standby.tail)

    asked_at = timezone.now()
    leader.terminate()
    one_offs(1, asked_at + timedelta(milliseconds=100))

    [run] = ledger.settle(1)
    assert leader.wait(5) == 0
    assert run.enqueued_at is not None
    assert (run.enqueued_at - asked_at).total_seconds() <= 1 + SLACK_S / 2
    terms = list(LeaderTerm.objects.order_by("epoch").values_list("pid", "ended_at"))
    assert [pid for pid, _ in terms] == [leader.pid, standby.pid]
    assert terms[0][1] is not None
    assert terms[1][1] is None


def _beats(pid: int) -> bool:
    return Heartbeat.objects.filter(pid=pid, role="scheduler").exists()
