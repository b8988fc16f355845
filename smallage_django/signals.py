"""Signals of runs. The framework's own (``task_enqueued``, ``task_started``, ``task_finished``) are sent as well.

All are sent with ``send_robust`` after the outcome is stored; a receiver that raises is logged and changes nothing.
The sender is the class of the task's backend, as for the framework's signals; the arguments are ``task_result``,
``fire_id`` and ``reason``.
"""

from __future__ import annotations

from django.dispatch import Signal

#: A run has ended well.
run_succeeded = Signal()
#: A run has failed for good and waits for a person.
run_failed = Signal()
#: An attempt has failed, and another one is due at ``task_result.due_at``.
run_retrying = Signal()
