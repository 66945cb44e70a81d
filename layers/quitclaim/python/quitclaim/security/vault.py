"""The vault that the flows see: what is sealed for what, and under which purpose."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quitclaim.domain.asked import VisitSecrets
from quitclaim.domain.errors import SealBrokenError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import PREPARED_BYTES
from quitclaim.domain.revocations import Material
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import TokenPair
from quitclaim.domain.webhooks import Prepared, prepared_of
from quitclaim.ports import Clock
from quitclaim.security.keys import AUTHORIZATION, INBOX, INDEX, REVOKE, USE, KeyRing
from quitclaim.security.macs import Macs
from quitclaim.security.sealing import Binding, Sealer
from quitclaim.security.tickets import open_under, seal_under

IDENTITY = "~identity"
ID_TOKEN = "~id_token"  # noqa: S105 - a place in a binding
"""They stand where a pair's name would: no pair is called so, and neither ever opens as anything else."""


_IN_FULL: Final = json.JSONEncoder(ensure_ascii=False)


class RingVault:
    """`ports.Vault` on a key ring."""

    def __init__(self, keys: KeyRing, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._sealer = Sealer(keys)
        self._macs = Macs(keys)

    def ready(self, *purposes: str) -> None:
        """Open the keys of *purposes*: for two minutes, sealing and digests under them need no other service."""
        for purpose in purposes:
            if purpose == INDEX:
                self._keys.key_active_at(INDEX, 0)
            else:
                self._keys.ready(purpose, self._clock.now())

    # --- the live grant ---

    def seal_for_use(self, ref: ConnectionRef, generation: int, token_version: int, pair: TokenPair) -> bytes:
        """The pair's tokens, to be opened for handing out and refreshing."""
        body = {
            "access_token": pair.access_token.reveal(),
            "refresh_token": None if pair.refresh_token is None else pair.refresh_token.reveal(),
            "token_type": pair.token_type,
            **({"variables": dict(pair.variables)} if pair.variables else {}),
            **({"account_id": pair.account_id} if pair.account_id is not None else {}),
        }
        return self._seal(body, _use(ref, generation, token_version, pair.name))

    def open_for_use(
        self, ref: ConnectionRef, generation: int, token_version: int, pair: str, sealed: bytes
    ) -> TokenPair:
        """The pair's tokens."""
        body = self._open(sealed, _use(ref, generation, token_version, pair))
        refresh_token = body["refresh_token"]
        return TokenPair(
            name=pair,
            access_token=Secret(_text(body["access_token"])),
            refresh_token=None if refresh_token is None else Secret(refresh_token),
            token_type=_text(body["token_type"]),
            variables=body.get("variables", {}),
            account_id=body.get("account_id"),
        )

    def seal_id_token(
        self, ref: ConnectionRef, generation: int, exchange_id: str, id_token: Secret, nonce: Secret | None
    ) -> bytes:
        """An ID token that nobody has verified yet, and the nonce that it must repeat."""
        body = {"id_token": id_token.reveal(), "nonce": None if nonce is None else nonce.reveal()}
        return self._seal(body, _id_token(ref, generation, exchange_id))

    def open_id_token(
        self, ref: ConnectionRef, generation: int, exchange_id: str, sealed: bytes
    ) -> tuple[Secret, Secret | None]:
        """ID token and nonce."""
        body = self._open(sealed, _id_token(ref, generation, exchange_id))
        nonce = body["nonce"]
        return Secret(_text(body["id_token"])), None if nonce is None else Secret(nonce)

    # --- the revoke-only queue: bound to the revocation's id alone, which names one grant and is never used again ---

    def seal_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, material: Sequence[Material]
    ) -> bytes:
        """What the provider's revocation takes of a pair, to be opened by the revocation worker alone."""
        body: dict[str, Any] = {
            "tokens": [
                [each.kind, each.token.reveal(), *([] if each.until is None else [each.until])] for each in material
            ]
        }
        variables = next((each.variables for each in material if each.variables), None)
        if variables:  # of the grant, and so the same for all of its tokens
            body["variables"] = dict(variables)
        return self._seal(body, _revoke(rid, generation, token_version, pair))

    def open_revoke_only(
        self, rid: str, generation: int, token_version: int, pair: str, sealed: bytes
    ) -> tuple[Material, ...]:
        """What the provider's revocation takes of a pair."""
        body = self._open(sealed, _revoke(rid, generation, token_version, pair))
        variables = body.get("variables", {})
        return tuple(
            Material(_text(kind), Secret(_text(token)), variables, *until) for kind, token, *until in body["tokens"]
        )

    def seal_identity(self, rid: str, generation: int, access_token: Secret) -> bytes:
        """An access token kept only to learn whose grant it is."""
        return self._seal({"token": access_token.reveal()}, _revoke(rid, generation, 0, IDENTITY))

    def open_identity(self, rid: str, generation: int, sealed: bytes) -> Secret:
        """That access token."""
        return Secret(_text(self._open(sealed, _revoke(rid, generation, 0, IDENTITY))["token"]))

    # --- an authorization ---

    def seal_authorization(self, state_digest: str, ref: ConnectionRef, generation: int, visit: VisitSecrets) -> bytes:
        """What one visit of a link must know again when it comes back."""
        body = {
            "verifier": None if visit.verifier is None else visit.verifier.reveal(),
            "nonce": None if visit.nonce is None else visit.nonce.reveal(),
            **({"variables": dict(visit.variables)} if visit.variables else {}),
        }
        return self._seal(body, _authorization(state_digest, ref, generation))

    def open_authorization(self, state_digest: str, ref: ConnectionRef, generation: int, sealed: bytes) -> VisitSecrets:
        """What one visit knew."""
        body = self._open(sealed, _authorization(state_digest, ref, generation))
        verifier, nonce = (None if body[name] is None else Secret(body[name]) for name in ("verifier", "nonce"))
        return VisitSecrets(verifier, nonce, body.get("variables", {}))

    # --- a webhook ---

    def seal_delivery(self, client: str, digest: str, prepared: Prepared, raw: bytes) -> bytes:
        """A prepared event and the provider's bytes, for the one delivery that has this digest."""
        told = _IN_FULL.encode(prepared.as_mapping()).encode("utf-8", "surrogatepass")
        if len(told) > PREPARED_BYTES:
            raise ValueError(f"a prepared event may have {PREPARED_BYTES} bytes, not {len(told)}")
        plain = len(told).to_bytes(4) + told + raw
        return self._sealer.seal(plain, _delivery(client, digest), self._clock.now())

    def open_delivery(self, client: str, digest: str, sealed: bytes) -> tuple[Prepared, bytes]:
        """What was sealed, looked at again member by member (M-62)."""
        plain = self._sealer.open(sealed, _delivery(client, digest))
        ends = 4 + int.from_bytes(plain[:4])
        if len(plain) < ends or ends > 4 + PREPARED_BYTES:
            raise SealBrokenError("a prepared webhook is cut short")
        try:
            told = json.loads(plain[4:ends].decode("utf-8", "surrogatepass"))
        except ValueError:
            raise SealBrokenError("a prepared webhook is no JSON") from None
        if not isinstance(told, dict):
            raise SealBrokenError("a prepared webhook is no object")
        return prepared_of(told), plain[ends:]

    # --- under a ticket ---

    def seal_under_ticket(self, ticket: Secret, text: Secret) -> str:
        """Readable only with the ticket, which is stored nowhere."""
        return seal_under(ticket, text)

    def open_under_ticket(self, ticket: Secret, sealed: str) -> Secret:
        """What was sealed under it."""
        return open_under(ticket, sealed)

    # --- keyed digests ---

    def fingerprint(self, token: Secret) -> str:
        """Keyed digest of a token: tells whether two are the same, and nothing else."""
        return self._macs.fingerprint(token)

    def account_digest(self, client: str, account_id: str) -> str:
        """Keyed digest of a provider's account under a client."""
        return self._macs.account_digest(client, account_id)

    def trace_digest(self, client: str, account: str | None, how: str, text: str) -> str:
        """
        The trace of an event: *how* it is told apart from others of that account (by its id, by some of its members,
        by its bytes) and what that is. Equal ids of two accounts never meet (M-63).
        """
        return self._macs.trace(client, account, how, text)

    def ticket(self, ref: ConnectionRef, generation: int, started_at: int) -> Secret:
        """The connect link's ticket: the same for the same start, never stored."""
        return self._macs.ticket(ref.tenant, ref.owner, ref.connection, generation, started_at)

    def confirm_code(self, exchange_id: str, started_at: int) -> Secret:
        """The code that the owner brings back: the same for the same exchange, never stored."""
        return self._macs.confirm_code(exchange_id, started_at)

    def is_confirm_code(self, code: Secret, exchange_id: str, started_at: int) -> bool:
        """Whether *code* is that code; constant time."""
        return self._macs.verify_confirm_code(code, exchange_id, started_at)

    # --- bodies ---

    def _seal(self, body: Mapping[str, Any], binding: Binding) -> bytes:
        return self._sealer.seal(json.dumps(body).encode(), binding, self._clock.now())

    def _open(self, sealed: bytes, binding: Binding) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self._sealer.open(sealed, binding))
        return body


def _text(value: str | None) -> str:
    if value is None:
        raise SealBrokenError("sealed material lacks a value")
    return value


def _use(ref: ConnectionRef, generation: int, token_version: int, pair: str) -> Binding:
    return Binding(USE, ref.tenant, ref.owner, ref.connection, generation, token_version, pair)


def _id_token(ref: ConnectionRef, generation: int, exchange_id: str) -> Binding:
    # No id of a connection holds a `#`, and no pair is called so.
    subject = f"{ref.connection}#{exchange_id}"
    return Binding(USE, ref.tenant, ref.owner, subject, generation, 0, ID_TOKEN)


def _revoke(rid: str, generation: int, token_version: int, pair: str) -> Binding:
    return Binding(REVOKE, "", "", rid, generation, token_version, pair)


def _delivery(client: str, digest: str) -> Binding:
    return Binding(INBOX, "", "", f"{client}#{digest}", 0, 0)


def _authorization(state_digest: str, ref: ConnectionRef, generation: int) -> Binding:
    # No id holds a `#`, so the two parts cannot be read another way.
    subject = f"{state_digest}#{ref.connection}"
    return Binding(AUTHORIZATION, ref.tenant, ref.owner, subject, generation, 0)
