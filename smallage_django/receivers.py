"""What follows at once from a change of a schedule's row. The scheduler would see every change by itself."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save, pre_delete
from django.dispatch import receiver

from .models import Schedule
from .publishing import wake_after_commit
from .store.standing import cancel_runs_of


@receiver(post_save, sender=Schedule, dispatch_uid="smallage_django.schedule_saved")
def _wake(*, using: str, **_: Any) -> None:
    """A new or changed rule may be due before the scheduler would look."""
    wake_after_commit(using)


@receiver(pre_delete, sender=Schedule, dispatch_uid="smallage_django.schedule_deleted")
def _cancel(*, instance: Schedule, using: str, **_: Any) -> None:
    """Runs that wait are cancelled with their schedule; deleting by SQL is noticed within a minute."""
    cancel_runs_of(using, instance.pk)
