# mypy: disable-error-code="import-untyped,misc,untyped-decorator,no-any-return"
# (Django and the toolkit carry no types; what crosses into our own modules is typed.)
"""What the toolkit does not bring: a protected resource, the ledger, and the control paths that use its models."""

import json
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.views import LoginView
from django.contrib.staticfiles.views import serve
from django.core.exceptions import ValidationError
from django.db.models.signals import post_delete
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.urls import include, path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.decorators import protected_resource
from oauth2_provider.models import AccessToken, Application, RefreshToken
from oauth2_provider.views import IntrospectTokenView, TokenView

GONE: list[dict[str, Any]] = []
"""The toolkit deletes an access token to revoke it; the ledger remembers that there was one."""
_gone_lock = threading.Lock()


def remember_deleted(instance: AccessToken, **_: Any) -> None:
    """Receiver of `post_delete`: an access token was revoked."""
    with _gone_lock:
        GONE.append(_access_line(instance) | {"revoked": int(time.time() * 1000), "live": False})


post_delete.connect(remember_deleted, sender=AccessToken)


@protected_resource(scopes=["identity"])
def me(request: HttpRequest) -> HttpResponse:
    """The resource that an access token of scope `identity` opens: who its owner is."""
    user = request.resource_owner
    return JsonResponse({"sub": str(user.pk), "email": user.email})


# --- control paths: for the demo and the tests, JSON in and out, one token answer only ---------------------------


def control(view: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[HttpRequest], HttpResponse]:
    """A POST of JSON. The content type is required: a page of another origin cannot send it unasked."""

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        if request.method != "POST" or request.content_type != "application/json":
            return JsonResponse({"error": "POST of application/json only"}, status=405)
        try:
            return JsonResponse(view(json.loads(request.body)))
        except (KeyError, ValueError) as fault:
            return JsonResponse({"error": f"{type(fault).__name__}: {fault}"}, status=400)
        except ValidationError as fault:
            return JsonResponse({"error": fault.message_dict}, status=400)

    return answer


@control
def register(asked: dict[str, Any]) -> dict[str, Any]:
    """Make, or change, a confidential client of the code flow whose users are always asked for their consent."""
    client = Application.objects.filter(client_id=asked["client_id"]).first()
    client = client or Application(client_id=asked["client_id"])
    client.name = asked.get("name") or asked["client_id"]
    client.client_secret = asked["secret"]
    client.redirect_uris = " ".join(asked["redirect_uris"])
    client.client_type = Application.CLIENT_CONFIDENTIAL
    client.authorization_grant_type = Application.GRANT_AUTHORIZATION_CODE
    client.skip_authorization = False
    client.full_clean()
    client.save()
    return {"client_id": client.client_id}


@control
def issue(asked: dict[str, Any]) -> dict[str, Any]:
    """
    Give a client grants of a person as if the person had agreed long ago, at the app itself: what an import begins
    with. The one control path that answers with tokens; they are the app's.
    """
    client = Application.objects.get(client_id=asked["client_id"])
    user = get_user_model().objects.get(username=asked["username"])
    tokens = []
    for _ in range(asked.get("count", 1)):
        token, scope, ends = secrets.token_urlsafe(30), " ".join(asked["scopes"]), timezone.now() + timedelta(hours=1)
        access = AccessToken.objects.create(
            user=user, application=client, token=secrets.token_urlsafe(30), scope=scope, expires=ends
        )
        RefreshToken.objects.create(
            user=user, application=client, token=token, access_token=access, token_family=uuid.uuid4()
        )
        tokens.append(token)
    return {"refresh_tokens": tokens}


@control
def person(asked: dict[str, Any]) -> dict[str, Any]:
    """One more person, without a password: nobody signs in as them, but a client may have grants of them."""
    name = asked["username"]
    user, _ = get_user_model().objects.get_or_create(username=name, defaults={"email": f"{name}@provider.example"})
    return {"sub": str(user.pk)}


@control
def introspect(asked: dict[str, Any]) -> dict[str, Any]:
    """The toolkit's own word on an access token."""
    return {"active": json.loads(IntrospectTokenView.get_token_response(asked["token"]).content)["active"]}


@control
def try_refresh(asked: dict[str, Any]) -> dict[str, Any]:
    """
    The provider's verdict on a refresh token that only it can see: its own token endpoint is asked, for real.

    Asked for is the newest one of the client (or the one of `digest`). An accepted try spends the token, as any
    refresh does, and a refused one kills its family: this is a question for the end of a story.
    """
    tokens = RefreshToken.objects.filter(application__client_id=asked["client_id"])
    if "digest" in asked:
        tokens = tokens.filter(token_checksum=asked["digest"])
    if "username" in asked:
        tokens = tokens.filter(user__username=asked["username"])
    newest = tokens.order_by("-pk").first()
    if newest is None:
        raise ValueError("this client never got such a refresh token")
    form = {
        "grant_type": "refresh_token",
        "refresh_token": newest.token,
        "client_id": asked["client_id"],
        "client_secret": asked["secret"],
    }
    answer = TokenView.as_view()(RequestFactory().post("/o/token/", form))
    error = json.loads(answer.content).get("error")
    return {
        "accepted": answer.status_code == 200,
        "status": answer.status_code,
        "error": error,
        "digest": newest.token_checksum,
    }


def ledger(_: HttpRequest) -> HttpResponse:
    """Every token that was ever issued, by digest, with what became of it."""
    refresh, access = (
        [line(token) for token in kind.objects.select_related("application", "user").order_by("pk")]
        for kind, line in ((RefreshToken, _refresh_line), (AccessToken, _access_line))
    )
    with _gone_lock:
        access = sorted(access + GONE, key=lambda line: line["created"])
    return JsonResponse({"tokens": refresh + access})


def _refresh_line(token: RefreshToken) -> dict[str, Any]:
    return {
        "kind": "refresh",
        "digest": token.token_checksum,
        "client_id": token.application.client_id,
        "user": token.user.get_username(),
        "created": _ms(token.created),
        "revoked": _ms(token.revoked),
        "family": str(token.token_family),
        # Without its access token the toolkit refuses a refresh token that was not revoked by name.
        "live": token.revoked is None and token.access_token_id is not None,
    }


def _access_line(token: AccessToken) -> dict[str, Any]:
    return {
        "kind": "access",
        "digest": token.token_checksum,
        "client_id": token.application.client_id if token.application else None,
        "user": token.user.get_username() if token.user else None,
        "created": _ms(token.created),
        "expires": _ms(token.expires),
        "revoked": None,
        "live": not token.is_expired(),
    }


def _ms(instant: datetime | None) -> int | None:
    return None if instant is None else int(instant.timestamp() * 1000)


urlpatterns = [
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    path("login/", LoginView.as_view(), name="login"),
    path("api/me", me),
    path("static/<path:path>", serve, {"insecure": True}),
    path("_control/register", register),
    path("_control/issue", issue),
    path("_control/person", person),
    path("_control/introspect", introspect),
    path("_control/try-refresh", try_refresh),
    path("_control/ledger", ledger),
]
