"""The sign of life of a process: one row, refreshed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..models import Heartbeat, HeartbeatRole


def record_beat(alias: str, role: HeartbeatRole, facts: Mapping[str, Any], now: datetime) -> None:
    """Write the facts of the process called ``facts["name"]``, seen at ``now`` (aware UTC)."""
    values = {**facts, "role": role.value, "beat_at": now}
    name = values.pop("name")
    beats = Heartbeat.objects.using(alias)
    if not beats.filter(name=name).update(**values):
        first = {**values, "started_at": now}
        beats.update_or_create(name=name, defaults=values, create_defaults=first)
