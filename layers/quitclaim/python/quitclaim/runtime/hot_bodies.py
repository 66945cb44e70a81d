"""Bodies of imports and sign-ins, read by hand: the function that takes them pays for no pydantic at its start."""

from typing import Any, Final

from quitclaim.domain.clients import NAME, SCOPE
from quitclaim.domain.errors import InvalidBodyError
from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import TOKEN_MAX_CHARS
from quitclaim.domain.secret import Secret
from quitclaim.flows.imports import ImportRequest
from quitclaim.flows.sign_in import SignInRequest

FIELDS: Final = frozenset({"provider", "client", "refresh_token", "account_id", "scopes", "variables", "dry_run"})
LONGEST_ACCOUNT: Final = 1_000
MOST_SCOPES: Final = 100


def import_request(ref: ConnectionRef, body: dict[str, Any], idempotency_key: str | None) -> ImportRequest:
    """What the body asks for. Raises `InvalidBodyError` naming the first field at fault, never its value."""
    _refuse_unknown(body, FIELDS)
    provider, account, scopes = _text(body, "provider", 100), body.get("account_id"), body.get("scopes")
    client, token = body.get("client", provider), _text(body, "refresh_token", TOKEN_MAX_CHARS)
    dry_run, variables = body.get("dry_run", False), body.get("variables", {})
    _check_client(client)
    if account is not None and (not isinstance(account, str) or not 1 <= len(account) <= LONGEST_ACCOUNT):
        raise InvalidBodyError("account_id: the account's id at the provider, as text", field="account_id")
    if scopes is not None and not _are_scopes(scopes):
        raise InvalidBodyError("scopes: a list of the scopes that were granted", field="scopes")
    if not _are_texts(variables):
        raise InvalidBodyError("variables: texts by their names", field="variables")
    if not isinstance(dry_run, bool):
        raise InvalidBodyError("dry_run: true or false", field="dry_run")
    return ImportRequest(
        ref=ref,
        client=client,
        refresh_token=Secret(token),
        provider=provider,
        account_id=None if account is None else Secret(account),
        scopes=None if scopes is None else frozenset(scopes),
        variables=variables,
        dry_run=dry_run,
        idempotency_key=idempotency_key,
    )


def sign_in_request(tenant: str, owner: str, body: dict[str, Any]) -> SignInRequest:
    """Likewise. Raises `InvalidIdError` too: an owner is always named (M-19)."""
    _refuse_unknown(body, frozenset({"connection_id", "provider", "client"}))
    ref = ConnectionRef.checked(tenant, owner, body.get("connection_id"))
    provider = _text(body, "provider", 100)
    client = body.get("client", provider)
    _check_client(client)
    return SignInRequest(ref, client, provider)


def _refuse_unknown(body: dict[str, Any], fields: frozenset[str]) -> None:
    for unknown in sorted(body.keys() - fields):
        raise InvalidBodyError("The body has a field that this route does not take.", field=unknown[:100])


def _check_client(client: object) -> None:
    if not isinstance(client, str) or not NAME.fullmatch(client):
        raise InvalidBodyError("client: the name of a client that is set up", field="client")


def _text(body: dict[str, Any], field: str, longest: int) -> str:
    """A text of printable ASCII: what a token and a name are made of (RFC 6749 appendix A)."""
    text = body.get(field)
    if not isinstance(text, str) or not 1 <= len(text) <= longest or not (text.isascii() and text.isprintable()):
        raise InvalidBodyError(f"{field}: a text of 1 to {longest} printable ASCII characters", field=field)
    return text


def _are_scopes(scopes: object) -> bool:
    if not isinstance(scopes, list) or not 1 <= len(scopes) <= MOST_SCOPES:
        return False
    return all(isinstance(scope, str) and len(scope) <= 300 and SCOPE.fullmatch(scope) for scope in scopes)


def _are_texts(variables: object) -> bool:
    return isinstance(variables, dict) and all(isinstance(value, str) for value in variables.values())
