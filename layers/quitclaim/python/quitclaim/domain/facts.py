"""
What the catalogue says of a provider, as far as a rule depends on it. `unknown` is a value of its own and never reads
as no.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from quitclaim.domain.revocations import NO_REVOCATION, Reach


class OldToken(StrEnum):
    """What becomes of a refresh token when its successor is issued."""

    IMMEDIATE = "immediate"
    GRACE = "grace"
    STAYS_VALID = "stays_valid"
    UNKNOWN = "unknown"


KINDS: Final = {
    "refresh": frozenset({"refresh_token"}),
    "access": frozenset({"access_token"}),
    "either": frozenset({"refresh_token", "access_token"}),
    "account": frozenset({"account_id"}),
}
"""The kinds of material that a revocation takes, by `takes`."""


@dataclass(frozen=True)
class ProviderFacts:
    """The facts of one provider."""

    revocable: bool
    takes: Literal["refresh", "access", "either", "account"]
    reach: Reach
    refreshable: bool
    rotates: Literal["yes", "no", "sometimes", "unknown"]
    old_token: OldToken
    has_identity: bool
    access_ttl_ms: int | None
    manual_page: str | None
    connectable: bool = True
    """False where the provider has shut its authorization down: what there is can still be revoked."""
    leaves_earlier_grants: bool = False
    """A further consent of the same user is known to leave the grant that was there alone. Unknown is no."""
    account_is_subject: bool = False
    """Whether the account is what an ID token calls `sub`, so that the two must be the same (OIDC core 5.3.2)."""
    pkce: bool = True
    """False only where the provider is known to take no challenge."""
    posts_back: bool = False  # its answer to the browser is a form post (Apple), across sites
    reuse_kills_family: bool = False
    """A spent refresh token that is presented again ends everything that came from the same consent. Unknown is no."""
    idle_limit_ms: int | None = None
    """A grant that is not refreshed for so long is dead. None: no such limit, or none known."""
    ends_pair: bool = False
    """A revocation of one token of a pair ends the other as well. Unknown is no."""
    needs_live_access_token: bool = True
    """A revocation by access token wants one that has not expired. Unknown is yes."""
    is_broker: bool = False
    """Whether users link things on its own pages behind an account that is made for them, and no code is exchanged."""
    has_sources: bool = False
    """Whether what is linked behind an account has a name of its own."""
    signs_in: bool = False
    """Whether an app's SDK can be given a token for an account."""

    @property
    def renews_in_queue(self) -> bool:
        """Whether a queued refresh token serves to renew the access token that the revocation takes."""
        return self.takes == "access" and self.refreshable and self.needs_live_access_token

    def may_take(self, kind: str) -> bool:
        """Whether the provider's revocation takes the kind (`refresh_token`, …, or several joined by `+`)."""
        taken = KINDS[self.takes] | ({"refresh_token"} if self.renews_in_queue else set())
        return all(part in taken for part in kind.split("+"))

    def taken(self, kind: str) -> str:
        """*kind* if a revocation of it can be sent at all, else `NO_REVOCATION`."""
        return kind if self.revocable and self.may_take(kind) else NO_REVOCATION

    @property
    def grants_are_independent(self) -> bool:
        """
        Whether two grants of one account are known to live beside each other, one of them can be revoked by a call that
        leaves the other alone, and one that is given again is known again: by the refresh token, where there is one.

        What is unknown, and any reach beyond the token itself, is no: a revocation too much cannot be taken back.
        """
        is_known_again = self.may_take("refresh_token") or (self.takes == "access" and not self.refreshable)
        ends_itself_only = self.revocable and self.reach is Reach.TOKEN
        return self.leaves_earlier_grants and ends_itself_only and is_known_again

    @property
    def may_rotate(self) -> bool:
        """Whether a refresh may end the old token. Unknown counts as yes."""
        return self.rotates != "no" and self.old_token is not OldToken.STAYS_VALID

    @property
    def old_token_survives(self) -> bool:
        """Whether a rotated token's predecessor stays alive (custody rule 6)."""
        return self.rotates != "no" and self.old_token in (OldToken.STAYS_VALID, OldToken.GRACE)
