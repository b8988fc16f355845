"""The rows that hold every promise: fields, constraints and indexes, nothing that acts.

State is changed only by the conditional updates in ``store``. Relations from the record of a run carry no database
constraint, so that deleting a schedule is one statement and pruning runs never walks other tables; the run keeps the
schedule's uid and name.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from .domain.lifecycle import ACTIVE, Ending, Kind, State
from .domain.policies import MissedPolicy, OverlapPolicy, WhenFull
from .fields import DatabaseClock, FireIdField, InstantField
from .querysets import DelayedRunQuerySet, RunQuerySet, ScheduleQuerySet, stale_condition

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

#: Widest indexed text: MySQL's index limit with four-byte characters.
NAME_LENGTH = 191


class ScheduleKind(models.TextChoices):
    CRON = "cron", _("cron expression")
    INTERVAL = "interval", _("interval")
    TRIGGER = "trigger", _("own trigger")


class Unit(models.TextChoices):
    SECONDS = "seconds", _("seconds")
    MINUTES = "minutes", _("minutes")
    HOURS = "hours", _("hours")
    DAYS = "days", _("days")
    WEEKS = "weeks", _("weeks")
    MONTHS = "months", _("months")
    YEARS = "years", _("years")


class ScheduleState(models.TextChoices):
    ACTIVE = "active", _("active")
    PAUSED = "paused", _("paused")
    ENDED = "ended", _("ended")
    EXHAUSTED = "exhausted", _("never again")
    BROKEN = "broken", _("broken")


class GapPolicy(models.TextChoices):
    DEFAULT = "default", _("as the rule's kind asks")
    NEXT_VALID = "next_valid", _("move to the end of the gap")
    SKIP = "skip", _("skip")


class FoldPolicy(models.TextChoices):
    DEFAULT = "default", _("as the rule's kind asks")
    FIRST = "first", _("only the first showing")
    BOTH = "both", _("both showings")


class Source(models.TextChoices):
    ADMIN = "admin", _("admin")
    CODE = "code", _("code")


class DelayedState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    FIRED = "fired", _("fired")
    CANCELLED = "cancelled", _("cancelled")
    EXPIRED = "expired", _("expired")


class OperationState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    WORKING = "working", _("working")
    DONE = "done", _("done")
    CANCELLED = "cancelled", _("cancelled")
    FAILED = "failed", _("failed")


class HeartbeatRole(models.TextChoices):
    SCHEDULER = "scheduler", _("scheduler")
    WORKER = "worker", _("worker")


#: The stored spelling of :class:`smallage_django.domain.lifecycle.State`, with words to show.
STATE_LABELS: dict[State, Any] = {
    State.PENDING: _("pending"),
    State.HELD: _("held"),
    State.CLAIMED: _("claimed"),
    State.ENQUEUED: _("enqueued"),
    State.RUNNING: _("running"),
    State.RETRYING: _("retrying"),
    State.SUCCEEDED: _("succeeded"),
    State.FAILED: _("failed"),
    State.MISSED: _("missed"),
    State.SKIPPED: _("skipped"),
    State.EXPIRED: _("expired"),
    State.CANCELLED: _("cancelled"),
}
KIND_LABELS: dict[Kind, Any] = {
    Kind.SCHEDULE: _("schedule"),
    Kind.DELAYED: _("delayed"),
    Kind.ENQUEUE: _("enqueue"),
    Kind.MANUAL: _("manual"),
    Kind.BACKFILL: _("backfill"),
    Kind.REPLAY: _("replay"),
}
MISSED_LABELS: dict[MissedPolicy, Any] = {
    MissedPolicy.LATEST: _("run once for all missed: the latest"),
    MissedPolicy.EARLIEST: _("run once for all missed: the earliest"),
    MissedPolicy.ALL: _("run each missed occurrence, oldest first"),
    MissedPolicy.SKIP: _("do not run, record as missed"),
}
OVERLAP_LABELS: dict[OverlapPolicy, Any] = {
    OverlapPolicy.SKIP: _("skip the new one"),
    OverlapPolicy.ALLOW: _("allow both"),
    OverlapPolicy.BUFFER_ONE: _("wait, then run; keep one waiting"),
    OverlapPolicy.BUFFER_ALL: _("wait, then run; keep all waiting"),
    OverlapPolicy.CANCEL_OTHER: _("ask the old one to stop"),
    OverlapPolicy.TERMINATE_OTHER: _("stop the old one"),
}
WHEN_FULL_LABELS: dict[WhenFull, Any] = {
    WhenFull.WAIT: _("wait for room in the queue"),
    WhenFull.SKIP: _("skip the occurrence"),
}


def _choices(labels: dict[Any, Any]) -> list[tuple[str, Any]]:
    return [(key.value, label) for key, label in labels.items()]


class Calendar(models.Model):
    """Instants at which schedules that exclude it do not run: dates, weekly bands, cron bands."""

    name = models.CharField(_("name"), max_length=NAME_LENGTH, unique=True)
    timezone = models.CharField(_("time zone"), max_length=64, default="UTC")
    dates = models.JSONField(_("dates"), default=list, blank=True)
    weekly = models.JSONField(_("weekly bands"), default=list, blank=True)
    cron = models.JSONField(_("cron bands"), default=list, blank=True)
    description = models.TextField(_("description"), blank=True)

    class Meta:
        verbose_name = _("calendar")
        verbose_name_plural = _("calendars")

    def __str__(self) -> str:
        return self.name


class Schedule(models.Model):
    """A durable standing rule: recurrence, zone, policies, task and arguments. It never runs; its runs do.

    Everything from ``next_due_at`` on is written by the scheduler alone. The ``planned_…`` columns are its copies of
    the inputs it planned from: a row whose copies differ from its inputs is *stale* and is planned anew in the next
    pass, whichever way it was changed.
    """

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(_("name"), max_length=NAME_LENGTH, unique=True)
    kind = models.CharField(
        _("kind"), max_length=10, choices=ScheduleKind.choices, default=ScheduleKind.CRON
    )
    expression = models.CharField(_("cron expression"), max_length=255, blank=True)
    every = models.PositiveIntegerField(_("every"), null=True, blank=True)
    unit = models.CharField(_("unit"), max_length=10, choices=Unit.choices, blank=True)
    anchor = InstantField(_("anchor"), null=True, blank=True)
    trigger = models.CharField(_("trigger"), max_length=NAME_LENGTH, blank=True)
    timezone = models.CharField(_("time zone"), max_length=64, default="UTC")

    task = models.CharField(_("task"), max_length=255)
    backend = models.CharField(_("backend"), max_length=64, default="default")
    args = models.JSONField(_("positional arguments"), default=list, blank=True)
    kwargs = models.JSONField(_("arguments"), default=dict, blank=True)
    queue = models.CharField(_("queue"), max_length=64, blank=True)
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)

    enabled = models.BooleanField(_("enabled"), default=True)
    paused_until = InstantField(_("paused until"), null=True, blank=True)
    pause_reason = models.CharField(_("pause reason"), max_length=255, blank=True)
    starts_at = InstantField(_("starts at"), null=True, blank=True)
    ends_at = InstantField(_("ends at"), null=True, blank=True)
    max_runs = models.PositiveIntegerField(_("at most so many runs"), null=True, blank=True)
    jitter = models.DurationField(_("jitter"), default=timedelta(0), blank=True)
    exclusions = models.ManyToManyField(Calendar, verbose_name=_("exclusions"), blank=True)

    missed_policy = models.CharField(
        _("missed policy"),
        max_length=10,
        choices=_choices(MISSED_LABELS),
        default=MissedPolicy.LATEST.value,
    )
    misfire_grace = models.DurationField(_("misfire grace"), default=timedelta(seconds=60))
    catch_up_window = models.DurationField(_("catch-up window"), null=True, blank=True)
    catch_up_limit = models.PositiveIntegerField(_("catch-up limit"), default=100)
    late_after = models.DurationField(_("late after"), null=True, blank=True)
    start_deadline = models.DurationField(_("start deadline"), null=True, blank=True)
    overlap_policy = models.CharField(
        _("overlap policy"),
        max_length=20,
        choices=_choices(OVERLAP_LABELS),
        default=OverlapPolicy.SKIP.value,
    )
    when_full = models.CharField(
        _("when the queue is full"),
        max_length=10,
        choices=_choices(WHEN_FULL_LABELS),
        default=WhenFull.WAIT.value,
    )
    gap_policy = models.CharField(
        _("gap policy"), max_length=10, choices=GapPolicy.choices, default=GapPolicy.DEFAULT
    )
    fold_policy = models.CharField(
        _("fold policy"), max_length=10, choices=FoldPolicy.choices, default=FoldPolicy.DEFAULT
    )
    max_attempts = models.PositiveSmallIntegerField(_("attempts"), null=True, blank=True)
    backoff = models.CharField(_("backoff"), max_length=64, blank=True)
    timeout = models.DurationField(_("timeout"), null=True, blank=True)
    pause_after_failures = models.PositiveIntegerField(
        _("pause after failures in a row"), null=True, blank=True
    )
    retention = models.DurationField(_("retention"), null=True, blank=True)

    tags = models.JSONField(_("tags"), default=list, blank=True)
    owner = models.CharField(_("owner"), max_length=NAME_LENGTH, blank=True)
    description = models.TextField(_("description"), blank=True)
    source = models.CharField(
        max_length=10, choices=Source.choices, default=Source.ADMIN, editable=False
    )
    digest = models.CharField(max_length=64, blank=True, editable=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = InstantField(db_default=DatabaseClock(), editable=False)

    next_due_at = InstantField(_("next due"), null=True, editable=False)
    accounted_until = InstantField(null=True, editable=False)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=ScheduleState.choices,
        default=ScheduleState.ACTIVE,
        editable=False,
    )
    state_reason = models.TextField(_("reason"), blank=True, editable=False)
    runs_fired = models.PositiveIntegerField(default=0, editable=False)
    zone_data = models.CharField(max_length=16, blank=True, editable=False)
    planned_kind = models.CharField(max_length=10, null=True, editable=False)
    planned_expression = models.CharField(max_length=255, null=True, editable=False)
    planned_every = models.PositiveIntegerField(null=True, editable=False)
    planned_unit = models.CharField(max_length=10, null=True, editable=False)
    planned_anchor = InstantField(null=True, editable=False)
    planned_trigger = models.CharField(max_length=NAME_LENGTH, null=True, editable=False)
    planned_timezone = models.CharField(max_length=64, null=True, editable=False)
    planned_enabled = models.BooleanField(null=True, editable=False)
    planned_paused_until = InstantField(null=True, editable=False)
    planned_starts_at = InstantField(null=True, editable=False)
    planned_ends_at = InstantField(null=True, editable=False)
    planned_max_runs = models.PositiveIntegerField(null=True, editable=False)
    planned_gap_policy = models.CharField(max_length=10, null=True, editable=False)
    planned_fold_policy = models.CharField(max_length=10, null=True, editable=False)
    #: Computed by the database itself, so that no way of changing a row (``update``, SQL, ``loaddata``) goes unnoticed.
    is_stale = models.GeneratedField(
        expression=models.Case(
            models.When(stale_condition(), then=models.Value(True)),
            default=models.Value(False),
        ),
        output_field=models.BooleanField(),
        db_persist=True,
    )

    objects = ScheduleQuerySet.as_manager()

    if TYPE_CHECKING:
        runs: RelatedManager[Run]

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        indexes = [
            models.Index(fields=["next_due_at"], name="smallage_sched_due"),
            models.Index(fields=["is_stale"], name="smallage_sched_stale"),
        ]
        permissions = [
            ("run_schedule", "Can run a schedule now"),
            ("pause_schedule", "Can pause and resume a schedule"),
            ("backfill_schedule", "Can backfill a schedule"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Check every field against the rules; raises ``ValidationError`` with a message at each field."""
        from .validation import validate_schedule

        validate_schedule(self)


class ScheduleRevision(models.Model):
    """One change of a schedule: who, when, why, and each field's old and new value."""

    schedule = models.ForeignKey(
        Schedule,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="revisions",
    )
    schedule_uid = models.UUIDField(editable=False)
    number = models.PositiveIntegerField()
    at = InstantField(db_default=DatabaseClock())
    who = models.CharField(max_length=NAME_LENGTH, blank=True)
    via = models.CharField(max_length=32, blank=True)
    why = models.TextField(blank=True)
    changes = models.JSONField(default=dict)

    class Meta:
        verbose_name = _("schedule revision")
        verbose_name_plural = _("schedule revisions")
        constraints = [
            models.UniqueConstraint(
                fields=["schedule_uid", "number"], name="smallage_revision_number"
            )
        ]

    def __str__(self) -> str:
        return f"{self.schedule_uid} #{self.number}"


class Operation(models.Model):
    """One long act of a person (backfill, bulk retry, prune), worked off by the leader in chunks."""

    kind = models.CharField(_("kind"), max_length=32)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=OperationState.choices,
        default=OperationState.WAITING,
    )
    who = models.CharField(_("who"), max_length=NAME_LENGTH, blank=True)
    why = models.TextField(_("why"), blank=True)
    parameters = models.JSONField(_("parameters"), default=dict)
    cursor = models.JSONField(null=True, editable=False)
    total = models.PositiveIntegerField(_("total"), null=True)
    done = models.PositiveIntegerField(_("done"), default=0)
    failed = models.PositiveIntegerField(_("failed"), default=0)
    skipped = models.PositiveIntegerField(_("skipped"), default=0)
    message = models.TextField(_("message"), blank=True)
    created_at = InstantField(_("created at"), db_default=DatabaseClock())
    started_at = InstantField(_("started at"), null=True)
    finished_at = InstantField(_("finished at"), null=True)

    class Meta:
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        indexes = [models.Index(fields=["state", "created_at"], name="smallage_oper_state")]

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"


class Run(models.Model):
    """The record of one fire, from the decision to its outcome, under one unique fire id."""

    fire_id = FireIdField(_("fire id"), max_length=63, unique=True)
    kind = models.CharField(_("kind"), max_length=10, choices=_choices(KIND_LABELS))
    schedule = models.ForeignKey(
        Schedule,
        verbose_name=_("schedule"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="runs",
    )
    schedule_uid = models.UUIDField(null=True)
    schedule_name = models.CharField(_("schedule"), max_length=NAME_LENGTH, blank=True)
    revision = models.ForeignKey(
        ScheduleRevision,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )
    parent = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )
    merged_into = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )
    blocked_by = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )
    operation = models.ForeignKey(
        Operation,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )

    task = models.CharField(_("task"), max_length=255)
    backend = models.CharField(_("backend"), max_length=64, default="default")
    args = models.JSONField(_("positional arguments"), default=list)
    kwargs = models.JSONField(_("arguments"), default=dict)
    payload_ref = models.CharField(max_length=255, blank=True)
    queue = models.CharField(_("queue"), max_length=64, default="default")
    priority = models.SmallIntegerField(_("priority"), default=0)

    scheduled_for = InstantField(_("scheduled for"))
    due_at = InstantField(_("due at"))
    first_scheduled_for = InstantField(_("first scheduled for"), null=True)
    occurrence_count = models.PositiveIntegerField(_("occurrences"), default=1)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=_choices(STATE_LABELS),
        default=State.PENDING.value,
    )
    reason_code = models.CharField(_("reason code"), max_length=32, blank=True)
    reason = models.TextField(_("reason"), blank=True)

    max_attempts = models.PositiveSmallIntegerField(_("attempts allowed"), default=3)
    timeout = models.DurationField(_("timeout"), null=True)
    backoff = models.CharField(_("backoff"), max_length=64, blank=True)
    start_deadline_at = InstantField(_("start deadline"), null=True)
    late_at = InstantField(_("late from"), null=True)

    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    promotion = models.PositiveIntegerField(default=0)
    fence = models.BigIntegerField(default=0)
    claimed_at = InstantField(_("claimed at"), null=True)
    stream = models.CharField(_("stream"), max_length=NAME_LENGTH, blank=True)
    entry_id = models.CharField(_("entry"), max_length=48, blank=True)
    enqueued_at = InstantField(_("enqueued at"), null=True)
    first_started_at = InstantField(_("first started at"), null=True)
    started_at = InstantField(_("started at"), null=True)
    finished_at = InstantField(_("finished at"), null=True)
    dispatch_lag_ms = models.BigIntegerField(_("dispatch lag (ms)"), null=True)
    start_lag_ms = models.BigIntegerField(_("start lag (ms)"), null=True)
    worker = models.CharField(_("worker"), max_length=NAME_LENGTH, blank=True)
    #: Drawn anew at each begin: whoever holds it owns the attempt, and only that attempt's outcome is recorded.
    token = models.CharField(max_length=32, blank=True)
    progress = models.JSONField(_("progress"), null=True)
    result = models.JSONField(_("result"), null=True)
    error = models.TextField(_("error"), blank=True)
    error_fingerprint = models.CharField(max_length=32, blank=True)
    handled_at = InstantField(_("handled at"), null=True)
    handled_by = models.CharField(_("handled by"), max_length=NAME_LENGTH, blank=True)
    handled_note = models.TextField(_("note"), blank=True)
    traceparent = models.CharField(max_length=64, blank=True)

    objects = RunQuerySet.as_manager()

    if TYPE_CHECKING:
        attempts: RelatedManager[Attempt]
        events: RelatedManager[RunEvent]

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        indexes = [
            # Columns, not expressions: MariaDB has no indexes on expressions.
            models.Index(fields=["state", "-priority", "due_at", "id"], name="smallage_run_due"),
            models.Index(fields=["schedule", "-scheduled_for"], name="smallage_run_schedule"),
            models.Index(fields=["-scheduled_for", "-id"], name="smallage_run_list"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=[state.value for state in State]),
                name="smallage_run_state",
            ),
            models.CheckConstraint(
                condition=models.Q(occurrence_count__gte=1), name="smallage_run_count"
            ),
        ]
        permissions = [
            ("retry_run", "Can retry and replay runs"),
            ("cancel_run", "Can cancel runs"),
            ("prune_run", "Can prune runs"),
            ("view_payload", "Can see arguments and results"),
            ("view_overview", "Can see the overview"),
        ]

    def __str__(self) -> str:
        return str(self.fire_id)

    @property
    def is_active(self) -> bool:
        """Whether the run is not over yet."""
        return State(self.state) in ACTIVE


class DelayedRun(models.Model):
    """One promise made by one event: a task to run at one instant, useful until its deadline."""

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    run_at = InstantField(_("run at"))
    deadline = InstantField(_("deadline"), null=True, blank=True)
    task = models.CharField(_("task"), max_length=255)
    backend = models.CharField(_("backend"), max_length=64, default="default")
    args = models.JSONField(_("positional arguments"), default=list, blank=True)
    kwargs = models.JSONField(_("arguments"), default=dict, blank=True)
    queue = models.CharField(_("queue"), max_length=64, default="default")
    priority = models.SmallIntegerField(_("priority"), default=0)
    max_attempts = models.PositiveSmallIntegerField(_("attempts"), null=True, blank=True)
    backoff = models.CharField(_("backoff"), max_length=64, blank=True)
    timeout = models.DurationField(_("timeout"), null=True, blank=True)
    late_after = models.DurationField(_("late after"), null=True, blank=True)
    key = models.CharField(_("key"), max_length=NAME_LENGTH, null=True, blank=True, unique=True)
    origin = models.TextField(_("origin"), blank=True)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=DelayedState.choices,
        default=DelayedState.WAITING,
        editable=False,
    )
    reason = models.TextField(_("reason"), blank=True, editable=False)
    run = models.OneToOneField(
        Run,
        on_delete=models.SET_NULL,
        db_constraint=False,
        null=True,
        editable=False,
        related_name="delayed",
    )
    traceparent = models.CharField(max_length=64, blank=True, editable=False)
    created_at = InstantField(_("created at"), db_default=DatabaseClock(), editable=False)

    objects = DelayedRunQuerySet.as_manager()

    class Meta:
        verbose_name = _("delayed run")
        verbose_name_plural = _("delayed runs")
        indexes = [models.Index(fields=["state", "run_at"], name="smallage_delayed_due")]

    def __str__(self) -> str:
        return f"{self.task} @ {self.run_at:%Y-%m-%d %H:%M:%S}Z"

    def clean(self) -> None:
        """Check task, arguments and instants; raises ``ValidationError`` with a message at each field."""
        from .validation import validate_delayed_run

        validate_delayed_run(self)


class Attempt(models.Model):
    """One start of user code that did not simply succeed. A run that succeeds at first try has none."""

    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, db_constraint=False, related_name="attempts"
    )
    number = models.PositiveIntegerField(_("attempt"))
    worker = models.CharField(_("worker"), max_length=NAME_LENGTH, blank=True)
    started_at = InstantField(_("started at"), null=True)
    finished_at = InstantField(_("finished at"), null=True)
    ending = models.CharField(
        _("outcome"), max_length=10, choices=[(ending.value, ending.value) for ending in Ending]
    )
    error_class = models.CharField(_("error class"), max_length=255, blank=True)
    error = models.TextField(_("error"), blank=True)
    traceback = models.TextField(_("traceback"), blank=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="smallage_attempt_number")
        ]

    def __str__(self) -> str:
        return f"{self.run_id} attempt {self.number}: {self.ending}"


class RunEvent(models.Model):
    """Something that a run's own timestamps do not tell: held, lost, reclaimed, cancelled, retried by a person."""

    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, db_constraint=False, related_name="events"
    )
    at = InstantField(_("at"))
    kind = models.CharField(_("kind"), max_length=32)
    actor = models.CharField(_("by"), max_length=NAME_LENGTH, blank=True)
    detail = models.TextField(_("detail"), blank=True)

    class Meta:
        verbose_name = _("run event")
        verbose_name_plural = _("run events")

    def __str__(self) -> str:
        return f"{self.run_id} {self.kind}"


class LeaderTerm(models.Model):
    """One leader's period. Its epoch is the fencing token; it only ever grows, whatever Redis forgets."""

    epoch = models.BigIntegerField(unique=True)
    holder = models.CharField(_("holder"), max_length=NAME_LENGTH)
    host = models.CharField(_("host"), max_length=NAME_LENGTH, blank=True)
    pid = models.PositiveIntegerField(_("pid"), null=True)
    started_at = InstantField(_("started at"))
    last_pass_at = InstantField(_("last pass at"))
    ended_at = InstantField(_("ended at"), null=True)
    incarnation = models.CharField(max_length=64, blank=True)

    class Meta:
        verbose_name = _("leader term")
        verbose_name_plural = _("leader terms")

    def __str__(self) -> str:
        return f"#{self.epoch} {self.holder}"


class Outage(models.Model):
    """An interval in which no scheduler pass ran, recorded by the leader that ended it. What fell in it is missed."""

    started_at = InstantField(_("from"))
    ended_at = InstantField(_("until"))
    epoch = models.BigIntegerField()

    class Meta:
        verbose_name = _("outage")
        verbose_name_plural = _("outages")
        indexes = [models.Index(fields=["ended_at"], name="smallage_outage_end")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S}Z .. {self.ended_at:%Y-%m-%d %H:%M:%S}Z"


class Heartbeat(models.Model):
    """A scheduler or worker process that is, or was, alive. Its name is unique to one start of one process."""

    name = models.CharField(_("name"), max_length=NAME_LENGTH, unique=True)
    role = models.CharField(_("role"), max_length=10, choices=HeartbeatRole.choices)
    host = models.CharField(_("host"), max_length=NAME_LENGTH)
    pid = models.PositiveIntegerField(_("pid"))
    queues = models.JSONField(_("queues"), default=list)
    threads = models.PositiveIntegerField(_("threads"), default=0)
    busy = models.PositiveIntegerField(_("busy"), default=0)
    counts = models.JSONField(_("counts"), default=dict)
    tasks = models.JSONField(default=list)
    version = models.CharField(_("version"), max_length=32)
    zone_data = models.CharField(_("zone data"), max_length=16, blank=True)
    started_at = InstantField(_("started at"))
    beat_at = InstantField(_("last seen at"))
    stopped_at = InstantField(_("stopped at"), null=True)

    class Meta:
        verbose_name = _("heartbeat")
        verbose_name_plural = _("heartbeats")
        indexes = [models.Index(fields=["role", "beat_at"], name="smallage_beat_role")]

    def __str__(self) -> str:
        return self.name
