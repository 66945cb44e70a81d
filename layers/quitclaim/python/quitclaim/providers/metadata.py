"""
A catalogue entry held against what its authorization server says of itself (RFC 8414, OpenID Connect Discovery 1.0).

    python -m quitclaim.providers compare ENTRY [--from URL_OR_FILE]

For whoever writes or checks an entry. No function reads such a document, and nothing at run time follows one: it would
be addresses that somebody else chooses.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

from quitclaim.providers.oauth2 import build_keys
from quitclaim.providers.spec import Catalogue, ProviderSpec, spec_of
from quitclaim.providers.transport import RawAnswer, send, sync_http

TIMEOUT_MS: Final = 15_000
AUTH_METHODS: Final[Mapping[str, frozenset[str]]] = {
    "basic": frozenset({"client_secret_basic"}),
    "post": frozenset({"client_secret_post"}),
    "none": frozenset({"none"}),
    "id_only": frozenset({"none"}),
    "private_key_jwt": frozenset({"private_key_jwt"}),
    "bearer_secret": frozenset(),
}
"""How the registry of RFC 7591 section 2 calls them."""


@dataclass(frozen=True)
class Difference:
    """One thing that entry and server say differently, or that only the server says."""

    field: str
    kind: Literal["contradicts", "missing"]
    entry: str
    server: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.field} is {self.entry}; the server says {self.server}"


def differences(spec: ProviderSpec, metadata: Mapping[str, Any]) -> list[Difference]:
    """Every difference; a thing of which the server says nothing is none."""
    return [*_of_addresses(spec, metadata), *_of_methods(spec, metadata), *_of_defences(spec, metadata)]


def _of_addresses(spec: ProviderSpec, metadata: Mapping[str, Any]) -> Iterator[Difference]:
    revocation, identity = spec.revocation.request, spec.identity.request
    known = {
        "authorize.issuer": (spec.authorize.issuer, "issuer"),
        "oidc.issuer": (None if spec.oidc is None else spec.oidc.issuer, "issuer"),
        "authorize.url": (spec.authorize.url, "authorization_endpoint"),
        "token.url": (spec.token.url, "token_endpoint"),
        "authorize.par_url": (spec.authorize.par_url, "pushed_authorization_request_endpoint"),
        "revocation.url": (None if revocation is None else revocation.url, "revocation_endpoint"),
        "oidc.jwks_url": (None if spec.oidc is None else spec.oidc.jwks_url, "jwks_uri"),
        "identity.url": (None if identity is None else identity.url, "userinfo_endpoint"),
    }
    for field, (ours, name) in known.items():
        theirs = metadata.get(name)
        if not isinstance(theirs, str) or ours == theirs or "{" in (ours or ""):
            continue
        if ours is None:
            # An identity in the token answer or the ID token needs no address; a shape of its own has another one.
            if field == "revocation.url" or (field.startswith("oidc") and spec.oidc is not None):
                yield Difference(field, "missing", "not written", theirs)
            continue
        if field == "revocation.url" and spec.revocation.shape not in ("rfc7009_form", "query_or_form_token"):
            continue
        yield Difference(field, "contradicts", ours, theirs)


def _of_methods(spec: ProviderSpec, metadata: Mapping[str, Any]) -> Iterator[Difference]:
    # RFC 8414 section 2: left out, both lists mean client_secret_basic. Of the second no server means it.
    if "token_endpoint" in metadata:
        taken = _listed(metadata, "token_endpoint_auth_methods_supported") or frozenset({"client_secret_basic"})
        ours = AUTH_METHODS[spec.token.client_auth]
        if ours and not ours & taken:
            yield Difference("token.client_auth", "contradicts", spec.token.client_auth, _told(taken))
    request = spec.revocation.request
    if "revocation_endpoint" in metadata and request is not None and spec.revocation.shape == "rfc7009_form":
        taken = _listed(metadata, "revocation_endpoint_auth_methods_supported")
        ours = AUTH_METHODS[request.client_auth]
        if ours and taken and not ours & taken:
            yield Difference("revocation.client_auth", "contradicts", request.client_auth, _told(taken))
    modes = _listed(metadata, "response_modes_supported")
    if modes and spec.authorize.response_mode not in modes:
        yield Difference("authorize.response_mode", "contradicts", spec.authorize.response_mode, _told(modes))
    algorithms = _listed(metadata, "id_token_signing_alg_values_supported")
    if spec.oidc is not None and algorithms and not algorithms & set(spec.oidc.algorithms):
        yield Difference("oidc.algorithms", "contradicts", _told(spec.oidc.algorithms), _told(algorithms))


def _of_defences(spec: ProviderSpec, metadata: Mapping[str, Any]) -> Iterator[Difference]:
    """What a server announces in its clients' defence must be in the entry (S-3, S-4)."""
    told = spec.authorize
    challenges = _listed(metadata, "code_challenge_methods_supported")
    if "S256" in challenges and told.pkce == "none":
        yield Difference("authorize.pkce", "contradicts", "none", _told(challenges))
    if challenges and "S256" not in challenges and told.pkce == "required":
        yield Difference("authorize.pkce", "contradicts", "required", _told(challenges))
    if metadata.get("authorization_response_iss_parameter_supported") is True and told.issuer_announced != "yes":
        yield Difference("authorize.issuer_announced", "missing", told.issuer_announced, "yes")
    if metadata.get("require_pushed_authorization_requests") is True and told.par != "yes":
        yield Difference("authorize.par", "contradicts", told.par, "required")


def _listed(metadata: Mapping[str, Any], name: str) -> frozenset[str]:
    value = metadata.get(name)
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()


def _told(names: frozenset[str] | Sequence[str]) -> str:
    return ", ".join(sorted(names))


def places(issuer: str) -> list[str]:
    """Where the documents of an issuer lie (RFC 8414 sections 3 and 5; discovery section 4)."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    return [
        urlunsplit(parts._replace(path=f"/.well-known/oauth-authorization-server{path}")),
        urlunsplit(parts._replace(path=f"{path}/.well-known/openid-configuration")),
    ]


def compared(entry: str, source: str | None = None) -> list[Difference]:
    """
    The differences of an entry, by its id or its compiled file. Raises `NoDocumentError`.

    *source*: an address or a file to read the document from, instead of below the entry's issuer.
    """
    path = Path(entry)
    spec = spec_of(json.loads(path.read_text("utf-8"))) if path.is_file() else Catalogue().get(entry)
    issuer = spec.oidc.issuer if spec.oidc is not None else spec.authorize.issuer
    if source is None and issuer is None:
        raise NoDocumentError(f"{spec.id} has no issuer: name the document with --from")
    found = _read(source, issuer)
    if found is None:
        raise NoDocumentError("no document was found")
    return differences(spec, found)


class NoDocumentError(Exception):
    """There is nothing to compare with."""


def _read(source: str | None, issuer: str | None) -> Mapping[str, Any] | None:
    """The document; one that names another issuer than it was looked for under is none (RFC 8414 section 3.3)."""
    if source is not None and Path(source).is_file():
        return _document(Path(source).read_bytes())
    http = sync_http()
    for url in [source] if source is not None else places(issuer or ""):
        answer = send(http, build_keys(url), TIMEOUT_MS)
        if isinstance(answer, RawAnswer) and answer.status == 200 and answer.complete:
            found = _document(answer.body)
            if found is not None and (source is not None or found.get("issuer") == issuer):
                return found
    return None


def _document(raw: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
