"""Takes entries from the streams and has them run, until told to stop.

``Worker.step`` receives and begins one read. Around it are the loops: the worker's own, the recorder's, and two that
keep the worker visibly alive, each on a thread of its own so that neither user code nor an absent dependency of
another loop can make it look dead.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from .domain import envelope, identity
from .domain.envelope import Envelope
from .domain.lifecycle import Reason
from .errors import MalformedEntry, Unavailable
from .patience import Patience
from .ports import (
    Beginning,
    Begun,
    Clock,
    Delivery,
    Outcome,
    Runner,
    WorkerBroker,
    WorkerStore,
)
from .recorder import LINGER_S, MOST_UNWRITTEN, Hand, Recorder

logger = logging.getLogger(__name__)

#: An idle worker looks at least so often, which also bounds how long a stop can go unseen.
IDLE_S: Final = 0.25
#: How long a worker with few free slots waits for more before it reads.
GATHER_S: Final = 0.002
#: How often a process shows in SQL that it is alive.
BEAT_S: Final = 2.0
#: How long a burst puts up with an absent dependency.
BURST_PATIENCE_S: Final = 10.0
#: How long the end waits for a helper thread that is inside a call to a dependency.
PATIENCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """How one worker process works. ``name`` is its identity, unique to one start unless it was given."""

    name: str
    queues: Sequence[str]
    alive_ttl: timedelta = timedelta(seconds=6)
    reclaim_every: timedelta = timedelta(seconds=2)
    drain_timeout: timedelta = timedelta(seconds=20)
    #: Entries delivered more often than this without a begin are buried.
    max_deliveries: int = 5
    #: Return when nothing is ready instead of waiting for more.
    burst: bool = False
    #: What else the heartbeat tells: host, pid, version, threads.
    facts: Mapping[str, Any] = field(default_factory=dict)


class Worker:
    """One worker process: the loop, its helpers, its end."""

    def __init__(
        self,
        store: WorkerStore,
        broker: WorkerBroker,
        runner: Runner,
        clock: Clock,
        options: Options,
    ) -> None:
        self.options = options
        self.hand = Hand()
        self.recorder = Recorder(store, broker, runner, clock, self.hand)
        self._store = store
        self._broker = broker
        self._runner = runner
        self._clock = clock
        self._slots = runner.free()
        self._slot_freed = threading.Event()
        self._over = threading.Event()
        self._returned: list[Begun] = []
        self._reclaim_at = 0.0
        self._helpers: list[threading.Thread] = []
        #: Whether user code was still running when ``run`` returned.
        self.left_running = False
        # Counted, not an Event: a signal handler may interrupt the very code that holds an Event's lock.
        self._stops = 0

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until told to stop (or, in a burst, until nothing is ready), then drain.

        A burst raises ``Unavailable`` where the database or Redis stays away; a worker that stays waits for them.
        """
        logger.info(
            "worker %s starts: version %s, queues %s, threads %d",
            self.options.name,
            self.options.facts.get("version", "unknown"),
            ", ".join(self.options.queues),
            self._slots,
        )
        # A burst is started by something that waits for its end: a timer, a test, a person.
        limit = BURST_PATIENCE_S if self.options.burst else math.inf
        patience = Patience("worker", self._pause, give_up_after_s=limit)
        while not self.stopping and patience.attempt(self.beat) is None:
            continue
        self._start_helpers()
        try:
            while not self.stopping:
                moved = patience.attempt(self.step)
                if moved is False and self._exhausted():
                    break
        finally:
            self.drain()

    def step(self) -> bool:
        """Receive and begin one read, or wait a moment for work or for room; False where nothing was ready."""
        free = self.room()
        if free <= 0:
            self._slot_freed.wait(IDLE_S)
            self._slot_freed.clear()
            return True
        if free < self._slots // 2:
            # Short tasks free the other slots in a moment, and a fuller read costs no more than a small one.
            time.sleep(GATHER_S)
            free = self.room()
        fresh = self.receive(free)
        if fresh:
            self.handle(fresh)
        elif not self.options.burst:
            self._broker.wait(self.options.queues, IDLE_S)
        elif self.hand:
            self._slot_freed.wait(LINGER_S)
            self._slot_freed.clear()
        return bool(fresh)

    def work_off(self) -> int:
        """Work off what is ready in this very thread, for an inline runner and a burst; how many attempts ended."""
        ended = 0
        while self.step():
            while written := self.recorder.write():
                ended += written
        return ended

    def room(self) -> int:
        """How many entries may be taken now."""
        return 0 if self.recorder.backlog() >= MOST_UNWRITTEN else self._runner.free()

    def receive(self, free: int) -> list[Delivery]:
        """At most ``free`` entries that this process does not hold yet: abandoned ones when it is time, or new ones."""
        at = time.monotonic()
        if at >= self._reclaim_at:
            found = self._broker.reclaim(self.options.queues, self.options.name, free)
            fresh = self.hand.take(found)
            if len(found) < free:
                self._reclaim_at = at + self.options.reclaim_every.total_seconds()
            if fresh:
                return fresh
        return self.hand.take(self._broker.take(self.options.queues, self.options.name, free))

    def handle(self, deliveries: Sequence[Delivery]) -> Beginning:
        """Begin what may run and drop what is over."""
        readable = self._readable(deliveries)
        beginning = self._begin(readable) if readable else Beginning()
        for begun in beginning.begun:
            logger.debug("%s: started, attempt %d (%s)", begun.fire_id, begun.attempt, begun.task)
            self._runner.submit(begun, self._ended)
        for delivery, reason, detail in beginning.poison:
            self._bury(delivery, reason, detail)
        self.hand.drop(beginning.elsewhere)
        if beginning.over:
            self.hand.drop(beginning.over)
            self._or_later(lambda: self._broker.ack(beginning.over))
        return beginning

    # -- its end ----------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._stops > 0

    @property
    def aborting(self) -> bool:
        return self._stops > 1

    def stop(self) -> None:
        """Ask for the end, from a signal handler or another thread: once to drain, twice to stop at once."""
        self._stops += 1
        self._broker.interrupt()

    def drain(self) -> None:
        """End what runs within the budget, write every outcome, and hand the rest back for others to take at once."""
        self._stops = max(self._stops, 1)
        budget = self.options.drain_timeout.total_seconds()
        deadline = time.monotonic() + budget
        while not self.aborting and time.monotonic() < deadline:
            if self._runner.wait(0.05) and not self.recorder.backlog():
                break
        left = self._runner.close()
        self.left_running = bool(left.started)
        waiting = [*left.waiting, *self._returned]
        for begun in left.started:
            logger.warning("%s: still running at the end, left for others", begun.fire_id)
        self._stop_helpers()
        self._leave("write outcomes", self._write_all)
        if not self.left_running:
            self._runner.wait(PATIENCE_S)
        self._leave("give runs back", lambda: self._store.give_back(waiting, self._clock.now()))
        # Goodbye first: a peer that finds an entry while its owner still counts as alive leaves it for a long while.
        self._leave("say goodbye", lambda: self.beat(stopped=True))
        self._leave("let entries go", lambda: self._broker.let_go(self.hand.all()))
        logger.info("worker %s ended: %s", self.options.name, dict(self.recorder.counts) or "idle")

    def _write_all(self) -> None:
        while self.recorder.write():
            continue

    @staticmethod
    def _leave(what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Unavailable as error:
            logger.warning("could not %s at the end: %s", what, error)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def beat(self, *, stopped: bool = False) -> bool:
        """Show in SQL that this process is alive, or that it has ended."""
        now = self._clock.now()
        facts = {
            **self.options.facts,
            "name": self.options.name,
            "queues": list(self.options.queues),
            "busy": len(self.hand),
            "counts": dict(self.recorder.counts),
            "stopped_at": now if stopped else None,
        }
        self._store.beat(facts, now)
        return True

    def refresh(self) -> bool:
        """Keep the liveness of every entry in hand."""
        held = self.hand.all()
        if held:
            self._broker.refresh(held)
        return True

    def _start_helpers(self) -> None:
        third = self.options.alive_ttl.total_seconds() / 3
        beat_s = min(BEAT_S, third)
        self._helpers = [
            threading.Thread(target=self._record, name="smallage-recorder", daemon=True),
            threading.Thread(
                target=self._repeat,
                args=("liveness", self.refresh, third),
                name="smallage-liveness",
                daemon=True,
            ),
            threading.Thread(
                target=self._repeat,
                args=("heartbeat", self.beat, beat_s),
                name="smallage-heartbeat",
                daemon=True,
            ),
        ]
        for helper in self._helpers:
            helper.start()

    def _stop_helpers(self) -> None:
        """End the other threads: from here on only the caller writes, and no liveness key comes back."""
        self._over.set()
        for helper in self._helpers:
            helper.join(PATIENCE_S)
            if helper.is_alive():
                logger.warning("%s does not end", helper.name)

    def _record(self) -> None:
        patience = Patience("recording outcomes", self._over.wait)
        while not self._over.is_set():
            patience.attempt(lambda: self.recorder.wait(IDLE_S) and self.recorder.write())
        self._store.close()

    def _repeat(self, what: str, call: Callable[[], bool], seconds: float) -> None:
        patience = Patience(what, self._over.wait)
        while not self._over.is_set():
            if patience.attempt(call):
                self._over.wait(seconds)
        self._store.close()

    def _readable(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Envelope]]:
        readable = []
        for delivery in deliveries:
            try:
                readable.append((delivery, envelope.decode(delivery.fields)))
            except MalformedEntry as error:
                detail = f"{error.field}: {error}"
                self._fail_row(delivery, detail)
                self._bury(delivery, "malformed", detail)
        return readable

    def _fail_row(self, delivery: Delivery, detail: str) -> None:
        """End the run of a malformed entry that names one of ours: handed over again it would be the same again."""
        fire_id = delivery.fields.get(b"id", b"").decode("utf-8", "replace")
        if not identity.is_fire_id(fire_id):
            return
        told, code = f"its entry cannot be read: {detail}", Reason.BAD_ARGUMENTS.value
        try:
            self._store.fail_unstarted(fire_id, self._clock.now(), code, told)
        except Unavailable as error:
            # The scheduler misses the buried entry and hands the run over again, and then the row is ended.
            logger.info("%s could not be ended and will be found again: %s", fire_id, error)

    def _bury(self, delivery: Delivery, reason: str, detail: str) -> None:
        logger.error("entry %s of %s buried: %s", delivery.entry_id, delivery.stream, detail)
        self.hand.drop([delivery])
        self._or_later(lambda: self._broker.bury(delivery, reason, detail))

    @staticmethod
    def _or_later(call: Callable[[], object]) -> None:
        """Settle an entry that is out of hand. Where Redis is away it stays pending, and is reclaimed and settled."""
        try:
            call()
        except Unavailable as error:
            logger.info("an entry could not be settled and will be found again: %s", error)

    def _begin(self, readable: Sequence[tuple[Delivery, Envelope]]) -> Beginning:
        """Begin a read. While the database is away the entries stay in hand, so that waiting costs no delivery."""
        token = uuid.uuid4().hex
        patience = Patience("beginning runs", self._pause)
        while not self.stopping:
            beginning = patience.attempt(lambda: self._begin_once(readable, token))
            if beginning is not None:
                return beginning
        return Beginning()

    def _begin_once(self, readable: Sequence[tuple[Delivery, Envelope]], token: str) -> Beginning:
        name, now = self.options.name, self._clock.now()
        try:
            return self._store.begin(readable, name, token, now)
        except Unavailable:
            raise
        except (
            Exception
        ):  # the edge of a loop: one entry that cannot begin must not stop the others
            logger.exception("could not begin %d entries together", len(readable))
        if len(readable) > 1:
            parts = [self._begin_once([pair], token) for pair in readable]
            return _together(parts)
        delivery = readable[0][0]
        if delivery.deliveries > self.options.max_deliveries:
            told = f"delivered {delivery.deliveries} times, and beginning it fails"
            return Beginning(poison=[(delivery, Reason.TOO_MANY_DELIVERIES.value, told)])
        return Beginning(elsewhere=[delivery])

    def _ended(self, begun: Begun, outcome: Outcome) -> None:
        if outcome.interrupted:
            self._returned.append(begun)
            self._stops = max(self._stops, 1)
        else:
            self.recorder.put(begun, outcome)
        self._slot_freed.set()

    def _exhausted(self) -> bool:
        return self.options.burst and not self.hand and not self.recorder.backlog()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < until:
            time.sleep(min(0.1, seconds))


def _together(parts: Sequence[Beginning]) -> Beginning:
    return Beginning(
        begun=[item for part in parts for item in part.begun],
        over=[item for part in parts for item in part.over],
        elsewhere=[item for part in parts for item in part.elsewhere],
        poison=[item for part in parts for item in part.poison],
    )
