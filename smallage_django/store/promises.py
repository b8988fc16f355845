"""What a program or a person may still change about work that has not begun: cancel it, or move its instant.

Conditional updates, whose row count says whether it was in time.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Final

from django.db import models, transaction

from ..domain.lifecycle import CLAIMABLE, Reason, State, sources
from ..fields import DatabaseClock
from ..models import DelayedRun, DelayedState, Run, RunEvent
from .guard import guarded

#: A running run can only be asked to stop, which is another act.
CANCELLABLE: Final = sorted(state.value for state in sources(State.CANCELLED) - {State.RUNNING})


class Promises:
    """Changes of one database alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @guarded
    def cancel_delayed(self, uid: uuid.UUID, reason: str) -> bool:
        """Cancel a delayed run that still waits, and free its key."""
        changed: int = self._delayed(uid).update(
            state=DelayedState.CANCELLED, key=None, reason=reason
        )
        return changed == 1

    @guarded
    def cancel_run(self, fire_id: str, actor: str, reason: str) -> bool:
        """Cancel a run that no attempt has begun or that waits for its next one, and free its delayed run's key."""
        with transaction.atomic(using=self.alias):
            rows = Run.objects.using(self.alias).filter(fire_id=fire_id)
            changed = rows.filter(state__in=CANCELLABLE).update(
                state=State.CANCELLED.value,
                reason_code=Reason.OPERATOR.value,
                reason=reason,
                finished_at=DatabaseClock(),
            )
            if changed != 1:
                return False
            run_id = rows.values_list("id", flat=True).get()
            DelayedRun.objects.using(self.alias).filter(run_id=run_id).update(key=None)
            RunEvent.objects.using(self.alias).create(
                run_id=run_id, at=DatabaseClock(), kind="cancelled", actor=actor, detail=reason
            )
        return True

    @guarded
    def move_delayed(self, uid: uuid.UUID, when: datetime) -> bool:
        """Give a delayed run that still waits another instant, before its deadline."""
        in_time = models.Q(deadline__isnull=True) | models.Q(deadline__gte=when)
        changed: int = self._delayed(uid).filter(in_time).update(run_at=when)
        return changed == 1

    @guarded
    def move_run(self, fire_id: str, when: datetime) -> bool:
        """Give a run that is not handed to a stream yet another due instant."""
        rows = Run.objects.using(self.alias).filter(
            fire_id=fire_id, state__in=[state.value for state in CLAIMABLE]
        )
        return rows.update(due_at=when) == 1

    def _delayed(self, uid: uuid.UUID) -> Any:
        return DelayedRun.objects.using(self.alias).filter(uid=uid, state=DelayedState.WAITING)
