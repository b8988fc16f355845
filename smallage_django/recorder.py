"""Records how attempts ended: many outcomes in one statement, then their acknowledgement.

A crash between the two costs a delivery that ``begin`` refuses; the other way round it would cost the outcome.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Final

from .domain.lifecycle import State
from .domain.verdict import Ended, decide, stored_backoff
from .errors import Unavailable
from .ports import Begun, Clock, Delivery, Finish, Outcome, Runner, WorkerBroker, WorkerStore

logger = logging.getLogger(__name__)

#: An outcome is written together with at most so many others, and waits for company at most so long.
BATCH: Final = 100
LINGER_S: Final = 0.005
#: With so many outcomes unwritten no new work is taken: the database is away, and memory is not endless.
MOST_UNWRITTEN: Final = 1000

Key = tuple[str, str]


class Hand:
    """The entries this process holds: received, and neither acknowledged nor let go."""

    def __init__(self) -> None:
        self._entries: dict[Key, Delivery] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Hold ``deliveries``, and return those that were not held before."""
        fresh = [item for item in deliveries if (item.stream, item.entry_id) not in self._entries]
        self._entries.update({(item.stream, item.entry_id): item for item in fresh})
        return fresh

    def drop(self, deliveries: Sequence[Delivery]) -> None:
        for item in deliveries:
            self._entries.pop((item.stream, item.entry_id), None)

    def all(self) -> list[Delivery]:
        return list(self._entries.values())


class Recorder:
    """Writes outcomes, many at once, and acknowledges what was accepted. One thread calls ``write``."""

    def __init__(
        self, store: WorkerStore, broker: WorkerBroker, runner: Runner, clock: Clock, hand: Hand
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._store = store
        self._broker = broker
        self._runner = runner
        self._clock = clock
        self._hand = hand
        self._arrived: SimpleQueue[tuple[Begun, Outcome, float]] = SimpleQueue()
        self._unwritten: deque[Finish] = deque()
        self._unacked: deque[Delivery] = deque(maxlen=10 * MOST_UNWRITTEN)

    def put(self, begun: Begun, outcome: Outcome) -> None:
        """Hand over an outcome, from any thread. It counts from this moment, whenever it is written."""
        self._arrived.put((begun, outcome, time.monotonic()))

    def backlog(self) -> int:
        """How many outcomes are not written yet."""
        return self._arrived.qsize() + len(self._unwritten)

    def wait(self, seconds: float) -> bool:
        """Wait for an outcome to write, and then a moment for its company; whether there is one."""
        if not self._unwritten and not self._unacked:
            try:
                first = self._arrived.get(timeout=seconds)
            except Empty:
                return False
            if self._arrived.qsize() < BATCH:
                time.sleep(LINGER_S)
            self._unwritten.append(self._decided(*first, self._clock.now(), time.monotonic()))
        return True

    def write(self) -> int:
        """Write one batch; how many outcomes it took. Raises ``Unavailable`` and then keeps them all."""
        self._collect()
        batch = [self._unwritten[i] for i in range(min(BATCH, len(self._unwritten)))]
        if batch:
            accepted = self._finish(batch)
            for _ in batch:
                self._unwritten.popleft()
            self._follow_up(batch, accepted)
        if self._unacked:
            self._acknowledge()
        return len(batch)

    def _collect(self) -> None:
        if self._arrived.empty():
            return
        now, at = self._clock.now(), time.monotonic()
        while len(self._unwritten) < BATCH:
            try:
                arrived = self._arrived.get_nowait()
            except Empty:
                return
            self._unwritten.append(self._decided(*arrived, now, at))

    @staticmethod
    def _decided(
        begun: Begun, outcome: Outcome, ended_at: float, now: datetime, at: float
    ) -> Finish:
        finished_at = now - timedelta(seconds=max(0.0, at - ended_at))
        error = f"{outcome.error_class.rpartition('.')[2]}: {outcome.error}"
        ended = Ended(
            ending=outcome.ending,
            attempt=begun.attempt,
            max_attempts=begun.max_attempts,
            backoff=stored_backoff(begun.backoff),
            retry_in=outcome.retry_in,
            give_up=outcome.give_up,
            error=error,
        )
        verdict = decide(ended, finished_at, random.random())
        return Finish(
            begun,
            outcome,
            verdict.state,
            finished_at,
            verdict.due_at,
            verdict.reason_code,
            verdict.reason or outcome.note,
        )

    def _finish(self, batch: Sequence[Finish]) -> set[int]:
        try:
            return self._store.finish(batch)
        except Unavailable:
            raise
        except (
            Exception
        ):  # the edge of a loop: one outcome that cannot be stored must not hold up the rest
            logger.exception("could not write %d outcomes together; writing one by one", len(batch))
        accepted: set[int] = set()
        for finish in batch:
            try:
                accepted |= self._store.finish([finish])
            except Unavailable:
                raise
            except Exception:
                logger.exception("%s: its outcome cannot be written", finish.begun.fire_id)
        return accepted

    def _follow_up(self, batch: Sequence[Finish], accepted: set[int]) -> None:
        kept = [finish for finish in batch if finish.begun.run_id in accepted]
        for finish in batch:
            if finish.begun.run_id not in accepted:
                self.counts["ownership lost"] += 1
                logger.warning(
                    "%s: ownership lost, outcome of attempt %d not recorded",
                    finish.begun.fire_id,
                    finish.begun.attempt,
                )
        # Dropped from the hand first: an entry whose acknowledgement fails must look abandoned, to be found again.
        self._hand.drop([finish.begun.delivery for finish in batch])
        self._unacked.extend(finish.begun.delivery for finish in kept)
        for finish in kept:
            self.counts[finish.state.value] += 1
            _log_finish(finish)
        self._runner.announce(kept)

    def _acknowledge(self) -> None:
        deliveries = list(self._unacked)
        self._broker.ack(deliveries)
        for _ in deliveries:
            self._unacked.popleft()


def _log_finish(finish: Finish) -> None:
    begun = finish.begun
    if finish.state is State.SUCCEEDED:
        took = (finish.finished_at - begun.started_at).total_seconds()
        logger.debug("%s: succeeded in %.3f s", begun.fire_id, took)
    elif finish.state is State.RETRYING and finish.due_at is not None:
        logger.warning(
            "%s: %s; again at %s", begun.fire_id, finish.reason, finish.due_at.isoformat()
        )
    else:
        logger.error("%s: %s, %s", begun.fire_id, finish.state.value, finish.reason)
