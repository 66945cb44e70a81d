"""What goes out with the browser and what comes back with it, and what binds the one to the other."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quitclaim.domain.asked import VisitSecrets
from quitclaim.domain.connect import Authorization
from quitclaim.domain.errors import SealBrokenError, StateInvalidError, StateReplayedError
from quitclaim.domain.secret import Secret
from quitclaim.flows.connect.connecting import Connecting
from quitclaim.ports import Client


@dataclass(frozen=True)
class Visit:
    """Where the browser goes, and the cookie that binds the callback to it."""

    url: str
    cookie: str
    binding: Secret
    cross_site_post: bool


@dataclass(frozen=True)
class Callback:
    """
    What came back through the browser, read from the raw query or form; repeated parameters are refused before.

    *query*: everything, for what a provider says here beside that: granted scopes (Strava), the grant's region (Zoho).
    """

    provider: str
    state: Secret | None
    code: Secret | None
    error: str | None
    iss: tuple[str, ...]
    cookies: Mapping[str, str]
    query: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class CallbackOutcome:
    """
    What the browser is told: `ready`, `awaiting_confirmation` with the *confirm_code*, or `in_progress` where another
    delivery of the same callback is still at work.
    """

    connection_id: str
    provider: str
    status: str
    return_to: str | None
    confirm_code: Secret | None = None


def redirect_uri(base_url: str, client: Client) -> str:
    """One callback path per provider (S-4)."""
    return f"{base_url}/callback/{client.provider}"


def challenge_of(verifier: Secret) -> str:
    """RFC 7636 section 4.2, S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.reveal().encode()).digest()).rstrip(b"=").decode()


def cookie_name(state_digest: str) -> str:
    """A cookie for each authorization, so that two links in one browser do not disturb each other."""
    return f"__Host-qc-{state_digest[:6]}"


def opened(authorization: Authorization, state_digest: str, world: Connecting) -> VisitSecrets:
    """What the visit knew."""
    if authorization.sealed is None:
        raise StateReplayedError
    try:
        return world.vault.open_authorization(
            state_digest, authorization.ref, authorization.generation, authorization.sealed
        )
    except SealBrokenError as broken:
        raise StateInvalidError from broken
