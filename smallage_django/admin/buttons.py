"""The one wrapper over django-admin-extra-buttons: pages that act only when asked to.

Upstream buttons are plain links whose method runs on GET, for any logged-in user unless a permission is named, outside
the admin site's own checks. Here every extra URL goes through ``admin_site.admin_view``, a button cannot be declared
without a permission, a missing object is a 404, and what changes something is asked first: GET shows the question and
POST acts. Nothing of upstream's script, style or templates is used.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

import django
from admin_extra_buttons.handlers import ButtonHandler
from admin_extra_buttons.mixins import ExtraButtonsMixin
from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.signing import BadSignature, Signer
from django.db import router, transaction
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template import RequestContext
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.translation import gettext_lazy as _

logger = logging.getLogger(__name__)

#: Name of the form field that makes a second submit a no-op.
ONCE: Final = "smallage_token"
_USED: Final = "smallage_used_tokens"
_MOST_USED: Final = 50
_SALT: Final = "smallage_django.admin.buttons"
#: From 6.1 on the admin's breadcrumbs are an ordered list.
LISTED_BREADCRUMBS: Final = django.VERSION >= (6, 1)

Visible = Callable[[Any], bool]

# Upstream's type information is another in each of its versions; none of it is relied on.
_UpstreamHandler: Any = ButtonHandler
_UpstreamButton: Any = ButtonHandler.button_class
_UpstreamMixin: Any = ExtraButtonsMixin


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did, told to the person who asked for it."""

    message: str
    level: int = messages.SUCCESS


@dataclass(frozen=True, slots=True)
class Question:
    """A confirmation page: what is asked, what will happen, and what to do when the answer is yes."""

    heading: Any
    consequences: Sequence[Any]
    act: Callable[[dict[str, Any]], Done]
    confirm: Any
    danger: bool = False
    form: type[forms.Form] | None = None
    #: Carried through the form, for actions on ticked rows.
    hidden: Sequence[tuple[str, str]] = field(default=())


class _Button(_UpstreamButton):  # type: ignore[misc]
    """A link without upstream's classes; its attributes are made anew each time it is drawn."""

    @property
    def html_attrs(self) -> dict[str, str]:
        given = dict(self.config.get("html_attrs") or {})
        return {"id": f"smallage-{self.handler.name}", **given}

    @property
    def url(self) -> str:
        found = self.get_url(self.context)
        return found or ""

    def get_url(self, context: Any) -> str | None:
        target = self.handler.config.get("target")
        if target is not None:
            linked: str | None = target(self.handler.model_admin, self.original)
            return linked
        name = f"{self.admin_site.name}:{self.handler.url_name}"
        args = [self.original.pk] if self.handler.takes_object else []
        try:
            url = reverse(name, args=args)
        except NoReverseMatch:
            return None
        filters = self.request.GET.get("_changelist_filters") or ""
        query = self.request.GET.urlencode() if not self.handler.takes_object else filters
        return f"{url}?{_preserved(query)}" if query else url


class _Handler(_UpstreamHandler):  # type: ignore[misc]
    """Checks method, object and permission before the decorated method is called with the object."""

    button_class = _Button

    @property
    def takes_object(self) -> bool:
        return len(self.func_args) > 2

    def __call__(
        self, model_admin: Any, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        if self.config.get("target") is not None:
            raise Http404
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        request.current_app = model_admin.admin_site.name  # type: ignore[attr-defined]
        if not request.user.has_perm(self.permission):
            raise PermissionDenied
        if not self.takes_object:
            listed: HttpResponse = self.func(model_admin, request)
            return listed
        obj = model_admin.get_object(request, kwargs[self.func_args[2]])
        if obj is None:
            raise Http404(f"no {model_admin.opts.verbose_name} {kwargs[self.func_args[2]]!r}")
        if not model_admin.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        answer: HttpResponse = self.func(model_admin, request, obj)
        return answer


def smallage_button(
    *,
    permission: str,
    label: Any,
    visible: Visible | None = None,
    html_attrs: dict[str, str] | None = None,
) -> Callable[[Callable[..., HttpResponse]], Any]:
    """Declare a page with a button: on the form where the method takes an object, else on the list.

    ``visible`` is asked with the object. Raises ``TypeError`` without a permission.
    """
    if not permission:
        raise TypeError("a button needs a permission")

    def decorator(method: Callable[..., HttpResponse]) -> Any:
        return _Handler(
            func=method,
            permission=permission,
            label=label,
            html_attrs=dict(html_attrs or {}),
            visible=_shown(visible),
        )

    return decorator


def smallage_link(*, permission: str, label: Any, target: Callable[[Any, Any], str | None]) -> Any:
    """Declare a button that leads to another page; ``target(model_admin, obj)`` is its URL, None hides it."""
    if not permission:
        raise TypeError("a link needs a permission")

    def decorator(method: Callable[..., Any]) -> Any:
        return _Handler(
            func=method, permission=permission, label=label, target=target, change_form=True
        )

    return decorator


class SmallageButtonsMixin(_UpstreamMixin):  # type: ignore[misc]
    """A model admin whose extra pages are part of its admin site like any other."""

    change_list_template: ClassVar[Any] = "admin/smallage_django/change_list.html"
    change_form_template: ClassVar[Any] = "admin/smallage_django/change_form.html"

    class Media:
        css = {"all": ["smallage_django/smallage.css"]}

    @property
    def media(self) -> forms.Media:
        # Past upstream's own, which adds a script that disables buttons and a style of 1.9 contrast.
        base: forms.Media = _past_upstream(self).media
        return base + forms.Media(css={"all": ["smallage_django/smallage.css"]})

    def check(self, **kwargs: Any) -> list[Any]:
        # Upstream's own check reads source files and the permission table at every start.
        found: list[Any] = _past_upstream(self).check(**kwargs)
        return found

    def get_extra_urls(self) -> list[URLPattern]:
        """Every extra URL behind the site's own check: staff only, never cached, CSRF-protected."""
        return [
            URLPattern(
                item.pattern,
                self.admin_site.admin_view(item.callback),
                item.default_args,
                item.name,
            )
            for item in super().get_extra_urls()
            if self._handler_of(item).config.get("target") is None
        ]

    @staticmethod
    def _handler_of(item: URLPattern) -> Any:
        callback: Any = item.callback
        return callback.func

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        request.current_app = self.admin_site.name  # type: ignore[attr-defined]
        extra = {**(extra_context or {}), "smallage_buttons": self.list_buttons(request)}
        answer: HttpResponse = super().changelist_view(request, extra)
        return answer

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        request.current_app = self.admin_site.name  # type: ignore[attr-defined]
        context["smallage_buttons"] = self.form_buttons(request, context.get("original"))
        answer: HttpResponse = super().render_change_form(request, context, *args, **kwargs)
        return answer

    def list_buttons(self, request: HttpRequest) -> list[_Button]:
        """The buttons of the list that this person may press."""
        handlers = [h for h in self.extra_button_handlers.values() if not h.takes_object]
        return list(self._buttons(request, None, handlers))

    def form_buttons(self, request: HttpRequest, obj: Any) -> list[_Button]:
        """The buttons of one object that this person may press now."""
        if obj is None:
            return []
        handlers = [h for h in self.extra_button_handlers.values() if h.takes_object]
        return list(self._buttons(request, obj, handlers))

    def _buttons(
        self, request: HttpRequest, obj: Any, handlers: Sequence[Any]
    ) -> Iterator[_Button]:
        context = RequestContext(request, {"original": obj, "request": request})
        for handler in handlers:
            button = handler.get_button(context)
            if button.can_render():
                yield button

    def ask(self, request: HttpRequest, question: Question, obj: Any = None) -> HttpResponse:
        """GET shows the question. POST with its token acts, tells what was done, and goes back where one came from."""
        given = request.POST if request.method == "POST" and ONCE in request.POST else None
        form = question.form(given) if question.form is not None else None
        if given is None or (form is not None and not form.is_valid()):
            return self._question_page(request, question, form, obj)
        if not _use(request, given[ONCE]):
            messages.warning(request, _("This was sent before; nothing was done again."))
            return HttpResponseRedirect(self._way_back(request, obj))
        facts = form.cleaned_data if form is not None else {}
        try:
            with transaction.atomic(using=router.db_for_write(self.model)):
                done = question.act(facts)
            messages.add_message(request, done.level, done.message)
        except PermissionDenied:
            raise
        except Exception:
            logger.exception("the admin could not do %r for %s", str(question.heading), obj)
            messages.error(
                request, _("This failed and nothing was changed. The log has the details.")
            )
        return HttpResponseRedirect(self._way_back(request, obj))

    def _question_page(
        self, request: HttpRequest, question: Question, form: forms.Form | None, obj: Any
    ) -> HttpResponse:
        request.current_app = self.admin_site.name  # type: ignore[attr-defined]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": question.heading,
            "question": question,
            "form": form,
            "original": obj,
            "token_name": ONCE,
            "token": Signer(salt=_SALT).sign(secrets.token_urlsafe(12)),
            "back": self._way_back(request, obj),
            "listed_breadcrumbs": LISTED_BREADCRUMBS,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/smallage_django/confirm.html", context)

    def _way_back(self, request: HttpRequest, obj: Any) -> str:
        """The object's page, or the list as it was filtered."""
        site, model = self.admin_site.name, f"{self.opts.app_label}_{self.opts.model_name}"
        if obj is not None:
            url = reverse(f"{site}:{model}_change", args=[obj.pk])
            query = request.GET.get("_changelist_filters", "")
            return f"{url}?{_preserved(query)}" if query else url
        query = request.GET.urlencode()
        url = reverse(f"{site}:{model}_changelist")
        return f"{url}?{query}" if query else url


def _past_upstream(model_admin: Any) -> Any:
    """What the class after upstream's mixin has."""
    return super(_UpstreamMixin, model_admin)


def _shown(visible: Visible | None) -> Any:
    if visible is None:
        return True
    return lambda button: button.original is not None and visible(button.original)


def _preserved(query: str) -> str:
    return urlencode({"_changelist_filters": query})


def _use(request: HttpRequest, token: str) -> bool:
    """Whether a form's token is ours and is sent for the first time; from now on it is used."""
    try:
        Signer(salt=_SALT).unsign(token)
    except BadSignature:
        return False
    used: list[str] = request.session.get(_USED, [])
    if token in used:
        return False
    request.session[_USED] = [*used, token][-_MOST_USED:]
    return True
