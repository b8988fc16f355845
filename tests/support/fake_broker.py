"""A broker that only remembers, for tests of what an application does before Redis comes into it."""

from __future__ import annotations

from collections.abc import Sequence

from smallage_django.ports import Order, Receipt


class FakeBroker:
    """Remembers what it was asked; ``error`` makes it be away."""

    def __init__(self) -> None:
        self.published: list[Order] = []
        self.fences: list[int] = []
        self.calls = 0
        self.woken = 0
        self.error: Exception | None = None

    def promote(self, fence: int, orders: Sequence[Order]) -> list[Receipt]:
        self.calls += 1
        if self.error:
            raise self.error
        self.fences.append(fence)
        self.published += orders
        return [Receipt(order.run_id, order.envelope.id, "s", "1-1") for order in orders]

    def wake_scheduler(self) -> None:
        self.calls += 1
        if self.error:
            raise self.error
        self.woken += 1
