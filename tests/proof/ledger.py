"""
The provider's own ledger: which tokens were issued, rotated, spent and revoked. It is the oracle of every run: our
table alone proves nothing.

The simulated provider plays one of four kinds of refresh (static, rotating, reuse, grace) and one of four reaches of
revocation, and answers as a conforming server would: an unknown or dead token is revoked with success, a code used
twice ends what it issued (RFC 6749 section 4.1.2).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from quitclaim.domain.facts import OldToken, ProviderFacts
from quitclaim.domain.revocations import Reach


class Refreshing(StrEnum):
    """What a refresh does to the token that it was asked with."""

    STATIC = "static"
    ROTATING = "rotating"  # the old one is dead at once
    REUSE = "reuse"  # and presenting it again kills the family
    GRACE = "grace"  # the old one stays valid


class Fault(StrEnum):
    """What happens to one call."""

    NONE = "none"
    LOST = "acted, answer lost"
    NOT_ACTED = "not acted, no answer"
    NOT_SENT = "not sent"
    REFUSED = "refused"
    BUSY = "try later"
    MALFORMED = "acted, answer unusable"


@dataclass(frozen=True)
class Issued:
    """One refresh token."""

    name: str
    family: str
    account: str
    issued_at: int
    by: str  # the code or token that it was issued for
    alive: bool = True
    why_dead: str = ""
    access_at: int | None = None  # when its last access token was given; None: with it


@dataclass(frozen=True)
class Kind:
    """Of a provider."""

    refreshing: Refreshing = Refreshing.ROTATING
    reach: Reach = Reach.FAMILY
    revocable: bool = True
    has_identity: bool = True
    proves: bool = False  # whose grant it is stands in an ID token, and must be verified
    named: bool = False  # whoever is of it is of a workspace too, by which its events may name them
    gives_refresh: bool = True
    takes_either: bool = False  # a revocation takes access tokens as well; the ledger keeps none of them
    by_access: bool = False  # a revocation takes nothing but an access token that has not expired
    pair_lives: bool = False  # and ends no more than that: its refresh token lives on
    idle_limit_ms: int | None = None
    refresh_ends_ms: int | None = None
    broker: bool = False  # accounts in place of codes and tokens
    apart: bool = False  # a further consent is known to leave the grants that are there alone
    gives_again: bool = False  # and does not: it gives the token that is there, whatever the catalogue says

    @property
    def label(self) -> str:
        """For tables."""
        if self.broker:
            return f"broker/{self.reach}"
        rest = ("/ID token" if self.proves else "") + ("/named" if self.named else "")
        rest += ("/either" if self.takes_either else "") + ("/by access" if self.by_access else "")
        rest += ("/alone" if self.pair_lives else "") + ("/again" if self.gives_again else "")
        rest += ("" if self.revocable else "/none") + ("" if self.gives_refresh else "/access only")
        rest += ("/idle" if self.idle_limit_ms and self.gives_refresh else "") + (
            "/ends" if self.refresh_ends_ms else ""
        )
        return f"{self.refreshing}/{self.reach}{rest}"

    @property
    def facts(self) -> ProviderFacts:
        """As the catalogue would say it."""
        old = {
            Refreshing.STATIC: OldToken.UNKNOWN,
            Refreshing.ROTATING: OldToken.IMMEDIATE,
            Refreshing.REUSE: OldToken.IMMEDIATE,
            Refreshing.GRACE: OldToken.STAYS_VALID,
        }[self.refreshing]
        return facts_of(
            revocable=self.revocable,
            takes=self._takes,
            ends_pair=self.by_access and not self.pair_lives,
            reach=self.reach,
            refreshable=self.gives_refresh,
            idle_limit_ms=self.idle_limit_ms,
            rotates="no" if self.refreshing is Refreshing.STATIC else "yes",
            old_token=old,
            has_identity=self.has_identity,
            account_is_subject=self.proves,
            access_ttl_ms=3_600_000,
            manual_page="https://provider.example/apps",
            reuse_kills_family=self.refreshing is Refreshing.REUSE,
            leaves_earlier_grants=self.apart,
            is_broker=self.broker,
            has_sources=self.broker,
            signs_in=self.broker,
        )

    @property
    def _takes(self) -> str:
        if self.takes_either:
            return "either"
        return "refresh" if self.gives_refresh and not self.by_access else "access"


def facts_of(**known: object) -> ProviderFacts:
    """Facts with defaults for those that this machinery does not vary."""
    from dataclasses import MISSING, fields

    names = {each.name for each in fields(ProviderFacts)}
    missing = [
        each.name
        for each in fields(ProviderFacts)
        if each.name not in known and each.default is MISSING and each.default_factory is MISSING
    ]
    return ProviderFacts(**{name: value for name, value in known.items() if name in names}, **dict.fromkeys(missing))  # type: ignore[arg-type]


ACCESS_MS: Final = 3_600_000
"""So long an access token lives."""


@dataclass
class Ledger:
    """The state of one provider. Copied whole when a run goes back to an earlier state."""

    kind: Kind
    codes: dict[str, str] = field(default_factory=dict)  # code -> account
    spent_codes: dict[str, str] = field(default_factory=dict)  # code -> family
    tokens: dict[str, Issued] = field(default_factory=dict)
    revoked_by_us: list[str] = field(default_factory=list)
    exchanges: dict[str, int] = field(default_factory=dict)  # code -> requests
    apps: set[str] = field(default_factory=set)  # refresh tokens that the app got by itself, before it came to us
    idle: set[str] = field(default_factory=set)  # accounts at a broker that nobody has come back from or signed in to
    count: int = 0
    name_of: Callable[[int], str] = "rt-{}".format
    """What the tokens are called, by number; `rt-` in front, so that sealed ones are known again."""

    def copy(self) -> "Ledger":
        """An independent state."""
        return replace(
            self,
            codes=dict(self.codes),
            spent_codes=dict(self.spent_codes),
            tokens=dict(self.tokens),
            revoked_by_us=list(self.revoked_by_us),
            exchanges=dict(self.exchanges),
            apps=set(self.apps),
            idle=set(self.idle),
        )

    def consent(self, code: str, account: str) -> None:
        """The user consented: *code* may be exchanged."""
        self.codes[code] = account

    def gave(self, code: str, account: str, now: int) -> str:
        """The app got a token by itself, long ago and with a code of its own; the token's name."""
        self.count += 1
        family = f"family-{self.count}"
        self.spent_codes[code] = family
        token = self._issue(family, account, code, now)
        self.apps.add(token.name)
        return token.name

    def alive(self) -> list[Issued]:
        """Every living refresh token; every account at a broker that gives access."""
        return [token for token in self.tokens.values() if token.alive and token.name not in self.idle]

    # --- what the endpoints do ---

    def exchange(self, code: str, now: int) -> Issued | None:
        """A code turned into a token; None where it is refused."""
        self.exchanges[code] = self.exchanges.get(code, 0) + 1
        if code in self.spent_codes:
            self._kill(lambda token: token.family == self.spent_codes[code], "code used twice")
            return None
        if code not in self.codes:
            return None
        for token in self.tokens.values() if self.kind.gives_again else ():
            if token.alive and token.account == self.codes[code]:
                self.spent_codes[code] = token.family
                return token
        self.count += 1
        family = f"family-{self.count}"
        self.spent_codes[code] = family
        return self._issue(family, self.codes[code], code, now)

    def account(self, owner: str, now: int) -> Issued:
        """The living account of a connection at a broker, made if there is none."""
        for token in self.tokens.values():
            if token.alive and token.account == owner:
                return token
        self.count += 1
        family, code = f"family-{self.count}", f"{owner}/account-{self.count}"
        self.spent_codes[code] = family
        token = self._issue(family, owner, code, now)
        self.idle.add(token.name)
        return token

    def refresh(self, name: str, now: int) -> Issued | None:
        """The next token of a family; None where the provider refuses for good."""
        old = self.tokens.get(name)
        if old is None or not old.alive:
            if old is not None and self.kind.refreshing is Refreshing.REUSE:
                self._kill(lambda token: token.family == old.family, "reuse")
            return None
        if self.kind.refreshing is Refreshing.STATIC:
            if self.kind.by_access:
                self.tokens[name] = replace(old, access_at=now)
            return old
        if self.kind.refreshing is not Refreshing.GRACE:
            self.tokens[name] = replace(old, alive=False, why_dead="rotated")
        self.count += 1
        return self._issue(old.family, old.account, name, now)

    def takes(self, token: str, now: int) -> bool:
        """Whether a revocation of it does anything: where it takes access tokens, they must be alive."""
        if not self.kind.by_access:
            return True
        issued = self.tokens.get(token.removeprefix("at-"))
        if not token.startswith("at-") or issued is None or not issued.alive:
            return False
        given = issued.issued_at if issued.access_at is None else issued.access_at
        return now < given + ACCESS_MS

    def end_access(self, name: str) -> None:
        """Its last access token is dead; it lives on."""
        self.tokens[name] = replace(self.tokens[name], access_at=-ACCESS_MS)

    def revoke(self, name: str) -> list[str]:
        """End a token and what its revocation reaches; the names of those that were alive until now."""
        token = self.tokens.get(name)
        self.revoked_by_us.append(name)
        if token is None:
            return []
        match self.kind.reach:
            case Reach.TOKEN | Reach.UNKNOWN:
                reached: Callable[[Issued], bool] = lambda other: other.name == name  # noqa: E731
            case Reach.FAMILY:
                reached = lambda other: other.family == token.family  # noqa: E731
            case _:
                reached = lambda other: other.account == token.account  # noqa: E731
        if not token.alive and self.kind.reach is not Reach.ACCOUNT:
            return []
        return self._kill(reached, "revoked")

    def left(self, account: str) -> None:
        """Its user removed the app: every token of the account is dead."""
        self._kill(lambda token: token.account == account, "left")

    def _issue(self, family: str, account: str, by: str, now: int) -> Issued:
        token = Issued(self.name_of(self.count), family, account, now, by)
        self.tokens[token.name] = token
        return token

    def _kill(self, which: Callable[[Issued], bool], why: str) -> list[str]:
        hit = [token.name for token in self.tokens.values() if token.alive and which(token)]
        for name in hit:
            self.tokens[name] = replace(self.tokens[name], alive=False, why_dead=why)
        return hit
