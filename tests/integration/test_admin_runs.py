"""The list of runs and the page of one run."""

from __future__ import annotations

import itertools
import re
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
from smallage_django.models import Attempt, DelayedRun, Run, RunEvent
from tests.support.admin import (
    BASE,
    client_of,
    make_run,
    make_runs,
    make_schedule,
    person,
    told,
)

pytestmark = pytest.mark.django_db

LIST = reverse("admin:smallage_django_run_changelist")


@pytest.fixture
def anna() -> Client:
    return client_of(person(superuser=True))


def page_of(run: Run) -> str:
    return reverse("admin:smallage_django_run_change", args=[run.pk])


def shown(response: Any) -> list[Run]:
    found: list[Run] = response.context["cl"].result_list
    return found


def link(response: Any, name: str) -> str | None:
    match = re.search(rf'<a href="([^"]*)"[^>]*class="smallage-{name}"', response.content.decode())
    return LIST + match[1].replace("&amp;", "&") if match else None


# -- paging


def test_five_thousand_runs_are_paged_forward_and_back_with_ties_and_never_counted(
    anna: Client,
) -> None:
    # 5,000 runs at 1,700 instants: three share most of them, so pages end inside a tie.
    make_runs(BASE + timedelta(seconds=at // 3) for at in range(5000))
    wanted = list(Run.objects.order_by("-scheduled_for", "-id").values_list("pk", flat=True))

    forward: list[list[int]] = []
    url: str | None = LIST
    pages: list[str] = []
    with CaptureQueriesContext(connection) as queries:
        while url is not None:
            response = anna.get(url)
            forward.append([run.pk for run in shown(response)])
            pages.append(url)
            url = link(response, "older")
        backward = []
        url = pages[-1]
        while url is not None:
            response = anna.get(url)
            backward.append([run.pk for run in shown(response)])
            url = link(response, "newer")

    assert list(itertools.chain(*forward)) == wanted
    assert len(forward) == 50
    assert list(reversed(backward)) == forward
    assert not [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()]


def test_a_page_takes_few_queries_and_leaves_payloads_where_they_are() -> None:
    schedule = make_schedule()
    for at in range(150):
        make_run(BASE + timedelta(days=at), schedule)
    client = client_of(person("view_run", name="carl"))
    client.get(LIST)

    with CaptureQueriesContext(connection) as queries:
        response = client.get(LIST)

    assert len(shown(response)) == 100
    assert len(queries) <= 8
    page = next(q["sql"] for q in queries if "schedule_name" in q["sql"])
    for column in ("kwargs", "result", "payload_ref", "progress"):
        assert f'."{column}"' not in page
        assert f".`{column}`" not in page


def test_the_order_cannot_be_changed_and_pages_have_no_numbers(anna: Client) -> None:
    make_runs(BASE + timedelta(minutes=at) for at in range(3))

    plain = [run.pk for run in shown(anna.get(LIST))]

    assert [run.pk for run in shown(anna.get(f"{LIST}?o=1&p=7"))] == plain
    assert "sortable" not in re.sub(r"\.js|\.css", "", anna.get(LIST).content.decode())


@pytest.mark.parametrize("token", ["x", "1", "1.2.3", "99999999999999999999.1", "1.x"])
def test_a_place_that_is_none_leads_back_to_the_list(anna: Client, token: str) -> None:
    response = anna.get(f"{LIST}?older={token}")

    assert response.status_code == 302
    assert anna.get(f"{LIST}?older={token}", follow=True).status_code == 200


# -- columns


def test_the_columns_of_a_run(anna: Client) -> None:
    schedule = make_schedule()
    at = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    run = make_run(
        at,
        schedule,
        state="failed",
        attempt=3,
        late_at=at,
        start_lag_ms=720_000,
        error="Boom\n  at line 1\nValueError: " + "x" * 100,
    )

    html = anna.get(LIST).content.decode()

    assert "◆" in html
    assert "failed" in html
    assert "late" in html
    assert f'title="{run.fire_id}"' in html
    assert "Sat 28 Mar 2026 02:30 CET (+01:00)" in html
    assert "+12 min" in html
    assert "3/3" in html
    assert "2 s" in html
    outcome = re.search(r'smallage-outcome" title="[^"]*">([^<]*)<', html)
    assert outcome
    assert outcome[1].startswith("ValueError: xxx")
    assert len(outcome[1]) == 80
    assert reverse("admin:smallage_django_schedule_change", args=[schedule.pk]) in html


def test_the_runs_of_a_deleted_schedule_keep_its_name(anna: Client) -> None:
    schedule = make_schedule("gone")
    run = make_run(BASE, schedule)
    schedule.delete()

    assert "gone" in anna.get(LIST).content.decode()
    page = anna.get(page_of(run))
    assert page.status_code == 200
    assert "deleted" in page.content.decode()
    assert shown(anna.get(f"{LIST}?schedule_name=gone")) == [run]


# -- filters


@pytest.fixture
def mixed() -> dict[str, Run]:
    """One run of each sort, an hour apart around now."""
    now = timezone.now()
    hour = timedelta(hours=1)
    schedule = make_schedule()
    return {
        "ok": make_run(now - hour * 30, schedule),
        "late": make_run(now - hour * 2, late_at=now - hour * 3),
        "waits late": make_run(
            now - hour * 3, state="pending", first_started_at=None, late_at=now - hour
        ),
        "missed": make_run(now - hour * 4, state="missed", first_started_at=None),
        "failed": make_run(now - hour * 5, state="failed", queue="mail"),
        "stuck": make_run(
            now - hour * 50, state="running", started_at=now - hour * 49, finished_at=None
        ),
        "delayed": make_run(now - hour / 2, kind="delayed", fire_id=identity.once(uuid.uuid4())),
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=missed", {"missed"}),
        ("state=missed,failed", {"missed", "failed"}),
        ("problem=late", {"late", "waits late"}),
        ("problem=missed", {"missed"}),
        ("problem=any", {"late", "waits late", "missed", "failed", "stuck"}),
        ("schedule_name=nightly", {"ok"}),
        ("schedule_name=nobody", set()),
        ("kind=delayed", {"delayed"}),
        ("queue=mail", {"failed"}),
        ("window=1h", {"delayed"}),
        ("window=24h&state=failed", {"failed"}),
        ("window=7d", {"ok", "late", "waits late", "missed", "failed", "stuck", "delayed"}),
        ("from=2020-01-01&to=2020-01-02&zone=Europe/Berlin", set()),
        ("from=nonsense&zone=UTC", set()),
        ("from=2020-01-01&zone=Mars", set()),
    ],
)
def test_the_filters_of_the_list(
    anna: Client, mixed: dict[str, Run], query: str, names: set[str]
) -> None:
    """Filters for state, late, missed, schedule and time."""
    found = shown(anna.get(f"{LIST}?{query}"))

    assert {name for name, run in mixed.items() if run in found} == names
    assert len(found) == len(names)


def test_a_custom_window_is_read_in_its_zone(anna: Client) -> None:
    inside = make_run(datetime(2026, 3, 27, 23, 30, tzinfo=UTC))
    make_run(datetime(2026, 3, 27, 22, 30, tzinfo=UTC))

    found = shown(anna.get(f"{LIST}?from=2026-03-28&to=2026-03-29&zone=Europe/Berlin"))

    assert found == [inside]


def test_a_count_is_made_only_within_a_window_and_has_a_limit(anna: Client) -> None:
    make_runs(timezone.now() - timedelta(seconds=at) for at in range(120))

    with CaptureQueriesContext(connection) as queries:
        html = anna.get(f"{LIST}?window=1h").content.decode()
        anna.get(f"{LIST}?state=succeeded")

    assert "100 shown, 120 match (last hour)" in html
    counts = [q["sql"] for q in queries if "COUNT(" in q["sql"].upper()]
    assert len(counts) == 1
    assert "LIMIT 10001" in counts[0]


def test_links_and_forms_of_a_page_keep_the_filter_and_leave_the_place(anna: Client) -> None:
    make_runs(BASE + timedelta(minutes=at) for at in range(150))
    older = link(anna.get(f"{LIST}?kind=enqueue"), "older")
    assert older is not None
    assert "kind=enqueue" in older

    html = anna.get(older).content.decode()

    assert 'name="older"' not in html
    assert re.search(r'<input type="hidden" name="kind" value="enqueue"', html)
    assert not re.search(r'href="\?[^"]*older=[^"]*state=', html)


# -- search


def test_the_search_box_finds_by_id_by_its_beginning_and_by_schedule_and_date(
    anna: Client,
) -> None:
    schedule = make_schedule("my nightly")
    # 23:30 UTC is 00:30 of the next day in Berlin.
    run = make_run(datetime(2026, 3, 27, 23, 30, tzinfo=UTC), schedule)
    other = make_run(datetime(2026, 3, 27, 12, 0, tzinfo=UTC), schedule)
    stranger = make_run()

    def found(text: str) -> list[Run]:
        return shown(anna.get(LIST, {"q": text}))

    assert found(run.fire_id) == [run]
    assert found(f"sched:{schedule.uid.hex}") == [run, other]
    assert found(run.fire_id[:-3])[0] == run
    assert found(stranger.fire_id[:20]) == [stranger]
    assert found("my nightly 2026-03-28") == [run]
    assert found("my nightly 2026-03-27 13:00") == [other]
    assert found("my nightly") == [run, other]
    assert found("nobody 2026-03-28") == []
    assert found("my nightly 2026-02-31") == []


def test_a_search_by_prefix_is_a_range_and_one_that_is_not_understood_says_so(
    anna: Client,
) -> None:
    with CaptureQueriesContext(connection) as queries:
        anna.get(LIST, {"q": "task:abc"})
        response = anna.get(LIST, {"q": "what is this"})

    assert not [q for q in queries if " LIKE " in q["sql"].upper()]
    assert "what is this" in told(response)[0]
    assert shown(response) == []


# -- by fire id


def test_the_url_by_fire_id_leads_to_the_run(anna: Client) -> None:
    run = make_run(BASE, make_schedule())

    response = anna.get(reverse("admin:smallage_django_run_by_fire_id", args=[run.fire_id]))

    assert response.status_code == 302
    assert response["Location"] == page_of(run)


def test_an_unknown_fire_id_gets_a_page_that_helps(anna: Client) -> None:
    schedule = make_schedule()
    delayed = DelayedRun.objects.create(run_at=BASE, task="tests.app.tasks.noop")

    def page(fire_id: str) -> str:
        response = anna.get(reverse("admin:smallage_django_run_by_fire_id", args=[fire_id]))
        assert response.status_code == 404
        return response.content.decode()

    assert "shape of a fire id" in page("nonsense")
    assert "shape of a fire id" in page("é" * 70)
    assert "Sat 28 Mar 2026 03:30 CET" in page(identity.scheduled(schedule.uid, BASE))
    assert "waiting" in page(identity.once(delayed.uid))
    assert "pruned" in page(identity.manual(uuid.uuid4()))
    assert page(f"sched:{schedule.uid.hex}:999999999999999")


# -- the page of a run


def test_the_page_tells_times_in_two_zones_reasons_attempts_and_events(anna: Client) -> None:
    schedule = make_schedule()
    stands = make_run(BASE + timedelta(days=1), schedule)
    run = make_run(
        BASE,
        schedule,
        state="failed",
        reason="attempt 2 of 2 failed: Boom",
        reason_code="attempts_exhausted",
        merged_into=stands,
        worker="w-1",
        stream="{smallage}:q:default:0",
        entry_id="1-0",
    )
    for number in (1, 2):
        Attempt.objects.create(
            run=run,
            number=number,
            worker="w-1",
            started_at=BASE,
            finished_at=BASE + timedelta(seconds=2),
            ending="failed",
            error_class="tests.app.tasks.Boom",
            error="boom",
            traceback=f"Traceback {number}\n  File x",
        )
    RunEvent.objects.create(run=run, at=BASE, kind="reclaimed", actor="w-2", detail="w-1 silent")

    html = anna.get(page_of(run)).content.decode()

    assert "Sat 28 Mar 2026 03:30 CET (+01:00)" in html
    assert "Sat 28 Mar 2026 02:30 UTC" in html
    assert "attempts_exhausted" in html
    assert page_of(stands) in html
    assert "Traceback 2" in html
    assert html.index("Traceback 2") < html.index("Traceback 1")
    assert html.count("<details open>") == 1
    assert "reclaimed" in html
    assert "1-0" in html
    assert 'id="smallage-next_run"' in html
    assert 'id="smallage-previous_run"' not in html


def test_payloads_need_a_permission_and_redacted_keys_stay_masked(settings: Any) -> None:
    settings.SMALLAGE = {**settings.SMALLAGE, "REDACT": ["password", "pin"]}
    run = make_run(
        kwargs={"user": "u-77", "db_Password": "hunter2", "deep": [{"pin": "1234"}]},
        result={"rows": 4711, "password": "hunter3"},
    )

    blind = client_of(person("view_run", name="carl")).get(page_of(run)).content.decode()
    seeing = client_of(person("view_run", "view_payload", name="dora")).get(page_of(run))
    html = seeing.content.decode()

    assert "u-77" not in blind
    assert "4711" not in blind
    assert "u-77" in html
    assert "4711" in html
    for secret in ("hunter2", "hunter3", "1234"):
        assert secret not in html
        assert secret not in blind


def test_nobody_adds_changes_or_deletes_a_run_whatever_the_permissions(anna: Client) -> None:
    run = make_run()

    assert anna.get(reverse("admin:smallage_django_run_add")).status_code == 403
    delete = reverse("admin:smallage_django_run_delete", args=[run.pk])
    assert anna.get(delete).status_code == 403
    assert anna.post(delete, {"post": "yes"}).status_code == 403
    assert anna.post(page_of(run), {"state": "pending"}).status_code == 405
    html = anna.get(LIST).content.decode()
    assert "action-select" not in html
    assert reverse("admin:smallage_django_run_add") not in html
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_a_run_that_is_gone_is_told_and_not_an_error(anna: Client) -> None:
    response = anna.get(reverse("admin:smallage_django_run_change", args=[4711]), follow=True)

    assert response.status_code == 200
    assert "4711" in told(response)[0]


@pytest.mark.parametrize("state", ["pending", "held", "claimed", "enqueued", "running"])
def test_a_run_that_is_not_over_has_a_page(anna: Client, state: str) -> None:
    run = make_run(
        state=state,
        attempt=0,
        first_started_at=None,
        started_at=BASE if state == "running" else None,
        finished_at=None,
        start_lag_ms=None,
        dispatch_lag_ms=None,
    )

    assert anna.get(page_of(run)).status_code == 200
    assert state in anna.get(LIST).content.decode()
