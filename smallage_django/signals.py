"""Signals of runs. The framework's own (``task_enqueued``, ``task_started``, ``task_finished``) are sent as well."""

from __future__ import annotations
