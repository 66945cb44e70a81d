"""
OAuth 2.0 for any provider of the catalogue: the requests it takes, and their sending.

Building a request and judging its answer (`answers.py`) are pure; the sending between them is one call (`transport.py`)
that never repeats itself and never follows a redirect.
"""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote, quote_plus, urlencode

import httpx

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import (
    IdentityAnswer,
    IdentityOutcome,
    Outcome,
    PushAnswer,
    RevokeAnswer,
    RevokeOutcome,
    TokenAnswer,
)
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.providers.answers import judge_identity, judge_push, judge_revoke, judge_token
from quitclaim.providers.assertion import ASSERTION_TYPE
from quitclaim.providers.placeholders import REDIRECT_URI, PlaceholderRefusedError, Values, fill
from quitclaim.providers.refusals import NOTHING_SENT
from quitclaim.providers.requests import form_request, json_request, plain_headers, with_query
from quitclaim.providers.signed import revoke_with_nonce
from quitclaim.providers.spec import ClientAuth, ProviderSpec, RequestSpec
from quitclaim.providers.transport import OutgoingRequest, send, send_async

NO_VALUES: Final[Values] = {}
UNADDRESSED: Final = TokenAnswer(Outcome.NOT_SENT, "unaddressed", config_fault=True)
"""A placeholder of the address has no value that the catalogue allows: nothing left."""


# --- authorize ----------------------------------------------------------------------------------------------------


def authorize_url(
    spec: ProviderSpec, client: ProviderClient, asked: AuthorizationAsked, variables: Values = NO_VALUES
) -> str:
    """
    Where the browser is sent (RFC 6749 section 4.1.1, RFC 7636 section 4.3).

    The URL holds the state: it belongs into a Location header and nowhere else. A provider of which it is not known
    whether it takes PKCE gets the challenge; it must ignore what it does not know (RFC 6749 section 3.1).
    """
    url = _url(spec, spec.authorize.url, variables)
    return f"{url}?{urlencode(authorization_params(spec, client, asked), quote_via=quote)}"


def authorization_params(spec: ProviderSpec, client: ProviderClient, asked: AuthorizationAsked) -> dict[str, str]:
    """The parameters of an authorization request; the catalogue's own never replace ours."""
    params = {
        **dict(spec.authorize.params),
        "response_type": "code",
        spec.authorize.client_id_param: client.client_id,
        "redirect_uri": asked.redirect_uri,
        "state": asked.state.reveal(),
        **_scopes(spec, client, asked.scopes),
        **_resource(spec),
    }
    if asked.challenge is not None:
        params |= {"code_challenge": asked.challenge, "code_challenge_method": "S256"}
    if asked.nonce is not None:
        params["nonce"] = asked.nonce.reveal()
    if asked.hint is not None:
        params["login_hint"] = asked.hint.reveal()
    if spec.authorize.response_mode != "query":
        params["response_mode"] = spec.authorize.response_mode
    return params


def build_push(
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    asked: AuthorizationAsked,
    variables: Values = NO_VALUES,
) -> OutgoingRequest:
    """The same request from us to the provider (RFC 9126 section 2.1). Only for a spec that takes it so."""
    if spec.authorize.par_url is None:
        raise ValueError(f"{spec.id} takes no pushed requests")
    fields = authorization_params(spec, client, asked)
    headers = _authenticate(fields, spec.token.client_auth, spec, client, secret)
    return form_request("POST", _url(spec, spec.authorize.par_url, variables), headers, fields)


def push(
    http: httpx.Client,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    asked: AuthorizationAsked,
    timeout_ms: int,
    variables: Values = NO_VALUES,
) -> PushAnswer:
    """One request, at most *timeout_ms* long."""
    return judge_push(send(http, build_push(spec, client, secret, asked, variables), timeout_ms))


def pushed_url(spec: ProviderSpec, client: ProviderClient, request_uri: Secret, variables: Values = NO_VALUES) -> str:
    """Where the browser is sent once the request lies at the provider (RFC 9126 section 4): its URL holds no state."""
    params = {spec.authorize.client_id_param: client.client_id, "request_uri": request_uri.reveal()}
    return f"{_url(spec, spec.authorize.url, variables)}?{urlencode(params, quote_via=quote)}"


def assertion_audience(spec: ProviderSpec, variables: Values = NO_VALUES) -> str:
    """Whom an assertion of the client is for: one and the same at every endpoint (RFC 7523 section 3, RFC 9126)."""
    issuer = spec.oidc.issuer if spec.oidc is not None else spec.authorize.issuer
    if spec.token.assertion_audience == "issuer" and issuer is not None:
        return issuer
    return _url(spec, spec.token.url, variables)


def _scopes(spec: ProviderSpec, client: ProviderClient, scopes: frozenset[str]) -> dict[str, str]:
    """
    The scopes as the provider takes them: in one parameter or, by their prefix, in several (Slack); as the client lists
    them, for a few providers show them in this order.
    """
    told = spec.authorize
    usual = [scope for scope in client.scopes if scope in scopes]
    by_param: dict[str, list[str]] = {}
    for scope in [*usual, *sorted(scopes - set(usual))]:
        prefix, param = next(
            (each for each in told.scope_prefixes if scope.startswith(each[0])), ("", told.scope_param)
        )
        if param is not None:
            by_param.setdefault(param, []).append(scope.removeprefix(prefix))
    return {param: told.scope_separator.join(names) for param, names in by_param.items()}


def _resource(spec: ProviderSpec) -> dict[str, str]:
    return {} if spec.authorize.resource is None else {"resource": spec.authorize.resource}


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
    variables: Values = NO_VALUES,
) -> OutgoingRequest:
    """
    The token request for a code (RFC 6749 section 4.1.3). A verifier is sent whenever its challenge was, whatever the
    catalogue says by now (RB-52).
    """
    fields = {
        **dict(spec.token.params),
        "grant_type": "authorization_code",
        "code": code.reveal(),
        "redirect_uri": redirect_uri,
        **_resource(spec),
    }
    if verifier is not None:
        fields["code_verifier"] = verifier.reveal()
    return _token_request(_url(spec, spec.token.url, variables), spec, client, secret, fields)


def exchange(
    http: httpx.Client,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    code: Secret,
    verifier: Secret | None,
    redirect_uri: str,
    timeout_ms: int,
    variables: Values = NO_VALUES,
) -> TokenAnswer:
    """
    One request, at most *timeout_ms* long. A code is sent once: sent again, the provider may end what it issued.

    Where the provider wants a second request, for the token that lasts, it has what is left of the time; without its
    answer the first token is the grant.
    """
    ends = time.monotonic() + timeout_ms / 1000
    try:
        request = build_exchange(spec, client, secret, code, verifier, redirect_uri, variables)
    except PlaceholderRefusedError:
        return UNADDRESSED
    if spec.refresh.sends_redirect_uri:
        variables = {**variables, REDIRECT_URI: redirect_uri}
    answer = judge_token(spec, send(http, request, timeout_ms), "exchange", variables=variables)
    if answer.grant is None or spec.token.upgrade is None:
        return answer
    further = build_upgrade(spec, secret, answer.grant.access_token)
    upgraded = judge_token(spec, send(http, further, int((ends - time.monotonic()) * 1000)), "refresh").grant
    if upgraded is None:
        return answer
    lasting = replace(
        answer.grant,
        access_token=upgraded.access_token,
        refresh_token=upgraded.refresh_token,
        expires_in_s=upgraded.expires_in_s,
    )
    return replace(answer, grant=lasting)


def build_upgrade(spec: ProviderSpec, secret: Secret | None, access_token: Secret) -> OutgoingRequest:
    """The request for the token that lasts. Only for a spec that has one."""
    told = spec.token.upgrade
    if told is None:
        raise ValueError(f"{spec.id} has no such request")
    fields = {"grant_type": told.grant_type, told.token_param: access_token.reveal()}
    if secret is not None:
        fields["client_secret"] = secret.reveal()
    if told.method == "GET":
        return OutgoingRequest("GET", with_query(told.url, fields), plain_headers())
    return form_request("POST", told.url, plain_headers(), fields)


def build_refresh(
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    refresh_token: Secret,
    variables: Values = NO_VALUES,
) -> OutgoingRequest:
    """
    The token request for a refresh token (RFC 6749 section 6), for the scopes that were granted.

    Where the access token renews itself it is sent in the refresh token's place; only such a provider takes a GET. The
    redirect URI is that of the exchange, where the provider wants it again (GitLab).
    """
    told = spec.refresh
    fields = {
        **dict(told.params),
        "grant_type": told.grant_type,
        told.token_param: refresh_token.reveal(),
    }
    if told.sends_redirect_uri and REDIRECT_URI in variables:
        fields["redirect_uri"] = variables[REDIRECT_URI]
    url = _url(spec, told.url, variables)
    if told.method == "POST":
        return _token_request(url, spec, client, secret, fields)
    headers = (
        _authenticate(fields, spec.token.client_auth, spec, client, secret) if told.sends_client else plain_headers()
    )
    return OutgoingRequest("GET", with_query(url, fields), headers)


def refresh(
    http: httpx.Client,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    refresh_token: Secret,
    timeout_ms: int,
    variables: Values = NO_VALUES,
) -> TokenAnswer:
    """One request, at most *timeout_ms* long."""
    try:
        request = build_refresh(spec, client, secret, refresh_token, variables)
    except PlaceholderRefusedError:
        return UNADDRESSED
    sent = frozenset({refresh_token.reveal()})
    return judge_token(spec, send(http, request, timeout_ms), "refresh", sent, variables)


async def renew(
    http: httpx.AsyncClient,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    refresh_token: Secret,
    timeout_ms: int,
    variables: Values = NO_VALUES,
) -> TokenAnswer:
    """As `refresh`, among the revocations in flight."""
    try:
        request = build_refresh(spec, client, secret, refresh_token, variables)
    except PlaceholderRefusedError:
        return UNADDRESSED
    sent = frozenset({refresh_token.reveal()})
    return judge_token(spec, await send_async(http, request, timeout_ms), "refresh", sent, variables)


# --- identity -----------------------------------------------------------------------------------------------------


def build_identity(spec: ProviderSpec, access_token: Secret, variables: Values = NO_VALUES) -> OutgoingRequest:
    """The request that tells whose grant it is. Only for a spec with an identity request."""
    if spec.identity.request is None:
        raise ValueError(f"{spec.id} has no identity request")
    return templated(spec, spec.identity.request, {"token": access_token.reveal()}, variables)


def identity(
    http: httpx.Client, spec: ProviderSpec, access_token: Secret, timeout_ms: int, variables: Values = NO_VALUES
) -> IdentityAnswer:
    """One request, at most *timeout_ms* long; none where the catalogue knows no way to ask."""
    if spec.identity.request is None:
        return IdentityAnswer(IdentityOutcome.UNREADABLE, reason="no_identity_request")
    try:
        request = build_identity(spec, access_token, variables)
    except PlaceholderRefusedError:
        return IdentityAnswer(IdentityOutcome.UNREADABLE, reason="unaddressed")
    return judge_identity(spec, send(http, request, timeout_ms))


def build_keys(url: str) -> OutgoingRequest:
    """The request for an issuer's published keys (RFC 7517)."""
    return OutgoingRequest("GET", url, plain_headers())


# --- revoke -------------------------------------------------------------------------------------------------------


def build_revoke(
    spec: ProviderSpec, client: ProviderClient, secret: Secret | None, material: Material
) -> OutgoingRequest:
    """The revocation request for one token, as the entry's template says (RFC 7009 section 2.1 in the usual shape)."""
    told = spec.revocation
    if told.request is None:
        raise ValueError(f"{spec.id} has no revocation request")
    kind = "account_id" if material.kind == "account_id" else "token"
    reserved = {kind: material.token.reveal(), "token_kind": material.kind, "client_id": client.client_id}
    if secret is not None:
        reserved["client_secret"] = secret.reveal()
    hint = {"token_type_hint": material.kind} if told.token_type_hint else {}
    return templated(spec, told.request, reserved, material.variables, hint, client, secret)


async def revoke(
    http: httpx.AsyncClient,
    spec: ProviderSpec,
    client: ProviderClient,
    secret: Secret | None,
    material: Material,
    timeout_ms: int,
    now_s: Callable[[], float],
) -> RevokeAnswer:
    """
    One request, at most *timeout_ms* long.

    Before it, where its address holds the account and the queue does not know it, one that asks for that with the token
    that is to die; and at Withings, one for a nonce. After it, where the answer tells nothing and the entry has no
    refresh that could, one that asks whether the token still lives. None of these can revoke anything.
    """
    if spec.revocation.adapter == "withings" and secret is not None:
        return await revoke_with_nonce(http, spec, client, secret, material, timeout_ms, int(now_s()))
    ends = time.monotonic() + timeout_ms / 1000
    asked = [each.name for each in spec.placeholders if each.source == "account"]
    try:
        if asked and spec.identity.request is not None and not material.variables.keys() >= set(asked):
            told = judge_identity(
                spec,
                await send_async(http, build_identity(spec, material.token, material.variables), timeout_ms),
            )
            if told.account_id is None:
                is_refused = told.outcome is IdentityOutcome.REFUSED
                dead = RevokeOutcome.ALREADY_GONE if spec.identity_proves_death else RevokeOutcome.AMBIGUOUS
                return RevokeAnswer(dead if is_refused else RevokeOutcome.DEFERRED, "no_account", told.retry_after_ms)
            material = replace(material, variables={**material.variables, **dict.fromkeys(asked, told.account_id)})
        request = build_revoke(spec, client, secret, material)
    except PlaceholderRefusedError:
        return RevokeAnswer(RevokeOutcome.PERMANENT_ERROR, NOTHING_SENT)
    answer = judge_revoke(spec, await send_async(http, request, int((ends - time.monotonic()) * 1000)))
    left = int((ends - time.monotonic()) * 1000)
    if answer.outcome is not RevokeOutcome.AMBIGUOUS or not spec.identity_proves_death or left <= 0:
        return answer
    probe = build_identity(spec, material.token, material.variables)
    return _as_probed(answer, judge_identity(spec, await send_async(http, probe, left)))


def _as_probed(answer: RevokeAnswer, told: IdentityAnswer) -> RevokeAnswer:
    """
    What a revocation's answer means once the provider was asked whether it still takes the token. A token that lives
    was refused for another reason, like a mistyped client; where nobody says, nothing is known.
    """
    if told.outcome is IdentityOutcome.REFUSED:
        return RevokeAnswer(RevokeOutcome.ALREADY_GONE, answer.reason)
    if told.outcome is IdentityOutcome.READ:
        return RevokeAnswer(RevokeOutcome.PERMANENT_ERROR, "still_alive", answer.retry_after_ms)
    return answer


# --- a request from its template ----------------------------------------------------------------------------------


def _url(spec: ProviderSpec, template: str, variables: Values, reserved: Values = NO_VALUES) -> str:
    return fill(template, spec.placeholders, variables, reserved, encode=True)


def templated(
    spec: ProviderSpec,
    told: RequestSpec,
    reserved: Values,
    variables: Values,
    more: Mapping[str, str] = NO_VALUES,
    client: ProviderClient | None = None,
    secret: Secret | None = None,
) -> OutgoingRequest:
    """*told* with its values put in. Raises `PlaceholderRefusedError` where one is missing or not allowed."""
    fields = {
        name: fill(value, spec.placeholders, variables, reserved, encode=False) for name, value in told.fields
    } | dict(more)
    headers = plain_headers() if client is None else _authenticate(fields, told.client_auth, spec, client, secret)
    for name, value in told.headers:
        headers[name] = fill(value, spec.placeholders, variables, reserved, encode=False)
    url = _url(spec, told.url, variables, reserved)
    match told.body:
        case "form":
            return form_request(told.method, url, headers, fields)
        case "json":
            return json_request(told.method, url, headers, fields)
        case "query":
            return OutgoingRequest(told.method, with_query(url, fields), headers)
        case _:
            return OutgoingRequest(told.method, url, headers)


# --- the client's authentication and the body ---------------------------------------------------------------------


def _token_request(
    url: str, spec: ProviderSpec, client: ProviderClient, secret: Secret | None, fields: dict[str, str]
) -> OutgoingRequest:
    headers = _authenticate(fields, spec.token.client_auth, spec, client, secret)
    return (json_request if spec.token.body == "json" else form_request)("POST", url, headers, fields)


def _authenticate(
    fields: dict[str, str], how: ClientAuth, spec: ProviderSpec, client: ProviderClient, secret: Secret | None
) -> dict[str, str]:
    """The headers of a request by *client*; what the body needs is put into *fields* (RFC 6749 section 2.3.1)."""
    headers, name = plain_headers(), spec.authorize.client_id_param
    if how == "none":
        if "grant_type" in fields:  # a public client still says who it is (RFC 6749 section 4.1.3)
            fields[name] = client.client_id
        return headers
    if how == "id_only":
        fields[name] = client.client_id
        return headers
    if secret is None:
        raise ValueError(f"client {client.name} has no secret")
    if how == "post":
        fields |= {name: client.client_id, "client_secret": secret.reveal()}
    elif (
        how == "private_key_jwt"
    ):  # the secret is the assertion that was signed for this request (RFC 7523 section 2.2)
        fields |= {name: client.client_id, "client_assertion_type": ASSERTION_TYPE, "client_assertion": secret.reveal()}
    elif how == "bearer_secret":
        headers["Authorization"] = f"Bearer {secret.reveal()}"
    elif how == "basic":
        encoded = quote_plus if spec.token.basic_encoding == "form" else str
        pair = f"{encoded(client.client_id)}:{encoded(secret.reveal())}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        raise ValueError(f"client {client.name} cannot authenticate by {how}")
    return headers
