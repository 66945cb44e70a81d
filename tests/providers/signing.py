"""
Requests as a provider of the catalogue would send them, signed by what its entry says: the other direction of the
engine, so that what it takes can also be shown to who else verifies that scheme.
"""

import base64
import hmac
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from quitclaim.domain.secret import Secret
from quitclaim.domain.webhooks import Incoming, WebhookKeys
from quitclaim.providers.signatures import SignatureSpec, decoded_key
from quitclaim.providers.spec import Catalogue
from quitclaim.providers.webhooks import ProviderHook, WebhookSpec

NOW: Final = 1_800_000_000_000
URL: Final = "https://hooks.example.com/webhooks/acme"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER: Final = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY: Final = b'{"id":"e-1","type":"made","text":"caf\\u00e9 \xe2\x98\x83"}'
CATALOGUE: Final = Catalogue()


def spec_of(provider: str) -> WebhookSpec:
    """What the catalogue says of a provider's webhooks."""
    found = CATALOGUE.get(provider).webhook
    assert found is not None, provider
    return found


def with_webhooks(*schemes: str) -> list[str]:
    """Providers whose events are taken, of these schemes or of all."""
    found = []
    for provider in CATALOGUE.ids():
        webhook = CATALOGUE.get(provider).webhook
        if webhook is not None and (not schemes or webhook.signature.scheme in schemes):
            found.append(provider)
    return found


def a_hook(provider: str, *secrets: str, spec: WebhookSpec | None = None, **keys: Any) -> ProviderHook:
    """One client's hook at a provider."""
    opened = WebhookKeys(secrets=tuple(map(Secret, secrets or (SECRET,))), **keys)
    return ProviderHook(provider, "acme", None, spec or spec_of(provider), opened, client_id="client-1")


def a_request(body: bytes = BODY, method: str = "POST", url: str = URL, **query: str) -> Incoming:
    """One without any signature."""
    return Incoming(method, url, {"content-type": "application/json"}, query, body)


@dataclass(frozen=True)
class Signer:
    """Signs as *spec* says, under *secrets*, one signature each."""

    spec: SignatureSpec
    secrets: tuple[str, ...] = (SECRET,)
    at: int = NOW
    id: str = "msg-1"
    extra: tuple[str, ...] = field(default=())
    """Further elements of a header that holds several."""

    def signed(self, request: Incoming) -> Incoming:
        """*request* with its signature."""
        spec = self.spec
        time = self._time()
        headers = dict(request.headers)
        parts = {
            "body": request.body,
            "url": request.url.encode(),
            "method": request.method.encode(),
            "timestamp": time.encode(),
            "id": self.id.encode(),
        }
        message = b"".join(part[1:].encode() if part.startswith("=") else parts[part] for part in spec.parts)
        spelled = [spec.prefix + self._spelled(self._digest(secret, message)) for secret in self.secrets]
        if spec.timestamp is not None:
            where, _, name = spec.timestamp.at.partition(":")
            if where == "header":
                headers[name] = time
            elif where == "signature":
                spelled.insert(0, name + time)
        if spec.id_header is not None:
            headers[spec.id_header] = self.id
        if spec.separator is not None:
            headers[spec.headers[0]] = spec.separator.join([*self.extra, *spelled])
        else:
            headers |= dict(zip(spec.headers, spelled, strict=False))
        return replace(request, headers=headers)

    def _time(self) -> str:
        unit = self.spec.timestamp.unit if self.spec.timestamp is not None else "s"
        if unit == "rfc3339":
            return datetime.fromtimestamp(self.at / 1000, UTC).isoformat().replace("+00:00", "Z")
        return str(self.at // 1000 if unit == "s" else self.at)

    def _digest(self, secret: str, message: bytes) -> bytes:
        return hmac.digest(decoded_key(secret, self.spec.key_decoding) or b"", message, self.spec.algorithm)

    def _spelled(self, digest: bytes) -> str:
        match self.spec.encoding:
            case "hex":
                return digest.hex()
            case "hex_upper":
                return digest.hex().upper()
            case "base64url":
                return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            case _:
                return base64.b64encode(digest).decode()
