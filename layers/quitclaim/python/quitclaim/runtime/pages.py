"""
The pages a browser sees when no app takes it back: static text, nothing from the request in them, no script, readable
on a phone.
"""

import base64
import hashlib
from html import escape
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:32rem;margin:12vh auto;padding:0
1.25rem} h1{font-size:1.4rem}code{display:block;font:600 1.6rem/1.2
ui-monospace,monospace;letter-spacing:.08em;padding:.75rem 0}
""".strip()

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


def page(title: str, *paragraphs: str, code: str | None = None) -> str:
    """A page of ours. *code* is the confirmation code, where the owner has to take it to the app by hand."""
    body = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    shown = f'<p>Your confirmation code:</p><code aria-label="Confirmation code">{escape(code)}</code>' if code else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}{shown}</main></body></html>"
    )


def awaiting(code: str) -> str:
    """The grant is held until its owner confirms it in the app."""
    return page(
        "One more step",
        "The provider granted access. Go back to the app and type this code there within ten minutes to finish.",
        "If you did not start this in the app yourself, close this page: without the code the access is revoked.",
        code=code,
    )


def connected() -> str:
    """Done."""
    return page("Connected", "The connection is ready. You can close this page and go back to the app.")


def failed(sentence: str, code: str) -> str:
    """It did not work; *sentence* and *code* are ours, never the provider's."""
    return page("Not connected", sentence, f"Reference for support: {code}")
