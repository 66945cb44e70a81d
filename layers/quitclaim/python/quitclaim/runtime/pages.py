"""
The pages a browser sees when no app takes it back: rendered here, escaped, nothing of the request on them, no script,
readable on a phone and aloud.

The words and the style are in `page_templates`. The template engine is imported by who renders a page: most visits end
in a redirect and need none.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final
from urllib.parse import urlsplit

from quitclaim.domain.errors import (
    BindingMismatchError,
    CallbackRecoveryRequiredError,
    CallbackRejectedError,
    ConnectBlockedError,
    ExchangeUnconfirmedError,
    InvalidRequestError,
    KeyUnavailableError,
    NotFoundError,
    QuitclaimError,
    RemovalRequiredError,
    StateInvalidError,
    StateReplayedError,
    StoreError,
    TimeIsUpError,
)

TEMPLATES: Final = Path(__file__).parent / "page_templates"
STYLE: Final = (TEMPLATES / "style.css").read_text("utf-8")

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}

BACK: Final = "Nothing was connected. Go back to the app and start again."
LATER: Final = "Nothing was connected. Wait a moment, then go back to the app and start again."
WORDS: Final[tuple[tuple[type[QuitclaimError] | UnionType, str | None, str], ...]] = (
    (BindingMismatchError, None, "Open the app in that browser and start again there."),
    (StateReplayedError, None, "Go back to the app: it shows whether the connection is ready."),
    (ConnectBlockedError, None, "Go back to the app: it shows what has to be settled first."),
    (NotFoundError, None, "Check the address, or go back to the app."),
    (CallbackRejectedError, None, BACK),
    (StateInvalidError, "This link has expired, or it is not complete.", BACK),
    (InvalidRequestError, "What came back from the provider cannot be used.", BACK),
    (StoreError | KeyUnavailableError | TimeIsUpError, "Something took too long on our side.", LATER),
    (QuitclaimError, None, BACK),
)
"""
What a person is told of an error, None: the sentence of its kind; and what the person can do now. The first row counts.
"""


@cache
def _templates() -> Any:  # jinja2.Environment, which nobody imports to name it
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def page(name: str, **shown: str | None) -> str:
    """The page of template *name*; every value in *shown* is text to it, whatever it holds."""
    from markupsafe import Markup

    style = Markup(STYLE)  # noqa: S704 - our own file; escaping would change what the policy's hash is of
    rendered: str = _templates().get_template(f"{name}.html.jinja").render(style=style, **shown)
    return rendered


def awaiting(code: str, provider: str | None = None) -> str:
    """The grant is held until its owner brings *code* to the app; *provider* is the provider's name."""
    return page("awaiting", code=code, provider=provider)


def in_progress(provider: str | None = None) -> str:
    """The same callback was delivered before, and its outcome is not known yet."""
    return page("in_progress", provider=provider)


def connected(provider: str | None = None) -> str:
    """Done."""
    return page("connected", provider=provider)


def failed(error: QuitclaimError) -> str:
    """It did not work: why, in our words, what can be done now, and the code for support."""
    title = "Page not found" if isinstance(error, NotFoundError) else "Not connected"
    words, advice = next((words, advice) for kind, words, advice in WORDS if isinstance(error, kind))
    if error.retryable or error.retry_after_ms is not None:
        advice = LATER
    return page("failed", title=title, sentence=words or error.sentence, advice=advice, code=error.code)


def needs_removal(error: QuitclaimError) -> bool:
    """Whether only the owner can end what the provider may have granted: then the removal page says how."""
    return isinstance(error, ExchangeUnconfirmedError | RemovalRequiredError | CallbackRecoveryRequiredError)


def removal(provider: str | None, manual_page: str | None, error: QuitclaimError | None = None) -> str:
    """
    How the owner removes the access at the provider, and that the app wants to hear of it.

    *provider* is its name and *manual_page* its own page for it, both of the catalogue; without a page the words say
    where to look.
    """
    return page(
        "removal",
        provider=provider,
        manual_page=manual_page if provider else None,
        manual_host=urlsplit(manual_page).hostname if manual_page else None,
        sentence=error.sentence if error else None,
        code=error.code if error else None,
    )
