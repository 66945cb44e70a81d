# mypy: disable-error-code="import-untyped,misc"
# (Django and the toolkit carry no types; what crosses into our own modules is typed.)
"""The Django project around the toolkit, and the loopback server it runs on."""

import json
import os
import secrets
import socketserver
import sys
import time
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

import django
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from infra.local.provider.faults import CONNECTION, HeldAnswers, Stalls

HOST = "127.0.0.1"
ACCESS_TOKEN_S = 3600
USERS = ("alice", "bob")
SCOPES = {"identity": "See who you are", "notes": "Read your notes"}
LOGIN_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in</title></head>
<body><h1>Sign in at the local provider</h1>
<form method="post">{% csrf_token %}{{ form.as_p }}<input type="hidden" name="next" value="{{ next }}">
<input type="submit" value="Sign in"></form></body></html>
"""


class RandomSecretHasher(PBKDF2PasswordHasher):
    """Every password and client secret here is random and long, and such a secret gains nothing from slow hashing."""

    algorithm = "pbkdf2_sha256_of_random_secrets"
    iterations = 1


def prepare(state: Path, url: str) -> Path:
    """
    Set Django up on a database in *state*, with its tables and its users; answers the file with their passwords.

    The passwords are made anew at every start and stand in that file only (mode 0600), never in a log or a URL.
    """
    state.mkdir(parents=True, exist_ok=True)
    settings.configure(
        ALLOWED_HOSTS=[HOST, "localhost"],
        SECRET_KEY=secrets.token_urlsafe(48),
        DEBUG=False,
        USE_TZ=True,
        ROOT_URLCONF="infra.local.provider.site",
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.staticfiles",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [
                        ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN_PAGE}),
                        "django.template.loaders.app_directories.Loader",
                    ],
                    "context_processors": ["django.template.context_processors.request"],
                },
            }
        ],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(state / "provider.sqlite3"),
                "OPTIONS": {
                    "timeout": 20,
                    "transaction_mode": "IMMEDIATE",
                    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
                },
            }
        },
        # Tables straight from the models: the toolkit's many migrations take seconds and end in the same tables.
        MIGRATION_MODULES=dict.fromkeys(("auth", "contenttypes", "sessions", "oauth2_provider")),
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["infra.local.provider.server.RandomSecretHasher"],
        LOGIN_URL="/login/",
        SESSION_COOKIE_NAME="provider_session",
        CSRF_COOKIE_NAME="provider_csrf",
        STATIC_URL="/static/",
        # Warnings and errors only: Django names the path of a refused request, never its query or its body.
        LOGGING={
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"format": "provider %(levelname)s %(name)s %(message)s"}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": "WARNING"},
            "loggers": {"django": {"handlers": [], "propagate": True}, "django.server": {"propagate": True}},
        },
        OAUTH2_PROVIDER={
            "SCOPES": SCOPES,
            "DEFAULT_SCOPES": ["identity"],
            "ACCESS_TOKEN_EXPIRE_SECONDS": ACCESS_TOKEN_S,
            "PKCE_REQUIRED": True,
            "ROTATE_REFRESH_TOKEN": True,
            "REFRESH_TOKEN_REUSE_PROTECTION": True,
            "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
            # RFC 9700, as far as the toolkit goes: S256 only, no implicit and no password grant, no token in a query,
            # and `iss` in the authorization response (RFC 9207).
            "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
            "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
            "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
            "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
            "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
            "OIDC_ISS_ENDPOINT": f"{url}/o",
        },
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)
    return _users(state / "accounts.json")


def _users(file: Path) -> Path:
    from django.contrib.auth.models import User

    accounts = {}
    for name in USERS:
        user, _ = User.objects.get_or_create(username=name, defaults={"email": f"{name}@provider.example"})
        password = secrets.token_urlsafe(24)
        user.set_password(password)
        user.save()
        accounts[name] = {"password": password, "sub": str(user.pk), "email": user.email}
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(accounts, out)
    return file


class QuietHandler(WSGIRequestHandler):
    """One log line a request: method, path and status. A query may hold a code or a state, so it is never in it."""

    def setup(self) -> None:
        """The request begins here."""
        super().setup()
        self.begun = time.monotonic()

    def get_environ(self) -> dict[str, Any]:
        """The WSGI environment, with the socket: a held answer has to notice that its client has gone."""
        return super().get_environ() | {CONNECTION: self.connection}

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Called by the WSGI handler when the answer has been sent."""
        took = round((time.monotonic() - self.begun) * 1000)
        path = (self.path or "").partition("?")[0]
        sys.stderr.write(f"provider {self.command} {path} {int(code) if str(code).isdigit() else '-'} {took} ms\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Whatever else the base class wants to say would quote the request line."""

    def handle(self) -> None:
        """One request a connection; a client that was killed in the middle of it is part of the plan."""
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            sys.stderr.write("provider: the client closed the connection before its answer\n")


class LoopbackServer(socketserver.ThreadingMixIn, WSGIServer):
    """A thread a request, on the loopback address only."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the base class, which may ask a name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]
        self.setup_environ()


def serve(port: int, state: Path) -> tuple[LoopbackServer, Stalls, Path]:
    """A server that listens already (port 0 picks a free one); the caller runs it and shuts it down."""
    stalls = Stalls()
    server = LoopbackServer((HOST, port), QuietHandler)
    accounts = prepare(state, f"http://{HOST}:{server.server_port}")
    from django.core.wsgi import get_wsgi_application

    application: WSGIApplication = get_wsgi_application()
    server.set_app(HeldAnswers(application, stalls))
    return server, stalls, accounts
