"""
Tells the app: asks one of its hooks over HTTPS, signed as Standard Webhooks has it, or by invoking its function.

One request, one answer, in a bounded time; no retry (who asks, asks again), no redirect, only at public addresses. An
answer is read for one word and never kept.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.hooks import Hook, HookAnswer, HookCall, HookKind, HookOutcome, HookWord
from quitclaim.domain.limits import HOOK_CALL_MS, HOOK_PAUSE_MS
from quitclaim.domain.secret import Secret
from quitclaim.providers.addresses import fault_of_url
from quitclaim.providers.transport import Answer, OutgoingRequest, RawAnswer

VERSION: Final = 1
PREFIX: Final = "whsec_"
KEY_BYTES: Final = range(24, 65)
"""How long a signing key is (Standard Webhooks: 24 to 64 bytes)."""
BODY_CAP: Final = 1024 * 1024
ACCEPTED: Final = 202
LATER: Final = "later"

type Send = Callable[[OutgoingRequest, int], Answer]
"""Sends one request within so many milliseconds."""


class Invoke(Protocol):
    """Invokes a function of the app's and waits for it; None where nobody answered in time."""

    def __call__(self, function: str, payload: bytes, timeout_ms: int) -> "Invoked | None": ...


class Invoked(Protocol):
    """What an invocation came to."""

    @property
    def failed(self) -> bool:
        """Whether the function raised."""
        ...

    @property
    def payload(self) -> bytes:
        """What it answered."""
        ...


class HostApp:
    """
    `ports.AppHooks`.

    Where nobody answers, the same hook is not asked again for half a minute: a run that has a hundred things to ask
    must not wait a hundred times for somebody who is away. One that a single user waits for is asked each time.
    """

    def __init__(
        self,
        hooks: Callable[[], Mapping[HookKind, Hook | None]],
        secret: Callable[[str], Secret],
        send: Send,
        invoke: Invoke,
        now: Callable[[], int],
        *,
        allow_loopback: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hooks = hooks
        self._secret = secret
        self._send = send
        self._invoke = invoke
        self._now = now
        self._allow_loopback = allow_loopback
        self._asked_again: dict[HookKind, int] = {}

    def has(self, kind: HookKind) -> bool:
        """See `ports.AppHooks`."""
        return kind in self._hooks()

    def ask(self, call: HookCall, timeout_ms: int = HOOK_CALL_MS) -> HookAnswer:
        """See `ports.AppHooks`."""
        if self._now() < self._asked_again.get(call.kind, 0):
            return HookAnswer(HookOutcome.UNREACHED, "paused")
        try:
            answer = self._asked(call, timeout_ms)
        except QuitclaimError as fault:
            answer = HookAnswer(HookOutcome.UNREACHED, fault.code.lower())
        if answer.outcome is HookOutcome.UNREACHED and call.kind is not HookKind.CONNECTION_ESTABLISHING:
            self._asked_again[call.kind] = self._now() + HOOK_PAUSE_MS
        return answer

    def _asked(self, call: HookCall, timeout_ms: int) -> HookAnswer:
        hook = self._hooks().get(call.kind)
        if hook is None:
            return HookAnswer(HookOutcome.UNREACHED, "not_set_up")
        if hook.function is not None:
            payload = _body({**_envelope(call), "id": call.id})
            told = self._invoke(hook.function, payload, timeout_ms)
            return _invoked(told)
        url, body = hook.url or "", _body(_envelope(call))
        if fault_of_url(url, allow_loopback=self._allow_loopback()) is not None:
            return HookAnswer(HookOutcome.UNREACHED, "address_not_allowed")
        if len(body) > BODY_CAP:
            return HookAnswer(HookOutcome.FAILED, "too_large")
        headers = {
            "content-type": "application/json",
            "webhook-id": call.id,
            "webhook-timestamp": str(self._now() // 1000),
        }
        keys = [_key(self._secret(ref)) for ref in hook.secret_refs]
        if None in keys or not keys:
            return HookAnswer(HookOutcome.UNREACHED, "no_signing_secret")
        signed = f"{call.id}.{headers['webhook-timestamp']}.".encode() + body
        headers["webhook-signature"] = " ".join(_signature(key, signed) for key in keys if key is not None)
        return _answered(self._send(OutgoingRequest("POST", url, headers, body), timeout_ms))


def _envelope(call: HookCall) -> dict[str, Any]:
    at = datetime.fromtimestamp(call.at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"version": VERSION, "type": call.kind.value, "timestamp": at, "data": dict(call.data)}


def _body(envelope: dict[str, Any]) -> bytes:
    return json.dumps(envelope, separators=(",", ":")).encode()


def _key(secret: Secret) -> bytes | None:
    """The signing key that a secret spells (`whsec_` and base64); None for anything else."""
    text = secret.reveal()
    if not text.startswith(PREFIX):
        return None
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) in KEY_BYTES else None


def _signature(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _answered(answer: Answer) -> HookAnswer:
    if not isinstance(answer, RawAnswer):
        return HookAnswer(HookOutcome.UNREACHED, answer.reason)
    if not 200 <= answer.status < 300:
        return HookAnswer(HookOutcome.FAILED, f"status_{answer.status}")
    said = _said(answer.body)
    if answer.status == ACCEPTED or said == LATER:
        return HookAnswer(HookOutcome.LATER)
    return HookAnswer(HookOutcome.DONE, word=_word(said))


def _invoked(told: Invoked | None) -> HookAnswer:
    if told is None:
        return HookAnswer(HookOutcome.UNREACHED, "no_answer")
    if told.failed:
        return HookAnswer(HookOutcome.FAILED, "function_error")
    said = _said(told.payload)
    return HookAnswer(HookOutcome.LATER) if said == LATER else HookAnswer(HookOutcome.DONE, word=_word(said))


def _said(body: bytes) -> Any:
    """The one word that an answer is read for; anything else is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found.get("status") if isinstance(found, dict) else None


def _word(said: Any) -> HookWord | None:
    return HookWord(said) if said in tuple(HookWord) else None
