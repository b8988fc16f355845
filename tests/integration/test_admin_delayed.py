"""The pages of delayed runs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from smallage_django.domain import identity
from smallage_django.models import DelayedRun
from tests.support.admin import boxes, client_of, errors_of, make_run, person, told

pytestmark = pytest.mark.django_db

LIST = reverse("admin:smallage_django_delayedrun_changelist")
ADD = reverse("admin:smallage_django_delayedrun_add")
FAR = datetime(2099, 3, 28, 1, 30, tzinfo=UTC)


@pytest.fixture
def anna() -> Client:
    return client_of(person(superuser=True))


def page_of(row: DelayedRun) -> str:
    return reverse("admin:smallage_django_delayedrun_change", args=[row.pk])


def make(**values: Any) -> DelayedRun:
    return DelayedRun.objects.create(
        **{"run_at": FAR, "task": "tests.app.tasks.noop", "origin": "class 7", **values}
    )


def post(client: Client, **changes: str) -> Any:
    data = boxes(client.get(ADD).content.decode(), "delayedrun_form")
    data |= {"task": "tests.app.tasks.noop", "run_at": "2099-03-28 02:30", "zone": "Europe/Berlin"}
    return client.post(ADD, {**data, **changes}, follow=True)


def test_it_is_added_in_a_named_zone(anna: Client) -> None:
    response = post(
        anna,
        task="tests.app.tasks.add",
        kwargs='{"a": 1, "b": 2}',
        deadline="2099-03-28 04:00",
        key="class-7",
        origin="class 7",
        late_after="5 min",
    )

    row = DelayedRun.objects.get()
    assert row.run_at == FAR
    assert row.deadline == datetime(2099, 3, 28, 3, 0, tzinfo=UTC)
    assert (row.key, row.origin, row.state) == ("class-7", "class 7", "waiting")
    assert (row.kwargs, row.queue, row.late_after) == (
        {"a": 1, "b": 2},
        "default",
        timedelta(minutes=5),
    )
    assert "class 7" in response.content.decode()


@pytest.mark.parametrize(
    ("changes", "field", "word"),
    [
        ({"run_at": ""}, "run_at", "required"),
        ({"run_at": "soon"}, "run_at", "YYYY"),
        ({"zone": "Berlin"}, "zone", "Berlin"),
        ({"deadline": "2099-03-28 01:00"}, "deadline", "2099-03-28T00:00"),
        ({"task": "tests.app.tasks.gone"}, "task", "not registered"),
        ({"kwargs": '{"x": 1}'}, "kwargs", "x"),
        ({"kwargs": "{"}, "kwargs", "line 1 column 2"),
        ({"key": "taken"}, "key", "already exists"),
    ],
)
def test_bad_input_is_told_at_its_field_and_nothing_is_saved(
    anna: Client, changes: dict[str, str], field: str, word: str
) -> None:
    make(key="taken")

    found = errors_of(post(anna, **changes))

    assert word in " ".join(found[field])
    assert DelayedRun.objects.count() == 1


def test_an_instant_of_the_past_is_said_to_fire_at_once(anna: Client) -> None:
    response = post(anna, run_at="2020-01-01 00:00")

    assert any("next pass" in text for text in told(response))
    assert DelayedRun.objects.get().state == "waiting"


def test_the_list_names_zone_deadline_and_run(anna: Client) -> None:
    uid = uuid.uuid4()
    run = make_run(fire_id=identity.once(uid), kind="delayed")
    make(uid=uid, state="fired", run=run)
    make(deadline=FAR + timedelta(hours=1))
    for at in range(30):
        make(run_at=FAR + timedelta(minutes=at))

    with CaptureQueriesContext(connection) as queries:
        html = anna.get(LIST).content.decode()

    assert reverse("admin:smallage_django_run_change", args=[run.pk]) in html
    assert "Sat 28 Mar 2099 01:30 UTC" in html
    assert "waiting" in html
    assert len(queries) <= 8


def test_what_waits_can_be_changed_and_what_has_fired_only_read(anna: Client) -> None:
    waiting = make()
    data = boxes(anna.get(page_of(waiting)).content.decode(), "delayedrun_form")
    assert data["run_at"] == "2099-03-28 01:30"
    anna.post(page_of(waiting), {**data, "run_at": "2099-03-29 12:00", "zone": "UTC"})
    waiting.refresh_from_db()
    assert waiting.run_at == datetime(2099, 3, 29, 12, 0, tzinfo=UTC)

    run = make_run(fire_id=identity.once(waiting.uid), kind="delayed")
    DelayedRun.objects.filter(pk=waiting.pk).update(state="fired", run=run)
    html = anna.get(page_of(waiting)).content.decode()
    assert 'name="run_at"' not in html
    assert reverse("admin:smallage_django_run_change", args=[run.pk]) in html
    response = anna.post(page_of(waiting), data, follow=True)
    assert "no longer waiting" in told(response)[0]


def test_one_is_cancelled_after_a_question(anna: Client) -> None:
    row = make(key="class-7")
    url = reverse("admin:smallage_django_delayedrun_cancel", args=[row.pk])
    asked = anna.get(url).content.decode()
    row.refresh_from_db()
    assert row.state == "waiting"

    response = anna.post(url, boxes(asked), follow=True)

    row.refresh_from_db()
    assert row.state == "cancelled"
    assert "anna" in row.reason
    assert told(response) == ["1 delayed run was cancelled."]


def test_many_are_cancelled_and_those_that_moved_on_are_counted(anna: Client) -> None:
    rows = [make() for _ in range(3)]
    first = anna.post(
        LIST, {"action": "cancel_selected", "_selected_action": [row.pk for row in rows]}
    )
    html = first.content.decode()
    assert "Cancel 3 delayed runs?" in html
    assert DelayedRun.objects.filter(state="waiting").count() == 3
    DelayedRun.objects.filter(pk=rows[0].pk).update(state="expired")

    data = {**boxes(html), "_selected_action": [row.pk for row in rows]}
    response = anna.post(LIST, data, follow=True)

    assert told(response) == ["2 delayed runs were cancelled. 1 had moved on and was left alone."]
    rows[0].refresh_from_db()
    assert rows[0].state == "expired"
    assert DelayedRun.objects.filter(state="cancelled").count() == 2


def test_cancelling_needs_its_permission() -> None:
    row = make()
    client = client_of(person("view_delayedrun", "change_delayedrun", "view_payload", name="c"))

    assert (
        client.get(reverse("admin:smallage_django_delayedrun_cancel", args=[row.pk])).status_code
        == 403
    )
    assert "Cancel" not in client.get(page_of(row)).content.decode()
    client.post(LIST, {"action": "cancel_selected", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.state == "waiting"


def test_arguments_are_hidden_from_who_may_not_see_them() -> None:
    row = make(task="tests.app.tasks.fail", kwargs={"message": "s3cr3t"})
    client = client_of(person("view_delayedrun", "change_delayedrun", name="carl"))

    html = client.get(page_of(row)).content.decode()

    assert "s3cr3t" not in html
    assert 'name="run_at"' not in html


def test_a_broken_row_is_listed_and_opened(anna: Client) -> None:
    row = make(task="gone.tasks.x", kwargs=["list"], queue="nowhere", state="waiting")

    assert "unknown task" in anna.get(LIST).content.decode()
    assert anna.get(page_of(row)).status_code == 200
    assert row.run_at > timezone.now()
