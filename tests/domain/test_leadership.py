"""A leader trusts its lease less than the server does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from smallage_django.domain.leadership import MARGIN, Trust

TTL = timedelta(seconds=5)


def test_trust_counts_from_before_the_request_and_ends_before_the_lease() -> None:
    """R065: the server's lease runs from when it answered, so it ends later than the trust in it."""
    trust = Trust.granted(7, 100.0, TTL)
    assert trust.epoch == 7
    assert trust.holds(100.0)
    assert trust.holds(103.99)
    assert not trust.holds(104.0)
    assert trust.until < 100.0 + TTL.total_seconds()


@pytest.mark.parametrize("ttl_s", [0.003, 1, 3600])
def test_the_margin_is_a_part_of_the_lease(ttl_s: float) -> None:
    trust = Trust.granted(1, 0.0, timedelta(seconds=ttl_s))
    assert trust.until == pytest.approx(ttl_s * (1 - MARGIN))


def test_an_answer_that_took_longer_than_the_lease_is_worth_nothing() -> None:
    trust = Trust.granted(1, 100.0, TTL)
    assert not trust.holds(106.0)
