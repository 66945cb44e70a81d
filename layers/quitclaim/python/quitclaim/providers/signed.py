"""
The one revocation that no template expresses: Withings wants a nonce first, and both requests signed.

A nonce is asked for with a signature over action, client id and time; the revocation names the user, and is signed over
action, client id and nonce (https://developer.withings.com, "Sign your requests").
"""

import hashlib
import hmac
import time

import httpx

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import RevokeAnswer, RevokeOutcome
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.providers.answers import judge_revoke, member, read_body
from quitclaim.providers.requests import form_request, plain_headers
from quitclaim.providers.spec import ProviderSpec
from quitclaim.providers.transport import NoAnswer, OutgoingRequest, RawAnswer, send_async

NONCE_PATH = "/v2/signature"


async def revoke_with_nonce(
    http: httpx.AsyncClient,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret,
    material: Material,
    timeout_ms: int,
    now_s: int,
) -> RevokeAnswer:
    """
    Two requests inside one budget. Only the second can revoke anything: whatever becomes of the first, the item is
    tried again.
    """
    ends = time.monotonic() + timeout_ms / 1000
    told = await send_async(http, nonce_request(spec, client, secret, now_s), timeout_ms)
    nonce = _nonce(told, spec)
    if nonce is None:
        after = told.retry_after_ms if isinstance(told, RawAnswer) else None
        return RevokeAnswer(RevokeOutcome.DEFERRED, "no_nonce", after)
    request = revoke_request(spec, client, secret, material, nonce)
    return judge_revoke(spec, await send_async(http, request, int((ends - time.monotonic()) * 1000)))


def nonce_request(spec: ProviderSpec, client: ProviderClient, secret: Secret, now_s: int) -> OutgoingRequest:
    """Asks for a nonce, at the host of the revocation."""
    fields = {"action": "getnonce", "client_id": client.client_id, "timestamp": str(now_s)}
    fields["signature"] = _signature(secret, *fields.values())
    return form_request("POST", _url(spec).rpartition("/v2/")[0] + NONCE_PATH, plain_headers(), fields)


def revoke_request(
    spec: ProviderSpec, client: ProviderClient, secret: Secret, material: Material, nonce: str
) -> OutgoingRequest:
    """Revokes everything of the user that *material* names."""
    fields = {"action": "revoke", "client_id": client.client_id, "nonce": nonce}
    fields["signature"] = _signature(secret, *fields.values())
    fields["userid"] = material.token.reveal()
    return form_request("POST", _url(spec), plain_headers(), fields)


def _url(spec: ProviderSpec) -> str:
    if spec.revocation.request is None:
        raise ValueError(f"{spec.id} has no revocation request")
    return spec.revocation.request.url


def _nonce(told: RawAnswer | NoAnswer, spec: ProviderSpec) -> str | None:
    if isinstance(told, NoAnswer) or told.status != 200 or not told.complete:
        return None
    body = read_body(told, spec.token.errors.at)
    nonce = member(body.members, "body.nonce")
    return nonce if isinstance(nonce, str) and nonce and not body.has_error else None


def _signature(secret: Secret, *parts: str) -> str:
    return hmac.new(secret.reveal().encode(), ",".join(parts).encode(), hashlib.sha256).hexdigest()
