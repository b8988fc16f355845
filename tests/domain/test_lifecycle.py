"""The life of a run as a table: what may follow what, and what each state and reason is good for."""

from __future__ import annotations

import pytest

from smallage_django.domain.lifecycle import (
    ACTIVE,
    CLAIMABLE,
    INITIAL,
    REASONS,
    TERMINAL,
    TRANSITIONS,
    Reason,
    State,
    may,
    sources,
)

S = State


def test_every_state_has_its_row_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize("state", sorted(TERMINAL - {S.FAILED}))
def test_nothing_leads_out_of_a_terminal_state(state: State) -> None:
    assert TRANSITIONS[state] == frozenset()


def test_only_a_person_leads_a_failed_run_out_and_only_back_to_pending() -> None:
    assert TRANSITIONS[S.FAILED] == {S.PENDING}


def test_a_run_is_either_over_or_still_going() -> None:
    assert set(State) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL


def test_every_run_can_come_to_an_end() -> None:
    """From each state some way leads to a terminal one."""
    reaching = set(TERMINAL)
    for _ in State:
        reaching |= {state for state in State if TRANSITIONS[state] & reaching}
    assert reaching == set(State)


def test_every_state_can_be_reached_from_where_rows_are_inserted() -> None:
    reached = set(INITIAL)
    for _ in State:
        reached |= {target for state in reached for target in TRANSITIONS[state]}
    assert reached == set(State)


def test_sources_are_the_table_read_backwards() -> None:
    for source in State:
        for target in State:
            assert (source in sources(target)) is may(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (S.CLAIMED, S.RUNNING),  # a worker that is faster than the mark
        (S.CLAIMED, S.CLAIMED),  # recovery
        (S.ENQUEUED, S.CLAIMED),  # reconcile
        (S.RUNNING, S.RUNNING),  # taken over
        (S.RUNNING, S.CLAIMED),  # its owner and its entry are gone
        (S.RETRYING, S.CLAIMED),
    ],
)
def test_the_ways_that_crashes_need_are_there(source: State, target: State) -> None:
    """PROTOCOL 2.4."""
    assert may(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (S.PENDING, S.RUNNING),  # only what was claimed has an entry
        (S.PENDING, S.ENQUEUED),
        (S.RUNNING, S.ENQUEUED),  # a late mark
        (S.RUNNING, S.MISSED),
        (S.ENQUEUED, S.PENDING),
        (S.SUCCEEDED, S.RUNNING),
    ],
)
def test_ways_that_would_forget_something_are_not(source: State, target: State) -> None:
    assert not may(source, target)


def test_what_is_claimed_has_not_been_handed_over() -> None:
    assert CLAIMABLE < ACTIVE
    assert all(may(state, S.CLAIMED) for state in CLAIMABLE)


def test_every_reason_belongs_to_one_state() -> None:
    given = [reason for reasons in REASONS.values() for reason in reasons]
    assert sorted(given) == sorted(Reason)


def test_states_that_need_a_reason_have_some() -> None:
    assert set(REASONS) == {S.MISSED, S.SKIPPED, S.EXPIRED, S.HELD, S.CANCELLED, S.FAILED}
