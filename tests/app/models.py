"""What the tasks of the tests leave behind."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """One execution of user code. Deliberately without a unique constraint: tests count the rows."""

    fire_id = models.CharField(max_length=64, db_index=True)
    key = models.CharField(max_length=200, db_index=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.key} by {self.fire_id}"
