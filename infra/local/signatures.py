"""
Signature Version 4 for the local API: checking a request's signature, and signing one with httpx.

The arithmetic is botocore's. What is ours is the judgement: which headers must be signed, how old a signature may be,
and that the body is the one that was signed.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

from infra.local.asgi import Headers

SERVICE = "execute-api"
MAX_SKEW_S = 300
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 +Credential=(?P<credential>[^, ]+), *SignedHeaders=(?P<signed>[^, ]+), "
    r"*Signature=(?P<signature>[0-9a-f]{64})"
)


class SignatureRefusedError(Exception):
    """The request is not signed by a key we know; the reason is for the log, not for the caller."""


@dataclass(frozen=True)
class Request:
    """What a signature covers, as it came over the wire."""

    method: str
    raw_path: str
    query: str
    headers: Headers
    body: bytes = field(repr=False)

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]


class _AsPresented(SigV4Auth):
    """botocore's signer, over exactly the headers that the caller says it signed."""

    def headers_to_sign(self, request: AWSRequest) -> HTTPHeaders:
        return request.headers


def verified_access_key(
    request: Request, *, region: str, secret_of: Callable[[str], str | None], now: datetime | None = None
) -> str:
    """The access key that signed *request*; `SignatureRefusedError` if none that we know did."""
    authorization = request.values("authorization")
    if len(authorization) != 1:
        raise SignatureRefusedError("no single Authorization header")
    parts = _AUTHORIZATION.fullmatch(authorization[0].strip())
    if parts is None:
        raise SignatureRefusedError("not a Signature Version 4 header")
    stamp = _fresh_timestamp(request, now or datetime.now(UTC))
    access_key, _, scope = parts["credential"].partition("/")
    if scope != f"{stamp[:8]}/{region}/{SERVICE}/aws4_request":
        raise SignatureRefusedError("wrong credential scope")
    secret = secret_of(access_key)
    if secret is None or request.values("x-amz-security-token"):
        raise SignatureRefusedError("unknown access key or session token")
    signed = parts["signed"].split(";")
    _require_signed(request, signed)
    digest = hashlib.sha256(request.body).hexdigest()
    if any(value != digest for value in request.values("x-amz-content-sha256")):
        raise SignatureRefusedError("the body is not the one that was signed")
    if not hmac.compare_digest(_signature(request, signed, stamp, access_key, secret, region), parts["signature"]):
        raise SignatureRefusedError("signature does not match")
    return access_key


def _fresh_timestamp(request: Request, now: datetime) -> str:
    stamps = request.values("x-amz-date")
    if len(stamps) != 1:
        raise SignatureRefusedError("no single X-Amz-Date header")
    try:
        signed_at = datetime.strptime(stamps[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SignatureRefusedError("unreadable X-Amz-Date") from None
    if abs((now - signed_at).total_seconds()) > MAX_SKEW_S:
        raise SignatureRefusedError("signed too long ago or in the future")
    return stamps[0]


def _require_signed(request: Request, signed: list[str]) -> None:
    if signed != sorted(set(signed)):
        raise SignatureRefusedError("SignedHeaders is not a sorted set")
    must = {"host"} | {name for name, _ in request.headers if name.startswith("x-amz-")}
    if not must <= set(signed) or not set(signed) <= {name for name, _ in request.headers}:
        raise SignatureRefusedError("a header that must be signed is not, or a signed one is missing")


def _signature(request: Request, signed: list[str], stamp: str, access_key: str, secret: str, region: str) -> str:
    presented = AWSRequest(
        method=request.method,
        url=f"http://{request.values('host')[0]}{request.raw_path}" + (f"?{request.query}" if request.query else ""),
        data=request.body,
    )
    for name, value in request.headers:
        if name in signed:
            presented.headers.add_header(name, value)
    presented.context["timestamp"] = stamp
    signer = _AsPresented(Credentials(access_key, secret), SERVICE, region)
    return str(signer.signature(signer.string_to_sign(presented, signer.canonical_request(presented)), presented))


class SigV4(httpx.Auth):
    """Signs each request of an httpx client for the local API."""

    requires_request_body = True

    def __init__(self, access_key: str, secret: str, region: str) -> None:
        self._signer = SigV4Auth(Credentials(access_key, secret), SERVICE, region)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add X-Amz-Date and Authorization; the host and the content type are signed with them."""
        to_sign = AWSRequest(method=request.method, url=str(request.url), data=request.content)
        to_sign.headers["host"] = request.headers["host"]
        if "content-type" in request.headers:
            to_sign.headers["content-type"] = request.headers["content-type"]
        self._signer.add_auth(to_sign)
        for name in ("X-Amz-Date", "Authorization"):
            request.headers[name] = to_sign.headers[name]
        yield request
