"""
OAuth 2.0 for any provider of the catalogue: the requests it takes, and their sending.

Building a request and judging its answer (`answers.py`) are pure; the sending between them is one call (`transport.py`)
that never repeats itself and never follows a redirect.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from urllib.parse import quote, quote_plus, urlencode

import httpx

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import IdentityAnswer, IdentityOutcome, RevokeAnswer, TokenAnswer
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.providers.answers import judge_identity, judge_revoke, judge_token
from quitclaim.providers.spec import ClientAuth, ProviderSpec
from quitclaim.providers.transport import USER_AGENT, OutgoingRequest, send, send_async

# --- authorize ----------------------------------------------------------------------------------------------------


def s256_challenge(verifier: Secret) -> str:
    """The PKCE challenge of *verifier* (RFC 7636 section 4.2). There is no other method here."""
    return _unpadded(hashlib.sha256(verifier.reveal().encode("ascii")).digest())


def authorize_url(spec: ProviderSpec, client: ProviderClient, asked: AuthorizationAsked) -> str:
    """
    Where the browser is sent (RFC 6749 section 4.1.1, RFC 7636 section 4.3).

    The URL holds the state: it belongs into a Location header and nowhere else. A provider of which it is not known
    whether it takes PKCE gets the challenge; it must ignore what it does not know (RFC 6749 section 3.1).
    """
    return f"{spec.authorize.url}?{urlencode(authorization_params(spec, client, asked), quote_via=quote)}"


def authorization_params(spec: ProviderSpec, client: ProviderClient, asked: AuthorizationAsked) -> dict[str, str]:
    """The parameters of an authorization request; the catalogue's own never replace ours."""
    params = {
        **dict(spec.authorize.params),
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": asked.redirect_uri,
        "state": asked.state.reveal(),
    }
    if asked.scopes:
        # As the client lists them; a few providers show them in this order.
        usual = [scope for scope in client.scopes if scope in asked.scopes]
        params["scope"] = spec.authorize.scope_separator.join([*usual, *sorted(asked.scopes - set(usual))])
    if asked.challenge is not None:
        params |= {"code_challenge": asked.challenge, "code_challenge_method": "S256"}
    if asked.nonce is not None:
        params["nonce"] = asked.nonce.reveal()
    if asked.hint is not None:
        params["login_hint"] = asked.hint.reveal()
    if spec.authorize.response_mode != "query":
        params["response_mode"] = spec.authorize.response_mode
    return params


def check_iss(spec: ProviderSpec, iss_values: Sequence[str]) -> bool:
    """
    Whether a callback with these `iss` values may go on (RFC 9207 section 2.4): compared as it stands, before anything
    is sent.

    Announced: exactly one, and equal. Otherwise it may be missing, but not stand twice, and where the issuer is known
    it must be that. Where nothing is known of it, the provider's own callback path is the defence against mix-up.
    """
    if len(iss_values) != 1:
        return not iss_values and spec.authorize.issuer_announced != "yes"
    return spec.authorize.issuer is None or iss_values[0] == spec.authorize.issuer


# --- exchange and refresh -----------------------------------------------------------------------------------------


def build_exchange(
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    code: Secret,
    verifier: Secret | None,
    redirect_uri: str,
) -> OutgoingRequest:
    """
    The token request for a code (RFC 6749 section 4.1.3). A verifier is sent whenever its challenge was, whatever the
    catalogue says by now (RB-52).
    """
    fields = {"grant_type": "authorization_code", "code": code.reveal(), "redirect_uri": redirect_uri}
    if verifier is not None:
        fields["code_verifier"] = verifier.reveal()
    return _token_request(spec.token.url, spec, client, secret, fields)


def exchange(
    http: httpx.Client,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    code: Secret,
    verifier: Secret | None,
    redirect_uri: str,
    timeout_ms: int,
) -> TokenAnswer:
    """One request, at most *timeout_ms* long. A code is sent once: sent again, the provider may end what it issued."""
    request = build_exchange(spec, client, secret, code, verifier, redirect_uri)
    return judge_token(spec, send(http, request, timeout_ms), "exchange")


def build_refresh(
    spec: ProviderSpec, client: ProviderClient, secret: Secret | None, refresh_token: Secret
) -> OutgoingRequest:
    """The token request for a refresh token (RFC 6749 section 6), for the scopes that were granted."""
    fields = {"grant_type": "refresh_token", "refresh_token": refresh_token.reveal()}
    return _token_request(spec.refresh.url, spec, client, secret, fields)


def refresh(
    http: httpx.Client,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    refresh_token: Secret,
    timeout_ms: int,
) -> TokenAnswer:
    """One request, at most *timeout_ms* long."""
    request = build_refresh(spec, client, secret, refresh_token)
    sent = frozenset({refresh_token.reveal()})
    return judge_token(spec, send(http, request, timeout_ms), "refresh", sent)


# --- identity -----------------------------------------------------------------------------------------------------


def build_identity(spec: ProviderSpec, access_token: Secret) -> OutgoingRequest:
    """The request that tells whose grant it is. Only for a spec with an identity URL."""
    if spec.identity.url is None:
        raise ValueError(f"{spec.id} has no identity request")
    bearer = {"Authorization": f"Bearer {access_token.reveal()}"}
    return OutgoingRequest("GET", spec.identity.url, {**_headers(), **bearer})


def identity(http: httpx.Client, spec: ProviderSpec, access_token: Secret, timeout_ms: int) -> IdentityAnswer:
    """One request, at most *timeout_ms* long; none where the catalogue knows no way to ask."""
    if spec.identity.url is None:
        return IdentityAnswer(IdentityOutcome.UNREADABLE, reason="no_identity_request")
    return judge_identity(spec, send(http, build_identity(spec, access_token), timeout_ms))


# --- revoke -------------------------------------------------------------------------------------------------------


def build_revoke(
    spec: ProviderSpec, client: ProviderClient, secret: Secret | None, material: Material
) -> OutgoingRequest:
    """The revocation request for one token (RFC 7009 section 2.1). Only for a spec with a revocation."""
    told = spec.revocation
    if not told.is_supported:
        raise ValueError(f"{spec.id} has no revocation request")
    fields = {"token": material.token.reveal()}
    if told.token_type_hint:
        fields["token_type_hint"] = material.kind
    headers = _authenticate(fields, told.client_auth, client, secret)
    return _form("POST", told.url, headers, fields)


async def revoke(
    http: httpx.AsyncClient,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    material: Material,
    timeout_ms: int,
) -> RevokeAnswer:
    """One request, at most *timeout_ms* long."""
    request = build_revoke(spec, client, secret, material)
    return judge_revoke(spec, await send_async(http, request, timeout_ms))


# --- the client's authentication and the body ---------------------------------------------------------------------


def _token_request(
    url: str, spec: ProviderSpec, client: ProviderClient, secret: Secret | None, fields: dict[str, str]
) -> OutgoingRequest:
    headers = _authenticate(fields, spec.token.client_auth, client, secret)
    if spec.token.body == "json":
        return OutgoingRequest(
            "POST", url, {**headers, "Content-Type": "application/json"}, json.dumps(fields).encode()
        )
    return _form("POST", url, headers, fields)


def _authenticate(
    fields: dict[str, str], how: ClientAuth, client: ProviderClient, secret: Secret | None
) -> dict[str, str]:
    """The headers of a request by *client*; what the body needs is put into *fields* (RFC 6749 section 2.3.1)."""
    headers = _headers()
    if how == "none":
        if "grant_type" in fields:  # a public client still says who it is (RFC 6749 section 4.1.3)
            fields["client_id"] = client.client_id
        return headers
    if how == "id_only":
        fields["client_id"] = client.client_id
        return headers
    if secret is None:
        raise ValueError(f"client {client.name} has no secret")
    if how == "post":
        fields |= {"client_id": client.client_id, "client_secret": secret.reveal()}
    else:
        pair = f"{quote_plus(client.client_id)}:{quote_plus(secret.reveal())}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return headers


def _headers() -> dict[str, str]:
    return {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}


def _form(method: str, url: str, headers: dict[str, str], fields: dict[str, str]) -> OutgoingRequest:
    body = urlencode(fields).encode()
    return OutgoingRequest(method, url, {**headers, "Content-Type": "application/x-www-form-urlencoded"}, body)


def _unpadded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
