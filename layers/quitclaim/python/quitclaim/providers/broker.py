"""
Accounts at a broker: found or made by our reference, linked on the broker's own pages, signed in to from an app's SDK.

Every request is a template of the catalogue. Finding and making an account may be repeated: the reference is the
broker's own key, and an account without a source behind it gives access to nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import httpx

from quitclaim.domain.clients import ProviderClient
from quitclaim.domain.outcomes import BrokerAnswer, Outcome
from quitclaim.domain.secret import Secret
from quitclaim.providers.answers import member, read_body
from quitclaim.providers.oauth2 import templated
from quitclaim.providers.placeholders import PlaceholderRefusedError, names_in
from quitclaim.providers.spec import BrokerSpec, ProviderSpec, RequestSpec
from quitclaim.providers.transport import Answer, NoAnswer, RawAnswer, send

LONGEST_TEXT: Final = 4_096
NOT_NOW: Final = frozenset({408, 425, 429, 502, 503, 504})


class HttpBroker:
    """`ports.Broker` over HTTP, as an entry's templates say."""

    def __init__(
        self,
        spec: ProviderSpec,
        broker: BrokerSpec,
        client: ProviderClient,
        secret: Secret | None,
        http: httpx.Client,
        variables: Mapping[str, str],
    ) -> None:
        self._spec = spec
        self._broker = broker
        self._client = client
        self._secret = secret
        self._http = http
        self._variables = variables

    @property
    def state_param(self) -> str:
        """In which parameter of our callback the state comes back."""
        return self._broker.state_param

    def account(self, *, reference: str, timeout_ms: int) -> BrokerAnswer:
        """The account of *reference*, made if there is none: two requests at most, within *timeout_ms* together."""
        told = self._broker
        if told.find is not None:
            answer = self._ask(told.find, timeout_ms // 2, reference=reference)
            is_absent = isinstance(answer, RawAnswer) and answer.status in told.absent
            if not is_absent:
                return self._read(answer, told.account)
        return self._read(self._ask(told.make, timeout_ms // 2, reference=reference), told.account)

    def link(self, *, account: Secret, source: str | None, back: str, timeout_ms: int) -> BrokerAnswer:
        """Where the user links (a source of) the account; the browser comes *back* by itself."""
        answer = self._ask(self._broker.link, timeout_ms, account_id=account.reveal(), source=source, back=back)
        found = self._read(answer, self._broker.link_url)
        if found.value is not None and not found.value.reveal().startswith(self._secure):
            return BrokerAnswer(Outcome.UNKNOWN, "insecure_link")
        return found

    def sign_in(self, *, account: Secret, timeout_ms: int) -> BrokerAnswer:
        """A token with which the app's SDK signs in to the account. It is handed out once and kept nowhere."""
        told = self._broker
        if told.sign_in is None or told.sign_in_token is None:
            return BrokerAnswer(Outcome.NOT_SENT, "no_sign_in", config_fault=True)
        return self._read(self._ask(told.sign_in, timeout_ms, account_id=account.reveal()), told.sign_in_token)

    @property
    def _secure(self) -> tuple[str, ...]:
        return ("https://", "http://127.0.0.1:") if self._spec.allow_loopback else ("https://",)

    def _ask(self, request: RequestSpec, timeout_ms: int, **given: str | None) -> Answer:
        reserved = {name: value for name, value in given.items() if value is not None}
        reserved["client_id"] = self._client.client_id
        if self._secret is not None:
            reserved["client_secret"] = self._secret.reveal()
        unasked = {name for name, value in given.items() if value is None}
        fields = tuple(each for each in request.fields if not unasked & names_in(each[1]))
        request = replace(request, fields=fields)  # a field about what nobody asked for is left out
        try:
            outgoing = templated(
                self._spec, request, reserved, self._variables, client=self._client, secret=self._secret
            )
        except PlaceholderRefusedError:
            return NoAnswer(sent=False, reason="unaddressed")
        return send(self._http, outgoing, timeout_ms)

    def _read(self, answer: Answer, path: str) -> BrokerAnswer:
        if isinstance(answer, NoAnswer):
            return BrokerAnswer(Outcome.UNKNOWN if answer.sent else Outcome.NOT_SENT, answer.reason)
        body, after = read_body(answer), answer.retry_after_ms
        reason = "html" if body.is_html else f"http_{answer.status}"
        if answer.status in NOT_NOW:
            return BrokerAnswer(Outcome.TRY_LATER, reason, retry_after_ms=after)
        if answer.status in (401, 403) and not body.is_html:
            return BrokerAnswer(Outcome.TRY_LATER, reason, config_fault=True)
        if not 200 <= answer.status < 300 or not answer.complete or body.is_html or body.has_error:
            outcome = Outcome.REJECTED if 400 <= answer.status < 500 and not body.is_html else Outcome.UNKNOWN
            return BrokerAnswer(outcome, reason, retry_after_ms=after)
        text = member(body.members, path)
        if (
            not isinstance(text, str)
            or not 0 < len(text) <= LONGEST_TEXT
            or not (text.isascii() and text.isprintable())
        ):
            return BrokerAnswer(Outcome.UNKNOWN, "unreadable")
        return BrokerAnswer(Outcome.GRANTED, value=Secret(text))
