"""
Security event tokens (RFC 8417) that a provider sends about accounts: who may send them, what they say of a grant, and
how they are refused (RFC 8935 section 2.4).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
TEXT: Final = re.compile(r"[\x21-\x7e]{1,512}")
FIELDS: Final = frozenset({"issuer", "audience", "jwks_uri", "client", "algorithms"})
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
"""None is symmetric: whoever could verify could then forge."""


@dataclass(frozen=True)
class Transmitter:
    """Who sends events, for whom, signed by which published keys, and of which client's accounts they speak."""

    name: str
    issuer: str
    audience: tuple[str, ...]
    jwks_uri: str
    client: str
    algorithms: tuple[str, ...] = ("RS256",)


class TransmitterFaultsError(ValueError):
    """A transmitter's configuration does not hold; *faults* is all that is wrong with it, in sentences."""

    def __init__(self, name: str, faults: list[str]) -> None:
        super().__init__(f"events/{name}: " + "; ".join(faults))
        self.faults = tuple(faults)


def read_transmitter(name: str, config: Mapping[str, object]) -> Transmitter:
    """The transmitter that *config* (parsed JSON) describes; where its keys may be fetched is judged by who does."""
    faults = [f"{unknown}: not a setting of an issuer of events" for unknown in sorted(config.keys() - FIELDS)]
    if NAME.fullmatch(name) is None:
        faults.append("its name must match [A-Za-z0-9._-]{1,64}")
    texts = {each: _text(config.get(each)) for each in ("issuer", "jwks_uri", "client")}
    faults += [f"{each}: printable ASCII without spaces" for each, text in texts.items() if not text]
    if urlsplit(texts["jwks_uri"]).scheme not in ("https", "http"):
        faults.append("jwks_uri: https://host/path")
    audience = _listed(config.get("audience"))
    if not audience:
        faults.append("audience: for whom its events are made out, a list of strings")
    algorithms = _listed(config.get("algorithms", ["RS256"]))
    if not algorithms or not set(algorithms) <= set(ALGORITHMS):
        faults.append(f"algorithms: some of {', '.join(ALGORITHMS)}")
    if faults:
        raise TransmitterFaultsError(name, faults)
    return Transmitter(name, texts["issuer"], audience, texts["jwks_uri"], texts["client"], algorithms)


def _text(value: object) -> str:
    return value if isinstance(value, str) and TEXT.fullmatch(value) else ""


def _listed(value: object) -> tuple[str, ...]:
    found = tuple(_text(each) for each in value) if isinstance(value, list) else ()
    return found if all(found) else ()


# --- what an event says ----------------------------------------------------------------------------------------------


class Says(StrEnum):
    """Of the grants of the account that an event is about."""

    ENDED = "ended"
    """They were ended: the generation that is live then stops."""
    DOUBTFUL = "doubtful"
    """Something happened that may have ended them: the provider is asked."""
    NOTHING = "nothing"


OAUTH: Final = "https://schemas.openid.net/secevent/oauth/event-type/"
RISC: Final = "https://schemas.openid.net/secevent/risc/event-type/"
CAEP: Final = "https://schemas.openid.net/secevent/caep/event-type/"

MEANING: Final[Mapping[str, Says]] = {
    f"{OAUTH}tokens-revoked": Says.ENDED,
    f"{OAUTH}token-revoked": Says.DOUBTFUL,  # of one token, which may be one that was replaced
    f"{RISC}tokens-revoked": Says.ENDED,
    f"{RISC}sessions-revoked": Says.DOUBTFUL,
    f"{RISC}account-disabled": Says.DOUBTFUL,
    f"{RISC}account-purged": Says.DOUBTFUL,
    f"{RISC}account-credential-change-required": Says.DOUBTFUL,
    f"{CAEP}session-revoked": Says.DOUBTFUL,
    f"{CAEP}credential-change": Says.DOUBTFUL,
}
"""What is not here says nothing to us: it is acknowledged, and nothing follows (`verification` is one of these)."""


@dataclass(frozen=True)
class SecurityEvent:
    """One event of a token: its type, what it says, of which of the provider's accounts, and when that happened."""

    type: str
    says: Says
    account: str | None = field(repr=False)
    occurred_at: int

    @property
    def name(self) -> str:
        """The last part of its type."""
        return self.type.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class SecurityEvents:
    """A token that holds: its id, and what it says."""

    jti: str
    events: tuple[SecurityEvent, ...]


class SetFault(StrEnum):
    """Why a token is not taken (RFC 8935 section 2.4)."""

    INVALID_REQUEST = "invalid_request"
    INVALID_KEY = "invalid_key"
    INVALID_ISSUER = "invalid_issuer"
    INVALID_AUDIENCE = "invalid_audience"


@dataclass(frozen=True)
class SetRefused:
    """It is not taken, and nothing is stored. *description* is a sentence of ours, never one of theirs."""

    fault: SetFault
    description: str
