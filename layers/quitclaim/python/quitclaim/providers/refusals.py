"""
What to do when a provider refuses the client itself (`invalid_client`, RFC 6749 section 5.2): it says nothing about any
grant, and the same request will meet it again.

While a secret is being replaced, both are configured: the one that was refused is not used again as long as there is
another. Once every secret was refused, the client rests, and whoever would use it is told so before anything is sent:
no grant moves, no code is spent, and one alarm stands for all of them (RB-20). A refusal that may be owed to the one
request (a bare 401, a scope) is not taken for the client's until several came in a row: else one odd grant would stop
all the others.

The same where a provider calls one grant after another dead and takes none: that is a fault of the provider's, or of
the client's, far likelier than twenty users who left within an hour. Then it rests too, and is believed one verdict a
rest. Only a grant that serves is counted: that one which is brought in or revoked is dead surprises nobody.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from quitclaim.domain.outcomes import Outcome, PushAnswer, RevokeAnswer, RevokeOutcome, TokenAnswer

OF_THE_CLIENT: Final = frozenset({"incorrect_client_credentials", "invalid_client"})
"""Error codes that speak of the client whatever was asked."""
NOTHING_SENT: Final = "unaddressed"
"""Reason of a revocation whose address lacks a value: no provider was asked."""
PERHAPS: Final = 5
"""So many refusals in a row that may each be owed to the request are the client's."""
BURST: Final = 20
"""Grants in a row that a provider may call dead, before anybody revoked them, until it is doubted."""
WINDOW_S: Final = 3600.0
"""So long a verdict is counted. Those of a day make no burst."""
REST_S: Final = 30.0
"""Long enough that no storm follows, short enough that a corrected secret serves at once."""


@dataclass
class _State:
    secret: int = 0  # which of the configured ones is used
    refused: int = 0  # how many of them in a row were refused
    perhaps: int = 0  # refusals in a row that may be owed to the request
    rests_until: float = 0.0
    verdicts: list[float] = field(default_factory=list)  # when grants were refused in a row, the last of them


class Refusals:
    """Of the clients of one function instance. *on_refused* is told of each client that begins to rest, and why."""

    def __init__(
        self,
        on_refused: Callable[[str, str], None] = lambda client, reason: None,
        now: Callable[[], float] = time.monotonic,  # seconds
    ) -> None:
        self._on_refused = on_refused
        self._now = now
        self._states: dict[str, _State] = {}

    def rests(self, client: str) -> bool:
        """Whether the provider refused all of its secrets a moment ago."""
        state = self._states.get(client)
        return state is not None and state.rests_until > self._now()

    def secret_number(self, client: str, count: int) -> int:
        """Which of *count* secrets is to be used; they are configured in order, the newest first."""
        state = self._states.get(client)
        return 0 if state is None or count == 0 else state.secret % count

    def heard(self, client: str, used: int, count: int, answer: TokenAnswer | RevokeAnswer | PushAnswer) -> None:
        """What the provider said to one request of *client*, made with the secret numbered *used* of *count*."""
        state = self._states.setdefault(client, _State())
        match refusal(answer):
            case Refusal.CERTAIN:
                self._refused(client, state, used, max(count, 1), answer.reason)
            case Refusal.PERHAPS:
                state.perhaps += 1
                if state.perhaps >= PERHAPS:
                    self._refused(client, state, used, max(count, 1), answer.reason)
            case Refusal.NONE if is_acceptance(answer):
                state.refused = state.perhaps = 0

    def unreadable(self, client: str, used: int, count: int) -> None:
        """The secret numbered *used* of *count* is missing or blank: as good as refused, without a request."""
        self._refused(client, self._states.setdefault(client, _State()), used, count, "secret_unreadable")

    def believed(self, client: str, answer: TokenAnswer) -> TokenAnswer:
        """
        *answer* to a refresh, or that there is none yet, where it is a verdict too many: the grant is not judged by it.
        """
        state = self._states.setdefault(client, _State())
        if answer.outcome is Outcome.GRANTED:
            state.verdicts = []
        if answer.outcome is not Outcome.REJECTED:
            return answer
        now = self._now()
        state.verdicts = [*(each for each in state.verdicts if each > now - WINDOW_S), now]
        if len(state.verdicts) <= BURST:
            return answer
        state.verdicts, state.rests_until = state.verdicts[-(BURST - 1) :], now + REST_S
        self._on_refused(client, "burst")
        return replace(answer, outcome=Outcome.TRY_LATER, reason="burst", retry_after_ms=int(REST_S * 1000))

    def _refused(self, client: str, state: _State, used: int, count: int, reason: str) -> None:
        if used != state.secret % count:
            return  # of several requests that were on their way together, another has told of this secret already
        state.secret, state.refused, state.perhaps = (used + 1) % count, state.refused + 1, 0
        if state.refused >= count and state.rests_until <= self._now():
            state.refused, state.rests_until = 0, self._now() + REST_S
            self._on_refused(client, reason)


class Refusal(Enum):
    """Whether an answer refuses the client."""

    CERTAIN = "the client"
    PERHAPS = "the client or this one request"
    NONE = "no"


def refusal(answer: TokenAnswer | RevokeAnswer | PushAnswer) -> Refusal:
    """
    Whether the client was refused, not the grant. Of a pushed request only what speaks of who sent it: the rest may be
    owed to what the app or its user put there.
    """
    if isinstance(answer, PushAnswer):
        if answer.config_fault and answer.reason in OF_THE_CLIENT:
            return Refusal.CERTAIN
        return Refusal.PERHAPS if answer.config_fault and answer.reason == "http_401" else Refusal.NONE
    if isinstance(answer, TokenAnswer):
        if not answer.config_fault or answer.outcome is not Outcome.TRY_LATER:
            return Refusal.NONE
        return Refusal.CERTAIN if answer.error_code in OF_THE_CLIENT else Refusal.PERHAPS
    if answer.outcome is not RevokeOutcome.PERMANENT_ERROR or answer.reason == NOTHING_SENT:
        return Refusal.NONE
    return Refusal.CERTAIN if answer.reason in OF_THE_CLIENT else Refusal.PERHAPS


def is_acceptance(answer: TokenAnswer | RevokeAnswer | PushAnswer) -> bool:
    """Whether the provider knew the client: it came to a verdict on a token, or took a request."""
    if isinstance(answer, PushAnswer):
        return answer.request_uri is not None
    if isinstance(answer, TokenAnswer):
        return answer.outcome in (Outcome.GRANTED, Outcome.REJECTED)
    return answer.outcome in (RevokeOutcome.CONFIRMED, RevokeOutcome.ALREADY_GONE)
