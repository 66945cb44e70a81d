"""One client of the app at one provider, as the flows see it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Literal

import httpx

from quitclaim.domain.asked import AuthorizationAsked
from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.errors import (
    CallbackParameterError,
    ClientConfigError,
    InvalidBodyError,
    KeyUnavailableError,
    ProviderBusyError,
)
from quitclaim.domain.facts import ProviderFacts
from quitclaim.domain.limits import PUSH_CALL_MS
from quitclaim.domain.outcomes import IdentityAnswer, IdentityOutcome, Outcome, PushAnswer, RevokeAnswer, TokenAnswer
from quitclaim.domain.revocations import NO_VARIABLES, Material
from quitclaim.domain.secret import Secret
from quitclaim.providers import oauth2
from quitclaim.providers.assertion import AssertionKey, check_key, client_assertion
from quitclaim.providers.broker import HttpBroker
from quitclaim.providers.id_token import Expected, KeySets, verify
from quitclaim.providers.placeholders import PlaceholderRefusedError, at_start, fill, in_callback, in_import, of_client
from quitclaim.providers.refusals import Refusals
from quitclaim.providers.spec import ProviderSpec
from quitclaim.providers.transport import async_http, send, sync_http

type SecretSource = Callable[[str], Secret]
"""Where a secret is kept (`ssm:…`, `secretsmanager:…`) to the secret; raises `ClientConfigError`."""


def no_clock() -> float:
    """In place of a clock where nobody looks at one."""
    raise RuntimeError("this provider needs the time, and no clock was given")


def no_ids() -> str:
    """In place of chance where nobody needs any."""
    raise RuntimeError("this provider needs fresh ids, and no source was given")


class ProviderHttp:
    """The HTTP clients of one function instance, made when first needed. Tests give the transports."""

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        async_transport: httpx.AsyncBaseTransport | None = None,
        now_s: Callable[[], float] = no_clock,
        new_id: Callable[[], str] = no_ids,
        refusals: Refusals | None = None,
    ) -> None:
        self._transport = transport
        self._async_transport = async_transport
        self.now_s = now_s
        """What a provider says of time, and is told of it, is in real time, never in that of a moved clock."""
        self.new_id = new_id
        self.refusals = refusals or Refusals()
        self._open: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    @cached_property
    def sync(self) -> httpx.Client:
        """For exchange, refresh and identity."""
        return sync_http(self._transport)

    @cached_property
    def key_sets(self) -> KeySets:
        """Keys of the issuers of ID tokens."""
        return KeySets(lambda url, timeout_ms: send(self.sync, oauth2.build_keys(url), timeout_ms), self.now_s)

    @asynccontextmanager
    async def in_flight(self, limit: int = 100) -> AsyncIterator[None]:
        """While it is open, the revocations of this event loop share one pool of connections."""
        async with async_http(self._async_transport, in_flight=limit) as http:
            self._open = (asyncio.get_running_loop(), http)
            try:
                yield
            finally:
                self._open = None

    @asynccontextmanager
    async def revoking(self) -> AsyncIterator[httpx.AsyncClient]:
        """For one revocation: the shared client if one is open in this loop, else one of its own."""
        if self._open is not None and self._open[0] is asyncio.get_running_loop():
            yield self._open[1]
        else:
            async with async_http(self._async_transport, in_flight=1) as http:
                yield http


class OAuthClient:
    """`ports.Client` for every provider of the catalogue."""

    def __init__(
        self, settings: ProviderClient, spec: ProviderSpec, secret_source: SecretSource, http: ProviderHttp
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._secret_source = secret_source
        self._http = http

    @property
    def name(self) -> str:
        """Our name of the client."""
        return self._settings.name

    @property
    def provider(self) -> str:
        """Catalogue id of the provider."""
        return self._spec.id

    @property
    def facts(self) -> ProviderFacts:
        """What the catalogue says of the provider."""
        return self._spec.facts

    @property
    def confirmation(self) -> Literal["owner", "none"]:
        """Whether a returned grant waits for its owner."""
        return self._settings.confirmation

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that an authorization asks for, unless its start names others."""
        return frozenset(self._settings.scopes)

    @property
    def optional_scopes(self) -> frozenset[str]:
        """What a start may ask for beyond them."""
        return self._settings.optional_scopes

    @property
    def required_scopes(self) -> frozenset[str] | None:
        """Without which a grant is refused; None: without any that was asked for."""
        return self._settings.required_scopes

    @property
    def purge_on_loss(self) -> bool:
        """Whether a lost grant purges like a disconnect."""
        return self._settings.purge_on_loss

    @property
    def broker(self) -> HttpBroker | None:
        """The broker, where the catalogue says that this is one."""
        told = self._spec.broker
        if told is None:
            return None
        known = self._known(NO_VARIABLES)
        return HttpBroker(self._spec, told, self._settings, self._secret(known), self._http.sync, known)

    def prepare(self) -> None:
        """
        Have the client's secret at hand. Raises `ClientConfigError` where it is missing, blank or cannot be read, and
        while the client rests because the provider refused it.
        """
        self._must_not_rest()
        secret = self._kept_secret()
        if secret is not None and self._signs:
            check_key(AssertionKey(secret, self._settings.key_id))
        self._known(NO_VARIABLES)

    def at_start(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """What the app names for the provider's addresses when it starts. Raises `InvalidBodyError`."""
        try:
            return at_start(self._spec.placeholders, given)
        except PlaceholderRefusedError as refused:
            field = f"variables.{refused.name}"
            raise InvalidBodyError(f"{field}: {refused.why}", field=field) from None

    def in_import(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """What the app names for the provider's addresses with a grant that it holds. Raises `InvalidBodyError`."""
        try:
            return in_import(self._spec.placeholders, given, repeats_redirect=self._spec.refresh.sends_redirect_uri)
        except PlaceholderRefusedError as refused:
            field = f"variables.{refused.name}"
            raise InvalidBodyError(f"{field}: {refused.why}", field=field) from None

    def in_callback(self, known: Mapping[str, str], query: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
        """What the callback fills of them. Raises `CallbackParameterError`."""
        try:
            return in_callback(self._spec.placeholders, known, query)
        except PlaceholderRefusedError as refused:
            raise CallbackParameterError(field=refused.name) from None

    def scopes_in_callback(self, query: Mapping[str, Sequence[str]]) -> frozenset[str] | None:
        """What was granted, where this provider says so in its callback."""
        name = self._spec.authorize.callback_scope_param
        found = query.get(name, ()) if name is not None else ()
        return frozenset(re.split(r"[\s,]+", found[0].strip())) if len(found) == 1 and found[0].strip() else None

    def authorize_url(self, asked: AuthorizationAsked) -> str:
        """
        Where the browser is sent; a provider that takes pushed requests is told first, by one request.

        Raises `ClientConfigError` where an address lacks a value or the provider refuses the request, and
        `ProviderBusyError` where it cannot be had.
        """
        known = self._known(asked.variables)
        try:
            if self._spec.authorize.par != "yes":
                return oauth2.authorize_url(self._spec, self._settings, asked, known)
            self._must_not_rest()
            secret = self._secret(known)
            used = self._secret_number
            told = self._heard(
                oauth2.push(self._http.sync, self._spec, self._settings, secret, asked, PUSH_CALL_MS, known), used
            )
            if told.request_uri is not None:
                return oauth2.pushed_url(self._spec, self._settings, told.request_uri, known)
        except PlaceholderRefusedError as refused:
            raise ClientConfigError(client=self.name, reason=str(refused)) from None
        if told.config_fault:
            raise ClientConfigError(client=self.name, reason=told.reason)
        raise ProviderBusyError(provider=self.provider, retry_after_ms=told.retry_after_ms)

    def is_issuer(self, values: Sequence[str]) -> bool:
        """Whether the callback's `iss` values are those of this provider."""
        return oauth2.check_iss(self._spec, values)

    def exchange(
        self,
        *,
        code: Secret,
        verifier: Secret | None,
        redirect_uri: str,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> TokenAnswer:
        """The code turned into tokens: one request, or none where the client's settings do not make one (not sent)."""
        ready = self._ready(variables)
        if isinstance(ready, TokenAnswer):
            return ready
        known, secret = ready
        used = self._secret_number
        answer = oauth2.exchange(
            self._http.sync, self._spec, self._settings, secret, code, verifier, redirect_uri, timeout_ms, known
        )
        return self._heard(answer, used)

    def refresh(
        self,
        *,
        refresh_token: Secret,
        timeout_ms: int,
        variables: Mapping[str, str] = NO_VARIABLES,
        is_import: bool = False,
    ) -> TokenAnswer:
        """Fresh tokens: one request, or none where the client's settings do not make one (not sent)."""
        ready = self._ready(variables)
        if isinstance(ready, TokenAnswer):
            return ready
        known, secret = ready
        used = self._secret_number
        answer = oauth2.refresh(self._http.sync, self._spec, self._settings, secret, refresh_token, timeout_ms, known)
        self._heard(answer, used)
        return answer if is_import else self._http.refusals.believed(self.name, answer)

    def expects_id_token(self, scopes: frozenset[str]) -> bool:
        """Whether an answer to these scopes must say whose grant it is by an ID token."""
        told = self._spec.oidc
        return told is not None and ("openid" in scopes or self._spec.identity.in_id_token is not None)

    def wants_nonce(self, scopes: frozenset[str]) -> bool:
        """Whether an authorization for these scopes carries a nonce, which its ID token must repeat."""
        return self.expects_id_token(scopes) and self._spec.oidc is not None and self._spec.oidc.nonce

    def subject(
        self, *, id_token: Secret, nonce: Secret | None, access_token: Secret, timeout_ms: int
    ) -> IdentityAnswer:
        """Whose grant it is by a verified ID token; the issuer's keys are asked for at most once."""
        told = self._spec.oidc
        if told is None:
            return IdentityAnswer(IdentityOutcome.UNREADABLE, reason="no_issuer")
        expected = Expected(told.issuer, self._settings.client_id, told.algorithms, nonce, access_token)
        sets, now_s = self._http.key_sets, int(self._http.now_s())
        verdict = verify(id_token, expected, lambda kid, alg: sets.key(told.jwks_url, kid, alg, timeout_ms), now_s)
        if verdict.subject is not None:
            return IdentityAnswer(IdentityOutcome.READ, verdict.subject)
        outcome = IdentityOutcome.TRY_LATER if verdict.busy else IdentityOutcome.UNREADABLE
        return IdentityAnswer(outcome, reason=verdict.reason)

    def identity(
        self, *, access_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> IdentityAnswer:
        """Whose grant it is."""
        return oauth2.identity(self._http.sync, self._spec, access_token, timeout_ms, self._known(variables))

    async def renew(
        self, *, refresh_token: Secret, timeout_ms: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> TokenAnswer:
        """As `refresh`, among others; that a token is dead which is to be revoked surprises nobody."""
        ready = self._ready(variables)
        if isinstance(ready, TokenAnswer):
            return ready
        known, secret = ready
        used = self._secret_number
        async with self._http.revoking() as http:
            answer = await oauth2.renew(http, self._spec, self._settings, secret, refresh_token, timeout_ms, known)
        return self._heard(answer, used)

    async def revoke(self, *, material: Material, timeout_ms: int) -> RevokeAnswer:
        """The end of a token at the provider: one request. Raises `ClientConfigError` before anything is sent."""
        known = self._known(material.variables)
        secret = self._secret(known)
        used, told = self._secret_number, replace(material, variables=known)
        async with self._http.revoking() as http:
            answer = await oauth2.revoke(http, self._spec, self._settings, secret, told, timeout_ms, self._http.now_s)
        return self._heard(answer, used)

    def _must_not_rest(self) -> None:
        if self._http.refusals.rests(self.name):
            raise ClientConfigError(client=self.name, reason="the provider refuses the client")

    def _heard[A: (TokenAnswer, RevokeAnswer, PushAnswer)](self, answer: A, used: int) -> A:
        """
        An answer may say that the provider refuses the client: then nobody sends the next request in vain. *used*: the
        number of the secret that the request was made with.
        """
        self._http.refusals.heard(self.name, used, self._secret_count, answer)
        return answer

    @property
    def _secret_number(self) -> int:
        return self._http.refusals.secret_number(self.name, self._secret_count)

    @property
    def _secret_count(self) -> int:
        return int(self._settings.secret_ref is not None) + len(self._settings.older_secrets)

    def _ready(self, variables: Mapping[str, str]) -> tuple[dict[str, str], Secret | None] | TokenAnswer:
        """
        What a token request is made of; or, where it cannot be made, the answer that nothing left. It is on record by
        then, and a record of what never left must not wait for its answer.
        """
        try:
            known = self._known(variables)
            return known, self._secret(known)
        except ClientConfigError:
            return TokenAnswer(Outcome.NOT_SENT, "not_configured", config_fault=True)
        except KeyUnavailableError:
            return TokenAnswer(Outcome.NOT_SENT, "secret_unavailable")

    def _known(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The grant's values and the client's own. Raises `ClientConfigError` where the client's do not hold."""
        try:
            return {**variables, **of_client(self._spec.placeholders, self._settings.variables)}
        except PlaceholderRefusedError as refused:
            raise ClientConfigError(client=self.name, reason=str(refused)) from None

    def _secret(self, variables: Mapping[str, str]) -> Secret | None:
        """
        What proves the client in one request: its secret or, signed with it, an assertion or a secret for that request;
        None where the provider takes neither.
        """
        kept, told = self._kept_secret(), self._spec.token
        if kept is None or not self._signs:
            return kept
        issuer = self._settings.client_id
        try:
            if told.minted is None:
                audience = oauth2.assertion_audience(self._spec, variables)
            else:
                audience = told.minted.audience
                issuer = fill(told.minted.issuer, self._spec.placeholders, variables, {}, encode=False)
        except PlaceholderRefusedError as refused:
            raise ClientConfigError(client=self.name, reason=str(refused)) from None
        key, now_s = AssertionKey(kept, self._settings.key_id), int(self._http.now_s())
        return client_assertion(key, self._settings.client_id, audience, now_s, self._http.new_id(), issuer)

    @property
    def _signs(self) -> bool:
        """Whether the secret is a key, which never leaves."""
        return self._spec.token.client_auth == "private_key_jwt" or self._spec.token.minted is not None

    def _kept_secret(self) -> Secret | None:
        """
        The secret that is to be used: one that is missing or blank is as good as refused, and the next one's turn.
        Raises `ClientConfigError` where none is left.
        """
        if self._settings.secret_ref is None:
            if self._spec.needs_secret:
                raise ClientConfigError(client=self.name, reason="no client secret is configured")
            return None
        refs = (self._settings.secret_ref, *self._settings.older_secrets)
        if len(refs) == 1:
            return self._secret_source(refs[0])
        if self._signs:  # `key_id` is the id of one
            raise ClientConfigError(client=self.name, reason="secret: a signing key cannot be a list, key_id names one")
        while True:
            number = self._secret_number
            try:
                return self._secret_source(refs[number])
            except ClientConfigError:
                self._http.refusals.unreadable(self.name, number, len(refs))
                if self._http.refusals.rests(self.name):
                    raise
