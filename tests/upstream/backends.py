"""Our backend with what the framework's tests ask of its dummy one: a list of results, and a way to empty it."""

from __future__ import annotations

from typing import Any

from smallage_django.backend import SmallageBackend
from smallage_django.domain import identity
from smallage_django.models import DelayedRun, Run
from smallage_django.testing import drain


class DrainedBackend(SmallageBackend):
    """``SmallageBackend`` with a worker that has always just worked off what there is; one attempt, as in Django's."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        Run.objects.filter(fire_id=result.id).update(max_attempts=1)
        drain()
        result.refresh()
        return result


class ListedBackend(SmallageBackend):
    """``SmallageBackend`` whose rows can be listed, oldest first, and deleted."""

    @property
    def results(self) -> list[Any]:
        ids = list(Run.objects.order_by("id").values_list("fire_id", flat=True))
        uids = DelayedRun.objects.order_by("id").values_list("uid", flat=True)
        return [self.get_result(name) for name in (*ids, *map(identity.once, uids))]

    def clear(self) -> None:
        Run.objects.all().delete()
        DelayedRun.objects.all().delete()
