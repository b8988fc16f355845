"""The list and the form of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from smallage_django.models import Run, Schedule, ScheduleRevision
from tests.support.admin import (
    boxes,
    client_of,
    errors_of,
    make_run,
    make_schedule,
    mark_planned,
    person,
    told,
)

pytestmark = pytest.mark.django_db

LIST = reverse("admin:smallage_django_schedule_changelist")
ADD = reverse("admin:smallage_django_schedule_add")


@pytest.fixture
def anna() -> Client:
    return client_of(person(superuser=True))


def page_of(row: Schedule) -> str:
    return reverse("admin:smallage_django_schedule_change", args=[row.pk])


def opened(client: Client, url: str, **changes: Any) -> dict[str, Any]:
    """The form of a page as a browser has it, with changes typed in."""
    data = boxes(client.get(url).content.decode(), "schedule_form")
    return {**data, **changes}


def minimal(**changes: Any) -> dict[str, Any]:
    return {
        "name": "nightly",
        "task": "tests.app.tasks.noop",
        "kwargs": "{}",
        "kind": "cron",
        "expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "enabled": "on",
        **changes,
    }


# -- adding


def test_it_is_added_on_one_page_and_nothing_is_fired(anna: Client) -> None:
    data = opened(anna, ADD, name="nightly", task="tests.app.tasks.noop")
    data |= {"expression": "30 2 * * *", "timezone": "Europe/Berlin"}

    response = anna.post(ADD, data, follow=True)

    row = Schedule.objects.get()
    assert (row.name, row.expression, row.timezone) == ("nightly", "30 2 * * *", "Europe/Berlin")
    assert row.enabled
    assert Run.objects.count() == 0
    message = next(text for text in told(response) if "Nothing was fired" in text)
    assert "02:30 CE" in message
    first = ScheduleRevision.objects.get()
    assert (first.number, first.who, first.via) == (1, "anna", "admin")
    assert first.changes["expression"] == [None, "30 2 * * *"]


def test_the_first_fire_of_a_new_interval_is_not_the_moment_of_saving(anna: Client) -> None:
    data = minimal(kind="interval", expression="", every="3", unit="hours", timezone="UTC")

    response = anna.post(ADD, data, follow=True)

    row = Schedule.objects.get()
    message = next(text for text in told(response) if "Nothing was fired" in text)
    assert f"{row.created_at + timedelta(hours=3):%H:%M}" in message


def test_what_is_left_out_of_a_post_has_its_default(anna: Client) -> None:
    response = anna.post(ADD, minimal())

    assert response.status_code == 302, errors_of(response)
    row = Schedule.objects.get()
    assert (row.missed_policy, row.overlap_policy) == ("latest", "skip")
    assert (row.catch_up_limit, row.misfire_grace) == (100, timedelta(seconds=60))
    assert (row.jitter, row.late_after, row.kwargs, row.tags) == (timedelta(0), None, {}, [])


def test_every_field_is_kept_and_comes_back_as_it_was_typed(anna: Client) -> None:
    data = minimal(
        task="tests.app.tasks.add",
        kwargs='{"a": 1, "b": 2}',
        queue="mail",
        tags="night, reports",
        starts_at="2030-01-01 00:00",
        ends_at="2031-01-01 12:00:30",
        max_runs="7",
        jitter="5 min",
        late_after="1 h 30 min",
        start_deadline="2d",
        missed_policy="all",
        misfire_grace="90",
        catch_up_limit="5",
        catch_up_window="00:20:00",
        overlap_policy="allow",
        max_attempts="4",
        backoff="constant(30)",
        timeout="250ms",
        owner="data team",
        note="as agreed",
    )

    response = anna.post(ADD, data)

    assert response.status_code == 302, errors_of(response)
    row = Schedule.objects.get()
    assert row.kwargs == {"a": 1, "b": 2}
    assert row.tags == ["night", "reports"]
    assert row.starts_at == datetime(2029, 12, 31, 23, 0, tzinfo=UTC)
    assert row.late_after == timedelta(minutes=90)
    assert (row.misfire_grace, row.timeout) == (
        timedelta(seconds=90),
        timedelta(milliseconds=250),
    )
    again = opened(anna, page_of(row))
    assert again["starts_at"] == "2030-01-01 00:00"
    assert again["ends_at"] == "2031-01-01 12:00:30"
    assert again["late_after"] == "1 h 30 min"
    assert again["timeout"] == "0.25 s"
    unchanged = anna.post(page_of(row), again, follow=True)
    assert any("nothing was changed" in text for text in told(unchanged))
    row.refresh_from_db()
    assert row.version == 1


def test_the_task_is_a_select_of_the_registry_grouped_by_app(anna: Client) -> None:
    html = anna.get(ADD).content.decode()

    assert '<select name="task"' in html
    assert "<optgroup" in html
    assert "Do nothing, successfully." in html
    assert '<option value="tests.app.tasks.noop"' in html


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"expression": "61 2 * * *"}, "expression", ["minute"]),
        ({"expression": "* * *"}, "expression", []),
        ({"timezone": "Berlin"}, "timezone", ["Berlin"]),
        ({"kwargs": '{"days": }'}, "kwargs", ["line 1 column 10"]),
        ({"kwargs": "[1]"}, "kwargs", ["a JSON object", "list"]),
        ({"kwargs": '{"days": NaN}'}, "kwargs", ["NaN"]),
        ({"kwargs": '{"days": 7}'}, "kwargs", ["days"]),
        ({"task": "tests.app.tasks.add", "kwargs": '{"a": 1}'}, "kwargs", ["b", "missing"]),
        (
            {"task": "tests.app.tasks.add", "kwargs": '{"a": 1, "b": "x"}'},
            "kwargs",
            ["b", "int", "str"],
        ),
        ({"task": "tests.app.tasks.gone"}, "task", ["tests.app.tasks.gone", "not registered"]),
        ({"name": ""}, "name", []),
        (
            {"starts_at": "2027-01-02 00:00", "ends_at": "2027-01-01 00:00"},
            "ends_at",
            ["2027-01-01", "2026-12-31"],
        ),
        ({"starts_at": "2027-03-28 02:30"}, "starts_at", ["does not exist", "Europe/Berlin"]),
        (
            {"starts_at": "2027-10-31 02:30"},
            "starts_at",
            ["occurs twice", "+02:00", "+01:00"],
        ),
        ({"starts_at": "tomorrow"}, "starts_at", ["YYYY-MM-DD"]),
        ({"late_after": "a while"}, "late_after", ["a while", "5 min"]),
        ({"late_after": "-5"}, "late_after", ["negative"]),
        ({"jitter": "2 d"}, "jitter", ["shortest step"]),
        ({"kind": "interval", "every": "0", "unit": "minutes"}, "every", []),
        ({"kind": "trigger"}, "kind", []),
        ({"max_attempts": "0"}, "max_attempts", ["1"]),
        ({"catch_up_limit": "0"}, "catch_up_limit", ["1"]),
        ({"overlap_policy": "buffer_all"}, "overlap_policy", []),
    ],
)
def test_bad_input_is_told_at_its_field_values_are_kept_and_nothing_is_saved(
    anna: Client, changes: dict[str, str], field: str, words: list[str]
) -> None:
    response = anna.post(ADD, minimal(**changes))

    found = errors_of(response)
    assert field in found, found
    for word in words:
        assert word in " ".join(found[field])
    assert Schedule.objects.count() == 0
    for name, value in changes.items():
        if name not in ("task", "kind", "overlap_policy"):
            assert response.context["adminform"].form[name].value() == value


def test_a_second_schedule_of_the_same_name_is_refused(anna: Client) -> None:
    make_schedule("nightly")

    assert "name" in errors_of(anna.post(ADD, minimal()))


# -- changing


def test_a_change_tells_the_pending_fire_before_and_after_and_raises_the_version(
    anna: Client,
) -> None:
    """R: nothing surprising on edit: saving never fires, and the message says what will."""
    row = make_schedule()
    data = opened(anna, page_of(row), expression="30 3 * * *", note="load")

    response = anna.post(page_of(row), data, follow=True)

    row.refresh_from_db()
    assert (row.expression, row.version) == ("30 3 * * *", 2)
    message = next(text for text in told(response) if "pending fire" in text)
    assert "Mon 1 Jun 2099 02:30 CEST (+02:00)" in message
    assert "03:30" in message.partition("is now")[2]
    assert Run.objects.count() == 0
    revision = ScheduleRevision.objects.get()
    assert revision.changes == {"expression": ["30 2 * * *", "30 3 * * *"]}
    assert (revision.who, revision.via, revision.why) == ("anna", "admin", "load")


def test_a_change_leaves_the_schedulers_own_columns_alone(anna: Client) -> None:
    row = make_schedule()
    data = opened(anna, page_of(row), owner="anna")
    moved = datetime(2099, 6, 2, 0, 30, tzinfo=UTC)
    mark_planned(row, moved)

    anna.post(page_of(row), data)

    row.refresh_from_db()
    assert (row.owner, row.next_due_at) == ("anna", moved)


def test_the_second_of_two_editors_is_told_who_changed_what(anna: Client) -> None:
    row = make_schedule()
    berta = client_of(person(superuser=True, name="berta"))
    hers = opened(berta, page_of(row), expression="0 4 * * *")
    his = opened(anna, page_of(row), description="mine")
    berta.post(page_of(row), hers)

    response = anna.post(page_of(row), his)

    text = " ".join(errors_of(response)["__all__"])
    assert "berta" in text
    assert "cron expression" in text
    row.refresh_from_db()
    assert (row.expression, row.description, row.version) == ("0 4 * * *", "", 2)
    assert response.context["adminform"].form["description"].value() == "mine"


def test_who_may_not_see_arguments_cannot_see_or_change_them(anna: Client) -> None:
    row = make_schedule(task="tests.app.tasks.fail", kwargs={"message": "s3cr3t"})
    client = client_of(person("view_schedule", "change_schedule", name="carl"))
    response = client.get(page_of(row))

    assert b"s3cr3t" not in response.content
    data = opened(client, page_of(row), owner="carl")
    assert client.post(page_of(row), {**data, "kwargs": "{}"}).status_code == 302
    row.refresh_from_db()
    assert (row.owner, row.kwargs) == ("carl", {"message": "s3cr3t"})


def test_a_reader_sees_no_form_and_redacted_arguments(anna: Client) -> None:
    row = make_schedule(kwargs={"api_token": "s3cr3t", "days": 7}, starts_at=datetime.now(UTC))
    client = client_of(person("view_schedule", "view_payload", name="carl"))

    html = client.get(page_of(row)).content.decode()

    assert "s3cr3t" not in html
    assert "••••" in html
    assert 'name="expression"' not in html
    assert "+0" in html
    assert client.post(page_of(row), minimal()).status_code == 403


# -- what is broken


def test_a_row_with_an_unknown_task_is_listed_opened_and_saved_only_paused(anna: Client) -> None:
    row = make_schedule(task="shop.tasks.gone")

    assert "unknown task" in anna.get(LIST).content.decode()
    data = opened(anna, page_of(row))
    assert data["task"] == "shop.tasks.gone"
    assert "task" in errors_of(anna.post(page_of(row), data))
    del data["enabled"]
    assert anna.post(page_of(row), data).status_code == 302
    row.refresh_from_db()
    assert not row.enabled


@pytest.mark.parametrize(
    "damage",
    [
        {"expression": "not a rule"},
        {"expression": ""},
        {"timezone": "Mars/Olympus"},
        {"kind": "interval", "every": None, "unit": ""},
        {"kind": "interval", "every": 5, "unit": "fortnights"},
        {"kind": "nonsense"},
        {"kind": "trigger", "trigger": "lunar"},
        {"state": "nonsense"},
        {"kwargs": ["a", "list"]},
        {"kwargs": 7},
        {"tags": "text"},
        {"missed_policy": "nonsense"},
        {"overlap_policy": "nonsense"},
        {"backoff": "nonsense"},
        {"state": "broken", "state_reason": "expression: seven fields"},
    ],
)
def test_a_row_that_was_broken_past_all_checks_is_listed_and_opened(
    anna: Client, damage: dict[str, Any]
) -> None:
    row = make_schedule()
    Schedule.objects.filter(pk=row.pk).update(**damage)

    listed = anna.get(LIST)
    form = anna.get(page_of(row))

    assert listed.status_code == form.status_code == 200
    assert row.name in listed.content.decode()
    if "state_reason" in damage:
        assert damage["state_reason"] in listed.content.decode()
    elif {"expression", "every", "timezone"} & damage.keys():
        assert "roken" in listed.content.decode()
    assert anna.post(page_of(row), opened(anna, page_of(row))).status_code in (200, 302)


def far_off(row: Schedule) -> bool:
    """Write a date that Python cannot hold, where the database can."""
    values = {"postgresql": "'infinity'", "sqlite": "'10000-01-01 00:00:00'"}
    value = values.get(connection.vendor)
    if value is None:
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE smallage_django_schedule SET starts_at = {value} WHERE id = %s", [row.pk]
        )
    return True


def test_a_date_that_python_cannot_read_spoils_neither_list_nor_form(anna: Client) -> None:
    row = make_schedule("far")
    make_schedule("sound")
    if not far_off(row):
        assert connection.vendor == "mysql", "its columns refuse such a date"
        return

    html = anna.get(LIST).content.decode()
    assert "far" in html
    assert "sound" in html
    if connection.vendor == "postgresql":
        # SQLite gives None; there it is the scheduler that finds out and marks the row.
        assert "cannot be read" in html
    assert "cannot be read" in anna.get(page_of(row)).content.decode()
    data = opened(anna, page_of(row))
    assert data["starts_at"] in ("infinity", "10000-01-01 00:00:00")
    assert "starts_at" in errors_of(anna.post(page_of(row), data))
    # Mended in the form.
    assert anna.post(page_of(row), {**data, "starts_at": ""}).status_code == 302
    assert Schedule.objects.get(pk=row.pk).starts_at is None


# -- the list


def test_the_list_tells_zone_next_fire_last_run_and_state(anna: Client) -> None:
    row = make_schedule()
    make_run(datetime(2026, 3, 27, 1, 30, tzinfo=UTC), row, state="failed")
    last = make_run(datetime(2026, 3, 28, 1, 30, tzinfo=UTC), row)
    make_schedule("off", enabled=False, pause_reason="until spring")
    make_schedule("every", kind="interval", every=10, unit="minutes", expression="")

    html = anna.get(LIST).content.decode()

    assert "30 2 * * *" in html
    assert "Europe/Berlin" in html
    assert "Mon 1 Jun 2099 02:30 CEST (+02:00)" in html
    assert reverse("admin:smallage_django_run_change", args=[last.pk]) in html
    assert "succeeded" in html
    assert "paused" in html
    assert "until spring" in html
    assert "every 10 minutes" in html


def test_the_next_fire_is_in_the_order_of_the_list_with_the_never_ones_last(anna: Client) -> None:
    make_schedule("never", next_due_at=None)
    make_schedule("second", next_due_at=datetime(2099, 1, 2, tzinfo=UTC))
    make_schedule("first", next_due_at=datetime(2099, 1, 1, tzinfo=UTC))

    names = [row.name for row in anna.get(LIST).context["cl"].result_list]

    assert names == ["first", "second", "never"]


@pytest.mark.parametrize("number", [1, 45])
def test_the_list_takes_eight_queries_at_most_however_long_it_is(number: int) -> None:
    for at in range(number):
        row = make_schedule(f"schedule {at}")
        make_run(datetime(2026, 3, 28, 1, 30, tzinfo=UTC), row)
    client = client_of(person("view_schedule", "view_run", name="carl"))
    client.get(LIST)

    with CaptureQueriesContext(
        connection,
    ) as queries:
        response = client.get(LIST)

    assert len(response.context["cl"].result_list) == number
    assert len(queries) <= 8, [query["sql"][:90] for query in queries]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=paused", ["off"]),
        ("state=active", ["on"]),
        ("enabled__exact=0", ["off"]),
        ("kind__exact=interval", ["off"]),
        ("queue=mail", ["off"]),
        ("task=tests.app.tasks.add", ["on"]),
        ("q=of", ["off"]),
    ],
)
def test_the_filters_of_the_list(anna: Client, query: str, names: list[str]) -> None:
    make_schedule("on", task="tests.app.tasks.add", expression="0 5 * * *")
    make_schedule("off", kind="interval", every=5, unit="hours", queue="mail", enabled=False)

    found = anna.get(f"{LIST}?{query}").context["cl"].result_list

    assert [row.name for row in found] == names


# -- pause and resume


def test_pausing_asks_first_and_records_who_and_why(anna: Client) -> None:
    row = make_schedule()
    url = reverse("admin:smallage_django_schedule_pause", args=[row.pk])
    asked = anna.get(url)
    row.refresh_from_db()
    assert row.enabled, "GET only asks"
    assert "Mon 1 Jun 2099 02:30 CEST" in asked.content.decode()

    data = {**boxes(asked.content.decode()), "reason": "moving house"}
    response = anna.post(url, data, follow=True)

    row.refresh_from_db()
    assert (row.enabled, row.pause_reason, row.version) == (False, "moving house", 2)
    assert told(response) == ["nightly was paused."]
    revision = ScheduleRevision.objects.get()
    assert (revision.who, revision.why) == ("anna", "moving house")
    assert "Resume" in response.content.decode()


def test_resuming_turns_it_on_again(anna: Client) -> None:
    row = make_schedule(enabled=False, pause_reason="x")
    url = reverse("admin:smallage_django_schedule_resume", args=[row.pk])

    anna.post(url, boxes(anna.get(url).content.decode()))

    row.refresh_from_db()
    assert (row.enabled, row.pause_reason) == (True, "")


def test_a_pause_that_comes_second_says_so_and_changes_nothing(anna: Client) -> None:
    row = make_schedule()
    url = reverse("admin:smallage_django_schedule_pause", args=[row.pk])
    form = boxes(anna.get(url).content.decode())
    Schedule.objects.filter(pk=row.pk).update(enabled=False, version=2)

    response = anna.post(url, {**form, "reason": "mine"}, follow=True)

    assert "had changed meanwhile" in told(response)[0] or "paused" not in told(response)[0]
    row.refresh_from_db()
    assert (row.pause_reason, row.version) == ("", 2)
