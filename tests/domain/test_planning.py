"""What a schedule owes: the decision as a table. Rules here are plain minutes, so that the sums can be done by eye."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from smallage_django.domain import identity
from smallage_django.domain.lifecycle import State
from smallage_django.domain.planning import Blocker, Outage, Plan, Standing, plan
from smallage_django.domain.policies import MissedPolicy, OverlapPolicy, Policies
from smallage_django.domain.recurrence import Cron
from smallage_django.errors import InvalidPolicy

UID = uuid.UUID(int=7)
EVERY_MINUTE = Cron("* * * * *")
DAILY = Cron("0 2 * * *")
NOON = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def decide(
    now: datetime,
    *,
    since: datetime = NOON,
    rule: Cron = EVERY_MINUTE,
    outages: tuple[Outage, ...] = (),
    policies: Policies | None = None,
    blocker: Blocker | None = None,
    ends_at: datetime | None = None,
    runs_left: int | None = None,
    limit: int = 1000,
) -> Plan:
    standing = Standing(UID, rule, policies or Policies(), since, ends_at, runs_left, blocker)
    return plan(standing, outages, now, limit)


def facts(decided: Plan) -> list[tuple[str, str, int]]:
    return [(fire.state.value, fire.reason_code, fire.count) for fire in decided.fires]


def test_an_occurrence_on_time_is_claimed_and_the_next_one_stored() -> None:
    decided = decide(NOON)
    assert facts(decided) == [("claimed", "", 1)]
    assert decided.fires[0].fire_id == identity.scheduled(UID, NOON)
    assert decided.next_due_at == NOON + MINUTE
    assert decided.accounted_until == NOON


def test_nothing_is_decided_before_the_occurrence() -> None:
    assert decide(NOON - timedelta(microseconds=1)).fires == ()


def test_a_leader_that_is_merely_behind_makes_late_runs_and_not_one_missed_row() -> None:
    decided = decide(NOON + 5 * MINUTE, policies=Policies(overlap=OverlapPolicy.ALLOW))
    assert facts(decided) == [("claimed", "", 1)] * 6


def test_three_days_down_are_one_run_that_covers_the_latest_and_one_gap_row() -> None:
    """R038, R039, R041: late rather than lost; missed occurrences collapse into the latest."""
    start = datetime(2027, 3, 1, 2, tzinfo=UTC)
    now = start + timedelta(days=2, hours=7)  # 1st, 2nd and 3rd of March at 02:00
    down = Outage(start - timedelta(hours=1), now)
    decided = decide(now, since=start, rule=DAILY, outages=(down,))
    assert facts(decided) == [("claimed", "", 1), ("missed", "coalesced", 2)]
    run, gap = decided.fires
    assert run.scheduled_for == datetime(2027, 3, 3, 2, tzinfo=UTC)
    assert (gap.first_scheduled_for, gap.scheduled_for) == (start, start + timedelta(days=1))
    assert gap.merged_into == run.fire_id


def test_policy_skip_runs_nothing_after_an_outage_and_records_one_gap() -> None:
    """R042: none of the missed ones runs, and the gap says how many they were."""
    start = datetime(2027, 3, 1, 2, tzinfo=UTC)
    now = start + timedelta(days=2, hours=7)
    decided = decide(
        now,
        since=start,
        rule=DAILY,
        outages=(Outage(start - MINUTE, now),),
        policies=Policies(missed=MissedPolicy.SKIP),
    )
    assert facts(decided) == [("missed", "policy_skip", 3)]


def test_policy_skip_still_runs_the_newest_within_the_grace() -> None:
    now = NOON + 5 * MINUTE + timedelta(seconds=30)
    decided = decide(
        now, outages=(Outage(NOON - MINUTE, now),), policies=Policies(missed=MissedPolicy.SKIP)
    )
    assert facts(decided) == [("claimed", "", 1), ("missed", "policy_skip", 5)]
    assert decided.fires[0].scheduled_for == NOON + 5 * MINUTE


def test_policy_earliest_runs_the_oldest() -> None:
    now = NOON + 5 * MINUTE
    decided = decide(
        now,
        outages=(Outage(NOON - MINUTE, now),),
        policies=Policies(missed=MissedPolicy.EARLIEST),
    )
    assert facts(decided) == [("claimed", "", 1), ("missed", "coalesced", 5)]
    assert decided.fires[0].scheduled_for == NOON


def test_policy_all_runs_each_oldest_first_up_to_the_limit() -> None:
    """R040, R043: every missed one, oldest first, and a burst is bounded."""
    now = NOON + 9 * MINUTE
    policies = Policies(missed=MissedPolicy.ALL, catch_up_limit=4, overlap=OverlapPolicy.ALLOW)
    decided = decide(now, outages=(Outage(NOON - MINUTE, now),), policies=policies)
    assert facts(decided) == [("claimed", "", 1)] * 4 + [("missed", "over_limit", 6)]
    assert [fire.scheduled_for for fire in decided.fires[:4]] == [
        NOON + n * MINUTE for n in range(4)
    ]


def test_policy_all_leaves_out_what_is_older_than_the_window() -> None:
    now = NOON + 9 * MINUTE
    policies = Policies(
        missed=MissedPolicy.ALL,
        catch_up_window=3 * MINUTE,
        overlap=OverlapPolicy.ALLOW,
    )
    decided = decide(now, outages=(Outage(NOON - MINUTE, now),), policies=policies)
    assert facts(decided) == [("missed", "outside_window", 6)] + [("claimed", "", 1)] * 4


def test_a_minutely_rule_that_was_off_for_a_year_is_one_run_and_one_row() -> None:
    now = NOON + timedelta(days=365)
    decided = decide(now, outages=(Outage(NOON - MINUTE, now),))
    # 365 days x 1,440 minutes, and both ends count.
    assert facts(decided) == [("claimed", "", 1), ("missed", "coalesced", 525_600)]


def test_an_outage_shorter_than_the_grace_misses_nothing() -> None:
    now = NOON + timedelta(seconds=50)
    assert facts(decide(now, outages=(Outage(NOON - MINUTE, now),))) == [("claimed", "", 1)]


def test_what_comes_after_the_outage_fires_one_by_one() -> None:
    end = NOON + 5 * MINUTE
    decided = decide(
        end + 2 * MINUTE,
        outages=(Outage(NOON - MINUTE, end),),
        policies=Policies(overlap=OverlapPolicy.ALLOW),
    )
    assert facts(decided) == [
        ("claimed", "", 1),
        ("missed", "coalesced", 5),
        ("claimed", "", 1),
        ("claimed", "", 1),
    ]


def test_an_unfinished_run_makes_the_next_occurrence_skipped_with_a_link() -> None:
    """R046: skipped while the previous is queued, running or retrying, with the reason."""
    blocker = Blocker(41, "sched:earlier")
    fire = decide(NOON, blocker=blocker).fires[0]
    assert (fire.state, fire.reason_code) == (State.SKIPPED, "overlap")
    assert fire.blocked_by == blocker
    assert "sched:earlier" in fire.reason


def test_overlap_can_be_allowed() -> None:
    """R047: an unfinished run does not keep the next one back."""
    decided = decide(
        NOON,
        blocker=Blocker(41, "sched:earlier"),
        policies=Policies(overlap=OverlapPolicy.ALLOW),
    )
    assert facts(decided) == [("claimed", "", 1)]


def test_of_two_occurrences_in_one_pass_the_first_blocks_the_second() -> None:
    decided = decide(NOON + MINUTE)
    assert facts(decided) == [("claimed", "", 1), ("skipped", "overlap", 1)]


def test_a_run_that_could_only_start_after_its_deadline_is_expired() -> None:
    """R045: later than the limit is recorded as expired, not sent."""
    decided = decide(
        NOON + timedelta(seconds=47), policies=Policies(start_deadline=timedelta(seconds=15))
    )
    assert facts(decided) == [("expired", "start_deadline", 1)]
    assert "47 s" in decided.fires[0].reason


def test_jitter_moves_the_due_instant_and_never_the_occurrence() -> None:
    """R029: deterministic per run, between zero and the limit."""
    policies = Policies(jitter=timedelta(seconds=30))
    first, again = (decide(NOON, policies=policies).fires[0] for _ in range(2))
    assert first == again
    assert first.scheduled_for == NOON
    assert NOON <= first.due_at < NOON + timedelta(seconds=30)
    assert first.state is State.PENDING


def test_the_end_is_inclusive_and_then_the_schedule_has_ended() -> None:
    decided = decide(
        NOON + 3 * MINUTE, ends_at=NOON + MINUTE, policies=Policies(overlap=OverlapPolicy.ALLOW)
    )
    assert len(decided.fires) == 2
    assert (decided.state, decided.next_due_at) == ("ended", None)


def test_it_stops_after_its_number_of_runs_and_skipped_ones_do_not_count() -> None:
    decided = decide(NOON + 5 * MINUTE, runs_left=2, policies=Policies(overlap=OverlapPolicy.ALLOW))
    assert (decided.runs, decided.state) == (2, "ended")
    blocked = decide(NOON, runs_left=1, blocker=Blocker(1, "x"))
    assert (blocked.runs, blocked.state) == (0, "")


def test_a_pass_decides_a_bounded_number_of_rows_and_says_where_it_stopped() -> None:
    decided = decide(NOON + 50 * MINUTE, limit=10, policies=Policies(overlap=OverlapPolicy.ALLOW))
    assert len(decided.fires) == 10
    assert decided.next_due_at == NOON + 10 * MINUTE


@pytest.mark.parametrize("missed", list(MissedPolicy))
@pytest.mark.parametrize("grace_s", [0, 60, 600])
@pytest.mark.parametrize("down", [(0, 7), (3, 30), (10, 11), (0, 90)])
def test_every_occurrence_is_accounted_for_exactly_once(
    missed: MissedPolicy, grace_s: int, down: tuple[int, int]
) -> None:
    """The sum of counts is the number of occurrences, whatever the policy and the outage."""
    now = NOON + 95 * MINUTE
    outage = Outage(NOON + down[0] * MINUTE - MINUTE / 2, NOON + down[1] * MINUTE)
    policies = Policies(missed=missed, misfire_grace=timedelta(seconds=grace_s), catch_up_limit=5)
    seen: Counter[str] = Counter()
    cursor: datetime | None = NOON
    total = 0
    while cursor is not None and cursor <= now:
        decided = decide(now, since=cursor, outages=(outage,), policies=policies, limit=20)
        seen.update(fire.fire_id for fire in decided.fires)
        total += sum(fire.count for fire in decided.fires)
        cursor = decided.next_due_at
    assert total == 96
    assert set(seen.values()) == {1}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"misfire_grace": timedelta(seconds=-1)}, "misfire_grace"),
        ({"jitter": timedelta(seconds=-1)}, "jitter"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
        ({"start_deadline": timedelta(seconds=-1)}, "start_deadline"),
    ],
)
def test_a_policy_out_of_range_is_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidPolicy, match=field) as caught:
        Policies(**values)  # type: ignore[arg-type]
    assert caught.value.field == field
