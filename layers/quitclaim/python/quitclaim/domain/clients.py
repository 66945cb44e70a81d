"""A client of the app at a provider, as its team wrote it down (SSM, `<path>/clients/<client>`)."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""A scope-token (RFC 6749 section 3.3)."""
STATUS_PAGE: Final = re.compile(r"https://[\x21-\x7e]{1,500}")
CLIENT_ID: Final = re.compile(r"[\x20-\x7e]+")
SECRET_REF: Final = re.compile(r"(ssm|secretsmanager):[A-Za-z0-9/_.:+=@-]+")
SECRETS: Final = 3
"""That one client may have at once."""
FIELDS: Final = frozenset(
    {
        "provider",
        "client_id",
        "secret",
        "scopes",
        "optional_scopes",
        "required_scopes",
        "confirmation",
        "purge_on_loss",
        "key_id",
        "variables",
        "webhook",
    }
)
WEBHOOK_FIELDS: Final = frozenset(
    {"secrets", "path", "keys", "verify_token", "hook_id", "account", "status_page", "endpoints"}
)
LIVE_SECRETS: Final = 4
"""Two of them while a provider rotates, twice as many where it signs with two keys anyway."""
ENDPOINTS: Final = 100


@dataclass(frozen=True)
class WebhookSettings:
    """
    What the provider and the app agreed on for its events, at one address: where the live secrets are kept, newest
    first; public keys by the id that the provider gives them; where the secret part of the address and the token of a
    handshake are kept; the id of the hook or subscription at the provider; whose events come in, where they do not say;
    and the app's page for users who asked the provider for a deletion.
    """

    secret_refs: tuple[str, ...] = ()
    path_ref: str | None = None
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    verify_token_ref: str | None = None
    hook_id: str | None = None
    account: str | None = None
    status_page: str | None = None


@dataclass(frozen=True)
class ProviderClient:
    """Which provider, as whom, for which scopes, and what happens with a returned or lost grant."""

    name: str
    provider: str
    client_id: str
    secret_ref: str | None  # None only for a provider that takes no client secret
    scopes: tuple[str, ...]
    confirmation: Literal["owner", "none"] = "owner"
    purge_on_loss: bool = False
    optional_scopes: frozenset[str] = frozenset()
    """What a start may ask for beyond *scopes*."""
    required_scopes: frozenset[str] | None = None
    """Without which a grant is refused; None: without any that was asked for."""
    older_secrets: tuple[str, ...] = ()
    """Where the secrets before it are kept, while they are being replaced; used in order where one is refused."""
    key_id: str | None = None
    """Under which id the provider knows the client's key, where the secret is one (`private_key_jwt`)."""
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    """What the provider's addresses need of this client: its tenant, its version."""
    webhook: WebhookSettings | None = None
    """None: its events are not taken."""
    endpoints: Mapping[str, WebhookSettings] = dataclasses.field(default_factory=dict, hash=False)
    """Further addresses below the first, by their last part: of providers that have a secret per subscription."""


class ClientFaultsError(ValueError):
    """A client's configuration does not hold; *faults* is all that is wrong with it, in sentences."""

    def __init__(self, name: str, faults: list[str]) -> None:
        super().__init__(f"client {name}: " + "; ".join(faults))
        self.faults = tuple(faults)


def read_client(name: str, config: Mapping[str, object]) -> ProviderClient:
    """The client that *config* (parsed JSON) describes; raises `ClientFaultsError` with every fault, and no value."""
    faults: list[str] = []

    def must(holds: bool, fault: str) -> None:
        if not holds:
            faults.append(fault)

    must(NAME.fullmatch(name) is not None, "its name must match [A-Za-z0-9._-]{1,64}")
    for unknown in sorted(config.keys() - FIELDS):
        must(False, f"{unknown}: not a setting of a client (these are: {', '.join(sorted(FIELDS))})")
    provider = _text(config.get("provider"))
    must(bool(provider), "provider: name an entry of the catalogue")
    client_id = _text(config.get("client_id"))
    must(
        bool(client_id.strip()) and CLIENT_ID.fullmatch(client_id) is not None,
        "client_id: the id that the provider gave the app, in printable ASCII",
    )
    secrets = _secrets(config.get("secret"))
    must(
        len(secrets) <= SECRETS and all(SECRET_REF.fullmatch(each) for each in secrets),
        'secret: where it is kept, "ssm:<parameter name>" or "secretsmanager:<name or arn>", never the secret itself; '
        f"while it is replaced a list of up to {SECRETS}, the newest first",
    )
    scopes, further, required = (
        _scopes(config.get(field, [])) for field in ("scopes", "optional_scopes", "required_scopes")
    )
    for field, listed in (("scopes", scopes), ("optional_scopes", further), ("required_scopes", required)):
        must(all(SCOPE.fullmatch(scope) for scope in listed), f"{field}: a list of strings without spaces")
    must(set(required) <= {*scopes, *further, ""}, "required_scopes: name only scopes that can be asked for")
    confirmation = config.get("confirmation", "owner")
    must(confirmation in ("owner", "none"), 'confirmation: "owner" or "none"')
    purge_on_loss = config.get("purge_on_loss", False)
    must(isinstance(purge_on_loss, bool), "purge_on_loss: true or false")
    key_id = config.get("key_id")
    must(key_id is None or CLIENT_ID.fullmatch(_text(key_id)) is not None, "key_id: printable ASCII")
    variables = config.get("variables", {})
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        must(False, "variables: an object of strings, as the provider's entry names them")
        variables = {}
    webhook, endpoints = _webhook(config.get("webhook"), faults)
    if faults:
        raise ClientFaultsError(name, faults)
    return ProviderClient(
        name=name,
        provider=provider,
        client_id=client_id,
        secret_ref=secrets[0] if secrets else None,
        older_secrets=secrets[1:],
        scopes=scopes,
        confirmation="none" if confirmation == "none" else "owner",
        purge_on_loss=purge_on_loss is True,
        optional_scopes=frozenset(further),
        required_scopes=None if config.get("required_scopes") is None else frozenset(required),
        key_id=_text(key_id) or None,
        variables=dict(variables),
        webhook=webhook,
        endpoints=endpoints,
    )


def _webhook(told: object, faults: list[str]) -> tuple[WebhookSettings | None, Mapping[str, WebhookSettings]]:
    if told is None:
        return None, {}
    if not isinstance(told, dict):
        faults.append("webhook: an object")
        return None, {}
    listed = told.get("endpoints", {})
    if not isinstance(listed, dict) or len(listed) > ENDPOINTS:
        faults.append(f"webhook.endpoints: an object of {ENDPOINTS} at most")
        listed = {}
    endpoints = {}
    for endpoint, each in listed.items():
        if not isinstance(each, dict) or not NAME.fullmatch(str(endpoint)) or "endpoints" in each:
            faults.append("webhook.endpoints: objects like webhook itself, by names that match [A-Za-z0-9._-]{1,64}")
            continue
        endpoints[str(endpoint)] = _at_one_address(each, f"webhook.endpoints.{endpoint}", faults)
    return _at_one_address(told, "webhook", faults), endpoints


def _at_one_address(told: Mapping[str, object], where: str, faults: list[str]) -> WebhookSettings:
    for unknown in sorted(str(name) for name in told.keys() - WEBHOOK_FIELDS):
        faults.append(f"{where}: {unknown} is not a setting of it (these are: {', '.join(sorted(WEBHOOK_FIELDS))})")
    secrets = told.get("secrets", [])
    refs = [_text(ref) for ref in secrets] if isinstance(secrets, list) else [""]
    if len(refs) > LIVE_SECRETS or not all(SECRET_REF.fullmatch(ref) for ref in refs):
        faults.append(
            f'{where}.secrets: a list of {LIVE_SECRETS} at most, "ssm:<name>" or "secretsmanager:<name or arn>"'
        )
    for name in ("path", "verify_token"):
        if told.get(name) is not None and not SECRET_REF.fullmatch(_text(told[name])):
            faults.append(f"{where}.{name}: where it is kept, never the value itself")
    keys = told.get("keys", {})
    if not isinstance(keys, dict) or not all(isinstance(each, str) for each in keys.values()):
        faults.append(f"{where}.keys: an object of public keys or certificates, as text")
        keys = {}
    for name in ("hook_id", "account"):
        if told.get(name) is not None and not CLIENT_ID.fullmatch(_text(told[name])):
            faults.append(f"{where}.{name}: text, in printable ASCII")
    if told.get("status_page") is not None and not STATUS_PAGE.fullmatch(_text(told["status_page"])):
        faults.append(f"{where}.status_page: an https address of the app, in printable ASCII")
    return WebhookSettings(
        secret_refs=tuple(refs),
        path_ref=_text(told.get("path")) or None,
        keys={str(name): _text(value) for name, value in keys.items()},
        verify_token_ref=_text(told.get("verify_token")) or None,
        hook_id=_text(told.get("hook_id")) or None,
        account=_text(told.get("account")) or None,
        status_page=_text(told.get("status_page")) or None,
    )


def _secrets(told: object) -> tuple[str, ...]:
    """One, or several in order; what is neither is one that does not match."""
    if told is None:
        return ()
    listed = told if isinstance(told, list) and told else [told]
    return tuple(_text(each) for each in listed)


def _scopes(listed: object) -> tuple[str, ...]:
    """As they are listed, each once; what is no list is one that does not match."""
    return tuple(dict.fromkeys(_text(scope) for scope in listed)) if isinstance(listed, list) else ("",)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
