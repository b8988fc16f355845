"""The extra pages: who may, what GET does, sites of one's own, a strict content security policy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import path, reverse

from smallage_django.admin import DelayedRunAdmin, RunAdmin, ScheduleAdmin
from smallage_django.admin.buttons import smallage_button, smallage_link
from smallage_django.models import DelayedRun, Run, Schedule, ScheduleRevision
from tests.support.admin import BASE, boxes, client_of, make_run, make_schedule, person, told

pytestmark = pytest.mark.django_db

ops = admin.AdminSite(name="ops")
ops.register(Schedule, ScheduleAdmin)
ops.register(Run, RunAdmin)
ops.register(DelayedRun, DelayedRunAdmin)
urlpatterns = [path("ops/", ops.urls), path("admin/", admin.site.urls)]


def extra_urls(schedule: Schedule, delayed: DelayedRun) -> list[str]:
    run = "admin:smallage_django_run_by_fire_id"
    return [
        reverse("admin:smallage_django_schedule_pause", args=[schedule.pk]),
        reverse("admin:smallage_django_schedule_resume", args=[schedule.pk]),
        reverse("admin:smallage_django_delayedrun_cancel", args=[delayed.pk]),
        reverse(run, args=["task:0"]),
    ]


def everything() -> list[Any]:
    return [
        list(model.objects.order_by("pk").values())
        for model in (Schedule, DelayedRun, Run, ScheduleRevision)
    ]


@pytest.fixture
def schedule() -> Schedule:
    return make_schedule()


@pytest.fixture
def delayed() -> DelayedRun:
    return DelayedRun.objects.create(run_at=BASE, task="tests.app.tasks.noop")


def test_a_button_cannot_be_declared_without_a_permission() -> None:
    with pytest.raises(TypeError, match="permission"):
        smallage_button(permission="", label="Go")
    with pytest.raises(TypeError, match="permission"):
        smallage_link(permission="", label="Go", target=lambda site, obj: "")
    with pytest.raises(TypeError):
        smallage_button(label="Go")  # type: ignore[call-arg]


def test_who_is_no_staff_is_sent_to_the_login(schedule: Schedule, delayed: DelayedRun) -> None:
    outsider = client_of(person("pause_schedule", "view_schedule", staff=False))
    before = everything()

    for url in extra_urls(schedule, delayed):
        for client in (Client(), outsider):
            for answer in (client.get(url), client.post(url, {"reason": "x"})):
                assert answer.status_code == 302
                assert "/login/" in answer["Location"]
    assert everything() == before


def test_staff_without_the_permission_is_refused_and_sees_no_button(
    schedule: Schedule, delayed: DelayedRun
) -> None:
    client = client_of(person("view_schedule", "change_schedule", "view_delayedrun"))

    for url in extra_urls(schedule, delayed):
        assert client.get(url).status_code == 403
        assert client.post(url).status_code == 403
    page = reverse("admin:smallage_django_schedule_change", args=[schedule.pk])
    assert "smallage-pause" not in client.get(page).content.decode()


def test_get_changes_nothing_and_other_methods_are_refused(
    schedule: Schedule, delayed: DelayedRun
) -> None:
    """A prefetch or a crafted image cannot act."""
    client = client_of(person(superuser=True))
    before = everything()

    for url in extra_urls(schedule, delayed)[:3]:
        assert client.get(url).status_code == 200
        assert client.put(url).status_code == 405
        assert client.delete(url).status_code == 405
        # POST without the page's own token asks again.
        assert client.post(url, {"reason": "x"}).status_code == 200
    assert everything() == before


def test_a_post_without_the_csrf_token_is_refused(schedule: Schedule) -> None:
    user = person(superuser=True)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)

    url = reverse("admin:smallage_django_schedule_pause", args=[schedule.pk])

    assert client.post(url, {"reason": "x"}).status_code == 403


def test_a_missing_object_is_a_404(schedule: Schedule) -> None:
    client = client_of(person(superuser=True))

    for pk in ("4711", "nonsense", "1%00"):
        assert client.get(f"/admin/smallage_django/schedule/{pk}/pause/").status_code == 404


def test_a_double_submit_acts_once(schedule: Schedule) -> None:
    client = client_of(person(superuser=True))
    url = reverse("admin:smallage_django_schedule_pause", args=[schedule.pk])
    data = boxes(client.get(url).content.decode())
    client.post(url, data, follow=True)
    Schedule.objects.filter(pk=schedule.pk).update(enabled=True)

    response = client.post(url, data, follow=True)

    assert "sent before" in told(response)[0]
    schedule.refresh_from_db()
    assert schedule.enabled


def test_a_token_of_somebody_elses_making_is_refused(schedule: Schedule) -> None:
    client = client_of(person(superuser=True))
    url = reverse("admin:smallage_django_schedule_pause", args=[schedule.pk])

    client.post(url, {"smallage_token": "made-up", "reason": "x"})

    schedule.refresh_from_db()
    assert schedule.enabled


def test_an_action_that_fails_says_so_and_logs_it(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("smallage_django.admin.schedules.revising.revise", fail)
    client = client_of(person(superuser=True))
    url = reverse("admin:smallage_django_schedule_pause", args=[schedule.pk])

    response = client.post(url, boxes(client.get(url).content.decode()), follow=True)

    assert "failed" in told(response)[0]
    assert "no luck" in caplog.text


def test_cancel_is_a_link_back_to_the_filtered_list(delayed: DelayedRun) -> None:
    client = client_of(person(superuser=True))
    url = reverse("admin:smallage_django_delayedrun_changelist") + "?state__exact=waiting"

    html = client.post(
        url, {"action": "cancel_selected", ACTION_CHECKBOX_NAME: [delayed.pk]}
    ).content.decode()

    assert f'<a href="{url}" class="closelink">' in html
    response = client.post(url, boxes(html))
    assert response["Location"] == url


def test_the_markup_of_a_button_is_the_same_each_time(schedule: Schedule) -> None:
    """Upstream's class attribute grows at every rendering."""
    client = client_of(person(superuser=True))
    page = reverse("admin:smallage_django_schedule_change", args=[schedule.pk])

    drawn = {
        re.search(r'<li><a [^>]*id="smallage-pause"[^>]*>', client.get(page).content.decode())[0]  # type: ignore[index]
        for _ in range(20)
    }

    assert len(drawn) == 1
    assert "aeb-" not in drawn.pop()


# -- every page


def pages(site: str, schedule: Schedule, delayed: DelayedRun, run: Run) -> list[str]:
    name = f"{site}:smallage_django"
    return [
        reverse(f"{name}_schedule_changelist"),
        reverse(f"{name}_schedule_add"),
        reverse(f"{name}_schedule_change", args=[schedule.pk]),
        reverse(f"{name}_schedule_history", args=[schedule.pk]),
        reverse(f"{name}_schedule_pause", args=[schedule.pk]),
        reverse(f"{name}_schedule_delete", args=[schedule.pk]),
        reverse(f"{name}_delayedrun_changelist"),
        reverse(f"{name}_delayedrun_add"),
        reverse(f"{name}_delayedrun_change", args=[delayed.pk]),
        reverse(f"{name}_delayedrun_cancel", args=[delayed.pk]),
        reverse(f"{name}_run_changelist"),
        reverse(f"{name}_run_change", args=[run.pk]),
        reverse(f"{name}_run_history", args=[run.pk]),
    ]


@override_settings(ROOT_URLCONF="tests.integration.test_admin_buttons")
def test_on_a_site_of_ones_own_every_link_stays_there(
    schedule: Schedule, delayed: DelayedRun
) -> None:
    run = make_run(BASE, schedule)
    make_run(BASE.replace(day=29), schedule)
    client = client_of(person(superuser=True))

    for url in pages("ops", schedule, delayed, run):
        response = client.get(url)
        assert response.status_code == 200, url
        assert "/admin/" not in re.sub(r"/static/[^\"']*", "", response.content.decode()), url
    pause = reverse("ops:smallage_django_schedule_pause", args=[schedule.pk])
    answer = client.post(pause, boxes(client.get(pause).content.decode()))
    assert answer["Location"].startswith("/ops/")
    unknown = reverse("ops:smallage_django_run_by_fire_id", args=["task:0"])
    assert "/admin/" not in re.sub(r"/static/[^\"']*", "", client.get(unknown).content.decode())


INLINE = re.compile(
    r"<style|<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")|\sstyle=|\son[a-z]+=|javascript:",
    re.IGNORECASE,
)


def test_no_page_has_an_inline_script_style_or_handler(
    schedule: Schedule, delayed: DelayedRun
) -> None:
    """What a policy of ``default-src 'self'`` would block."""
    run = make_run(BASE, schedule, state="failed", error="x")
    client = client_of(person(superuser=True))

    for url in pages("admin", schedule, delayed, run):
        html = client.get(url).content.decode()
        assert not INLINE.search(html), (url, INLINE.search(html))
        assert "admin_extra_buttons" not in html
        assert "//cdn" not in html


def test_the_pages_work_while_redis_is_away(
    schedule: Schedule, delayed: DelayedRun, settings: Any
) -> None:
    settings.SMALLAGE = {**settings.SMALLAGE, "REDIS_URL": "redis://127.0.0.1:1/0"}
    run = make_run(BASE, schedule)
    client = client_of(person(superuser=True))

    for url in pages("admin", schedule, delayed, run):
        assert client.get(url).status_code == 200, url
    page = reverse("admin:smallage_django_schedule_change", args=[schedule.pk])
    data = boxes(client.get(page).content.decode(), "schedule_form")
    assert client.post(page, {**data, "owner": "x"}).status_code == 302


def test_the_pages_work_in_another_language_and_time_zone(
    schedule: Schedule, delayed: DelayedRun
) -> None:
    run = make_run(BASE, schedule)
    client = client_of(person(superuser=True))

    with override_settings(LANGUAGE_CODE="de", TIME_ZONE="Asia/Kathmandu"):
        html = "".join(
            client.get(url).content.decode() for url in pages("admin", schedule, delayed, run)
        )

    assert "28 März 2026" in html or "28 Mär 2026" in html
    assert "Asia/Kathmandu (+05:45)" in html


def test_the_system_checks_are_quiet() -> None:
    assert "smallage_django" in django_settings.INSTALLED_APPS
    call_command("check", fail_level="WARNING")


def test_the_app_index_lists_the_three_pages() -> None:
    html = client_of(person(superuser=True)).get(reverse("admin:index")).content.decode()

    for model in ("schedule", "delayedrun", "run"):
        assert reverse(f"admin:smallage_django_{model}_changelist") in html
