"""Who leads, since when, and when nobody did: terms, passes, outages."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Max, Min

from ..domain.planning import Outage as OutageValue
from ..errors import LeaseLost
from ..models import Heartbeat, HeartbeatRole, LeaderTerm, Outage, Schedule
from ..ports import Term
from .guard import guarded
from .heartbeats import record_beat

#: Terms and outages older than this are not needed for any decision.
KEEP_TERMS: Final = timedelta(days=90)
KEEP_HEARTBEATS: Final = timedelta(days=1)


class Terms:
    """The leader's own rows."""

    alias: str

    @guarded
    def open_term(self, holder: str, now: datetime, seen_fence: int) -> Term:
        """Start a term with an epoch above every other and above ``seen_fence``. See the port."""
        terms = LeaderTerm.objects.using(self.alias)
        while True:
            before = terms.order_by("-epoch").first()
            known = terms.aggregate(last=Max("last_pass_at"))["last"]
            if known is None:
                # Before the first pass nobody was at work since the first promise was made.
                known = Schedule.objects.using(self.alias).aggregate(first=Min("created_at"))[
                    "first"
                ]
            epoch = max(before.epoch if before else 0, seen_fence) + 1
            try:
                with transaction.atomic(using=self.alias):
                    terms.create(
                        epoch=epoch,
                        holder=holder,
                        host=socket.gethostname(),
                        pid=os.getpid(),
                        started_at=now,
                        last_pass_at=known or now,
                        incarnation=before.incarnation if before else "",
                    )
                    terms.filter(epoch__lt=epoch, ended_at__isnull=True).update(ended_at=now)
            except IntegrityError:
                # Another scheduler opened a term in between; ours has to be above it.
                continue
            return Term(epoch, known, before.incarnation if before else "")

    @guarded
    def record_pass(self, epoch: int, now: datetime, incarnation: str) -> None:
        """Remember that a pass ended. Raises ``LeaseLost`` where a later term has ended this one."""
        changed = (
            LeaderTerm.objects.using(self.alias)
            .filter(epoch=epoch, ended_at__isnull=True)
            .update(last_pass_at=now, incarnation=incarnation)
        )
        if not changed:
            raise LeaseLost(f"term {epoch} was ended by a later one")

    @guarded
    def close_term(self, epoch: int, now: datetime) -> None:
        """End a term politely."""
        LeaderTerm.objects.using(self.alias).filter(epoch=epoch, ended_at__isnull=True).update(
            ended_at=now
        )

    @guarded
    def record_outage(self, outage: OutageValue, epoch: int) -> None:
        """Remember an interval in which no pass ran."""
        Outage.objects.using(self.alias).create(
            started_at=outage.start, ended_at=outage.end, epoch=epoch
        )

    @guarded
    def beat(self, facts: Mapping[str, Any], now: datetime) -> None:
        """Record the heartbeat of a scheduler process."""
        record_beat(self.alias, HeartbeatRole.SCHEDULER, facts, now)

    @guarded
    def forget_old(self, now: datetime) -> None:
        """Drop terms, outages and heartbeats that no decision needs any more; the last term stays for its epoch."""
        last = LeaderTerm.objects.using(self.alias).aggregate(last=Max("epoch"))["last"] or 0
        LeaderTerm.objects.using(self.alias).filter(
            epoch__lt=last, last_pass_at__lt=now - KEEP_TERMS
        ).delete()
        Outage.objects.using(self.alias).filter(ended_at__lt=now - KEEP_TERMS).delete()
        Heartbeat.objects.using(self.alias).filter(beat_at__lt=now - KEEP_HEARTBEATS).delete()
