"""
What an answer means: the tables by which every status, body and silence becomes one outcome.

A verdict is believed only where the provider itself gave it. A page of HTML is never one: it comes from whatever stands
before the provider. An `error` member wins over the status, also over 200 (RB-07). Reading is tolerant where providers
are known to be careless, and nothing that could be a live token is dropped.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from quitclaim.domain.accounts import name_of
from quitclaim.domain.limits import TOKEN_MAX_CHARS
from quitclaim.domain.outcomes import (
    IdentityAnswer,
    IdentityOutcome,
    LooseToken,
    Outcome,
    PushAnswer,
    RevokeAnswer,
    RevokeOutcome,
    TokenAnswer,
    TokenGrant,
)
from quitclaim.domain.secret import Secret
from quitclaim.domain.tokens import MAIN
from quitclaim.providers.id_token import named_subject
from quitclaim.providers.placeholders import PlaceholderRefusedError, Values, in_answer
from quitclaim.providers.spec import AnswerPattern, PairPaths, ProviderSpec, ResponseSpec, SuccessSpec, TokenSpec
from quitclaim.providers.transport import Answer, NoAnswer, RawAnswer

type Operation = Literal["exchange", "refresh"]
NO_VALUES: Final[Values] = {}

DEAD: Final = frozenset({"invalid_grant", "bad_verification_code", "bad_refresh_token", "invalid_refresh_token"})
"""The code or grant is dead (RFC 6749 section 5.2; the others as GitHub and Slack spell it)."""
CONFIG: Final = frozenset(
    {
        "incorrect_client_credentials",
        "invalid_client",
        "invalid_scope",
        "redirect_uri_mismatch",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
"""The client's settings are refused, which says nothing about any grant (RB-20)."""
TRY_LATER: Final = frozenset(
    {"rate_limit_exceeded", "rate_limited", "ratelimited", "slow_down", "temporarily_unavailable", "too_many_requests"}
)
"""Not now, and nothing was done."""
BROKE: Final = frozenset({"fatal_error", "internal_error", "server_error"})
"""The provider broke while it worked: something may have been done."""
NOT_NOW: Final = frozenset({408, 425, 429, 503})
"""Statuses by which a request is turned away before it is worked on, whoever says so."""
WRONG_REQUEST: Final = frozenset({"invalid_client", "invalid_request", "unauthorized_client", "unsupported_token_type"})
"""Errors of a revocation (RFC 7009 section 2.2.1) that the same request will meet again."""

UNREAD: Final = frozenset({400, 401, 404, 410})
"""Refusals that may mean a dead token, where nobody has read what one is answered."""

TOKEN_TEXT: Final = re.compile(r"[\x20-\x7e]+")  # VSCHAR, RFC 6749 appendix A
CODE: Final = re.compile(r"[A-Za-z_]{1,40}")
LIFETIME_CAP_S: Final = 366 * 86_400
"""What is said to live longer is looked at again after a year: the unit may be another one (RB-04)."""


# --- a token answer ----------------------------------------------------------------------------------------------


def judge_token(
    spec: ProviderSpec,
    answer: Answer,
    operation: Operation,
    sent: frozenset[str] = frozenset(),
    variables: Values = NO_VALUES,
) -> TokenAnswer:
    """
    The outcome of an exchange or refresh. *sent* is what the request carried: an echo of it is no new token.
    *variables* are the placeholders that are known so far; an exchange's answer may fill more of them.

    A refusal without a known code ends an exchange, whose code is spent either way, and never a grant (RB-16): the
    caller counts those by their `error_code`.
    """
    if isinstance(answer, NoAnswer):
        return TokenAnswer(Outcome.UNKNOWN if answer.sent else Outcome.NOT_SENT, answer.reason)
    body = read_body(answer, spec.token.errors.at)
    if answer.status in NOT_NOW:
        return TokenAnswer(
            Outcome.TRY_LATER, f"http_{answer.status}", body.error_code, retry_after_ms=answer.retry_after_ms
        )
    if body.has_error and answer.complete:
        judged = _of_error(spec.token, answer, body, operation)
    elif 200 <= answer.status < 300:
        grant = _grant(spec, answer, body, operation, variables) if answer.complete else None
        if grant is not None and not (operation == "exchange" and _has_others(spec, body, grant, sent)):
            return TokenAnswer(Outcome.GRANTED, grant=grant, variables=grant.variables)
        judged = TokenAnswer(Outcome.UNKNOWN, _unusable(answer, body) if grant is None else "more_tokens")
    else:
        judged = _of_status(answer, body, operation)
    if not 200 <= answer.status < 300:
        return judged
    salvaged = tuple(loose for loose in _loose_tokens(spec, answer.body, body) if loose.token.reveal() not in sent)
    return TokenAnswer(
        judged.outcome,
        judged.reason,
        judged.error_code,
        judged.retry_after_ms,
        judged.config_fault,
        judged.is_unexplained,
        salvaged=salvaged,
        variables={**variables, **_matching(spec, body.members)},
    )


def _of_error(token: TokenSpec, answer: RawAnswer, body: "Body", operation: Operation) -> TokenAnswer:
    code, after = body.error_code, answer.retry_after_ms
    raw = body.raw_code
    if code in DEAD or raw in token.errors.dead:
        return TokenAnswer(Outcome.REJECTED, "refused", code)
    if code in CONFIG or raw in token.errors.config:
        return TokenAnswer(Outcome.TRY_LATER, "client_refused", code, after, config_fault=True)
    if code in TRY_LATER or raw in token.errors.try_later:
        return TokenAnswer(Outcome.TRY_LATER, "busy", code, after)
    if code in BROKE or answer.status >= 500:
        return TokenAnswer(Outcome.UNKNOWN, "provider_broke", code, after)
    if operation == "exchange":
        return TokenAnswer(Outcome.REJECTED, "refused", code)
    return TokenAnswer(Outcome.TRY_LATER, "refused_without_verdict", code, after, is_unexplained=True)


def _of_status(answer: RawAnswer, body: "Body", operation: Operation) -> TokenAnswer:
    """No error member, no 2xx."""
    reason = "html" if body.is_html else f"http_{answer.status}"
    if answer.status < 400:  # a redirect: the address has moved, and who answered may have worked
        return TokenAnswer(Outcome.UNKNOWN, reason, config_fault=True)
    if answer.status >= 500 or not answer.complete:
        return TokenAnswer(Outcome.UNKNOWN, reason, retry_after_ms=answer.retry_after_ms)
    if body.is_html and operation == "exchange":
        # A filter may have stopped the answer, not the request. One acknowledgement too many is the lesser evil.
        return TokenAnswer(Outcome.UNKNOWN, reason)
    config_fault = answer.status in (401, 404, 405) and not body.is_html
    if operation == "exchange" and answer.status == 400:
        return TokenAnswer(Outcome.REJECTED, reason)
    return TokenAnswer(Outcome.TRY_LATER, reason, retry_after_ms=answer.retry_after_ms, config_fault=config_fault)


def _unusable(answer: RawAnswer, body: "Body") -> str:
    if not answer.complete:
        return "cut_off"
    return "html" if body.is_html else "malformed"


# --- the grant in it ---------------------------------------------------------------------------------------------


def _grant(
    spec: ProviderSpec, answer: RawAnswer, body: "Body", operation: Operation, variables: Values
) -> TokenGrant | None:
    """The grant; None if the answer holds no usable one."""
    members, at = body.members, spec.token.response
    if members is None or (spec.token.success is not None and not _is_success(spec.token.success, answer, body)):
        return None
    filled: Values = variables
    if operation == "exchange":
        try:
            there = {each.name: member(members, each.parameter) for each in spec.placeholders}
            filled = {**variables, **in_answer(spec.placeholders, there)}
        except PlaceholderRefusedError:
            return None  # nothing may be stored of it; its tokens are queued by what is known of it
    grant = _pair(spec, answer, members, PairPaths(MAIN, at.access_token, at.refresh_token, at.expires_in))
    if grant is None:
        return None
    # A refresh is one of a single pair, and is answered where the main one stands.
    others = [each for each in at.pairs if operation == "exchange" and member(members, each.access_token)]
    pairs = {each.name: _pair(spec, answer, members, each) for each in others}
    if not all(pairs.values()):
        return None
    token_type = member(members, at.token_type)
    id_token = _token(member(members, "id_token"))
    return replace(
        grant,
        token_type=token_type if isinstance(token_type, str) and CODE.fullmatch(token_type) else "Bearer",
        refresh_expires_in_s=next(
            (
                found
                for path in at.refresh_expires_in
                if (found := seconds(member(members, path), spec.token.expires_unit)) is not None
            ),
            seconds_until(member(members, at.refresh_expires_at), answer.date),
        ),
        scopes=_all_scopes(members, at),
        account_id=_account(member(members, spec.identity.in_token_response))
        or _account(filled.get(spec.identity.in_placeholder or ""))
        or (named_subject(id_token) if id_token is not None and spec.identity.in_id_token else None),
        names=_names(members, [(each.kind, each.in_token_response) for each in spec.identity.also]),
        id_token=id_token,
        variables=filled,
        pairs={name: pair for name, pair in pairs.items() if pair is not None},
    )


def _has_others(spec: ProviderSpec, body: "Body", grant: TokenGrant, sent: frozenset[str]) -> bool:
    """
    Whether the answer holds tokens beside the grant's pairs. Nobody would keep or revoke them, so that such an answer
    is no usable grant: all that it holds is queued.
    """
    pairs = (grant, *grant.pairs.values())
    own = {each.reveal() for pair in pairs for each in (pair.access_token, pair.refresh_token) if each is not None}
    return any(_token(value) is not None for value in dict(_in_members(body.members)).keys() - sent - own)


def _in_pairs(spec: ProviderSpec, body: "Body") -> dict[str, str]:
    """Token text and its kind, where the entry describes further pairs."""
    paths = [
        path
        for each in spec.token.response.pairs
        for path in ((each.access_token, "access_token"), (each.refresh_token, "refresh_token"))
    ]
    found = [(member(body.members, path), kind) for path, kind in paths]
    return {value: kind for value, kind in found if isinstance(value, str)}


def _all_scopes(members: Mapping[str, Any], at: ResponseSpec) -> frozenset[str] | None:
    """What was granted to every pair; None where the answer names nothing."""
    named = {"": _scopes(member(members, at.scope))} | {
        each.scope_prefix or "": _scopes(member(members, each.scope)) for each in at.pairs if each.scope is not None
    }
    if all(scopes is None for scopes in named.values()):
        return None
    return frozenset(f"{prefix}{scope}" for prefix, scopes in named.items() for scope in scopes or ())


def _pair(spec: ProviderSpec, answer: RawAnswer, members: Mapping[str, Any], at: PairPaths) -> TokenGrant | None:
    """One token pair of the answer; where the access token renews itself, it is its own refresh token."""
    access_token = _token(member(members, at.access_token))
    refresh_value = member(members, at.refresh_token)
    refresh_token = _token(refresh_value)
    if access_token is None or (refresh_token is None and refresh_value not in (None, "", False)):
        return None
    if spec.refresh.mode == "access_token_exchange":
        refresh_token = access_token
    lifetime = seconds(member(members, at.expires_in), spec.token.expires_unit)
    if lifetime is None and at.name == MAIN:
        lifetime = seconds_until(member(members, spec.token.response.expires_at), answer.date)
    default = spec.token.default_lifetime_s
    return TokenGrant(
        access_token=access_token,
        refresh_token=refresh_token,
        expires_in_s=lifetime if lifetime is not None else (default if isinstance(default, int) else None),
    )


def _matching(spec: ProviderSpec, members: Mapping[str, Any] | None) -> dict[str, str]:
    """What an unusable answer fills all the same: a salvaged token may be revoked by it."""
    filled: dict[str, str] = {}
    for each in spec.placeholders:
        if each.source == "token_response":
            with suppress(PlaceholderRefusedError):
                filled[each.name] = each.read(member(members, each.parameter))
    return filled


def member(members: Any, path: str | None) -> Any:
    """The value at a path of member names with dots between; None if there is none."""
    if path is None:
        return None
    for name in path.split("."):
        if isinstance(members, Mapping):
            members = members.get(name)
        elif isinstance(members, list) and name.isdigit() and int(name) < len(members):
            members = members[int(name)]
        else:
            return None
    return members


def seconds(value: Any, unit: Literal["s", "ms"] = "s") -> int | None:
    """A lifetime in seconds; numbers in text are read (RB-01). None for what is no lifetime (RB-02)."""
    if isinstance(value, str):
        try:
            value = float(value.strip()) if len(value) <= 32 else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    whole = int(value) // (1000 if unit == "ms" else 1)
    return min(whole, LIFETIME_CAP_S) if whole > 0 else None


def seconds_until(value: Any, date: float | None) -> int | None:
    """
    A lifetime in seconds, from an instant that the answer names: RFC 3339, or seconds since 1970.

    Counted from the answer's own clock (RFC 9110 section 6.6.1): ours may be another. None where one of both is
    missing.
    """
    if date is None or value is None:
        return None
    try:
        until = datetime.fromisoformat(value).timestamp() if isinstance(value, str) and "T" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isinstance(value, bool) else seconds(until - date)


def _token(value: Any) -> Secret | None:
    if isinstance(value, str) and len(value) <= TOKEN_MAX_CHARS and TOKEN_TEXT.fullmatch(value):
        return Secret(value)
    return None


def _scopes(value: Any) -> frozenset[str] | None:
    """Granted scopes: a list, or text with spaces or commas between."""
    names = re.split(r"[\s,]+", value) if isinstance(value, str) else value
    if not isinstance(names, list):
        return None
    return frozenset(name for name in names if isinstance(name, str) and name) or None


def _account(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if 0 < len(text) <= 512 else None


def _names(said: Any, where: list[tuple[str, str | None]]) -> frozenset[str]:
    """Further names of the account, as far as the answer says them."""
    found = [(kind, _account(each)) for kind, path in where if path is not None for each in _each_at(said, path)]
    return frozenset(name_of(kind, value) for kind, value in found if value is not None)


def _each_at(said: Any, path: str) -> Iterator[Any]:
    """The values at a path, in which `*` is each element of a list."""
    before, star, after = path.partition("*")
    if not star:
        yield member(said, path)
        return
    listed = member(said, before.rstrip(".")) if before else said
    for element in listed if isinstance(listed, list) else ():
        yield from _each_at(element, after.lstrip(".")) if after else [element]


def _loose_tokens(spec: ProviderSpec, raw: bytes, body: "Body") -> list[LooseToken]:
    """Every token in an answer that is no usable grant, refresh tokens first."""
    found = {**dict(_in_members(body.members)), **_in_pairs(spec, body)} if body.members is not None else {}
    text = raw.decode("utf-8", "replace")
    for kind, quoted in re.findall(r'"((?:access|refresh)_token)"\s*:\s*"([^"\\]+)"', text):
        found.setdefault(quoted, kind)
    for kind, encoded in re.findall(r"(?:^|&)((?:access|refresh)_token)=([^&\s]+)(?=&)", text):
        found.setdefault(dict(parse_qsl(f"t={encoded}")).get("t", ""), kind)
    loose = [LooseToken(kind, token) for value, kind in found.items() if (token := _token(value)) is not None]
    return sorted(loose, key=lambda each: each.kind, reverse=True)


def _in_members(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Token text and its kind, wherever it stands."""
    if depth > 6:
        return
    if isinstance(value, list):
        for each in value:
            yield from _in_members(each, depth + 1)
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name in ("access_token", "refresh_token") and isinstance(each, str):
                yield each, name
            else:
                yield from _in_members(each, depth + 1)


# --- an answer to a pushed request -------------------------------------------------------------------------------

REQUEST_URI: Final = re.compile(r"[\x21-\x7e]{1,512}")


def judge_push(answer: Answer) -> PushAnswer:
    """
    Where the pushed request lies (RFC 9126 section 2.2). A refusal is the client's settings' fault, for nobody else has
    written any of it (section 2.3).
    """
    if isinstance(answer, NoAnswer):
        return PushAnswer(reason=answer.reason)
    body = read_body(answer)
    if answer.status in NOT_NOW or answer.status >= 500 or body.is_html or not answer.complete:
        return PushAnswer(reason=f"http_{answer.status}", retry_after_ms=answer.retry_after_ms)
    uri = member(body.members, "request_uri")
    if answer.status in (200, 201) and not body.has_error and isinstance(uri, str) and REQUEST_URI.fullmatch(uri):
        return PushAnswer(Secret(uri))
    return PushAnswer(reason=body.error_code or f"http_{answer.status}", config_fault=True)


# --- an identity answer ------------------------------------------------------------------------------------------


def judge_identity(spec: ProviderSpec, answer: Answer) -> IdentityAnswer:
    """Whose grant it is. Only the provider's own 401 says that the access token is not taken."""
    if isinstance(answer, NoAnswer):
        return IdentityAnswer(IdentityOutcome.TRY_LATER, reason=answer.reason)
    body = read_body(answer)
    reason = "html" if body.is_html else f"http_{answer.status}"
    if answer.status == 401 and (answer.has_bearer_challenge or body.members is not None) and not body.is_html:
        return IdentityAnswer(IdentityOutcome.REFUSED, reason=reason)
    if not 200 <= answer.status < 300 or not answer.complete or body.is_html:
        return IdentityAnswer(IdentityOutcome.TRY_LATER, reason=reason, retry_after_ms=answer.retry_after_ms)
    said = body.members if body.listed is None else body.listed
    account = _account(member(said, spec.identity.field))
    if account is None or body.has_error:
        return IdentityAnswer(IdentityOutcome.UNREADABLE, reason="no_account")
    names = _names(said, [(each.kind, each.field) for each in spec.identity.also])
    return IdentityAnswer(IdentityOutcome.READ, account, names=names)


# --- a revocation answer -----------------------------------------------------------------------------------------


def judge_revoke(spec: ProviderSpec, answer: Answer) -> RevokeAnswer:
    """Whether the token is dead. Only the catalogue's predicates say so; 202 and a page never do (D-34, RB-27)."""
    if isinstance(answer, NoAnswer):
        return RevokeAnswer(RevokeOutcome.UNKNOWN if answer.sent else RevokeOutcome.DEFERRED, answer.reason)
    told, after = spec.revocation, answer.retry_after_ms
    body = read_body(answer, spec.token.errors.at)
    reason = "html" if body.is_html else body.error_code or f"http_{answer.status}"
    if answer.status in NOT_NOW:
        return RevokeAnswer(RevokeOutcome.DEFERRED, f"http_{answer.status}", after)
    if body.is_html or not answer.complete:
        outcome = RevokeOutcome.DEFERRED if 300 <= answer.status < 500 else RevokeOutcome.UNKNOWN
        return RevokeAnswer(outcome, reason if answer.complete else "cut_off", after)
    if told.success is not None and _is_success(told.success, answer, body):
        return RevokeAnswer(RevokeOutcome.CONFIRMED)
    if body.raw_code is not None and body.raw_code in told.try_later:
        return RevokeAnswer(RevokeOutcome.DEFERRED, reason, after)
    is_ours_to_mend = body.error_code in WRONG_REQUEST or _any_matches(told.permanent_errors, answer, body)
    # By a status alone nothing is gone that may be a wrong request: a mistyped client is refused with the same status.
    if _any_matches(told.already_gone, answer, body, only_named=is_ours_to_mend):
        return RevokeAnswer(RevokeOutcome.ALREADY_GONE, reason)
    if _any_matches(told.ambiguous, answer, body, only_named=is_ours_to_mend):
        return RevokeAnswer(RevokeOutcome.AMBIGUOUS, reason, after)
    if told.success is None and 200 <= answer.status < 300 and answer.status != 202 and not body.has_error:
        # It looks like one; nobody has read that it is.
        return RevokeAnswer(RevokeOutcome.AMBIGUOUS, reason, after, seems_done=True)
    if is_ours_to_mend:
        return RevokeAnswer(RevokeOutcome.PERMANENT_ERROR, reason, after)
    if answer.status in UNREAD and told.repeat == "unknown" and told.adapter is None:
        return RevokeAnswer(RevokeOutcome.AMBIGUOUS, reason, after)  # perhaps what a dead token is answered
    # What broke on the way may have been done; a refusal was not.
    outcome = RevokeOutcome.UNKNOWN if answer.status >= 500 else RevokeOutcome.DEFERRED
    return RevokeAnswer(outcome, reason, after)


def _is_success(success: SuccessSpec, answer: RawAnswer, body: "Body") -> bool:
    if answer.status not in success.status or body.has_error:
        return False
    if success.body == "empty":
        return not answer.body.strip()
    if success.body == "json":
        value = member(body.members, success.path)
        return type(value) is type(success.equals) and value == success.equals
    return True


def _any_matches(
    patterns: tuple[AnswerPattern, ...], answer: RawAnswer, body: "Body", *, only_named: bool = False
) -> bool:
    """Whether one of them fits; *only_named*: one that names the answer's error code."""
    return any(
        answer.status in each.status and (body.raw_code in each.errors if each.errors else not only_named)
        for each in patterns
    )


# --- a body ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Body:
    """A body as far as it could be read."""

    members: Mapping[str, Any] | None = None  # of its JSON object or form
    listed: list[Any] | None = None  # its JSON array
    is_html: bool = False
    has_error: bool = False
    raw_code: str | None = None  # compared with the catalogue's codes, shown to nobody

    @property
    def error_code(self) -> str | None:
        """The provider's error code, if it is a word: whatever else is there may be a token (RB-14)."""
        return self.raw_code if self.raw_code is not None and CODE.fullmatch(self.raw_code) else None


def read_body(answer: RawAnswer, error_at: str | None = None) -> Body:
    """
    JSON whatever it calls itself, else a form, else HTML, else nothing readable. *error_at* is where this provider puts
    its error codes, if not in `error`; zero is none (Withings).
    """
    try:
        text = answer.body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        text = ""
    members = _json_object(text)
    if members is None and answer.content_type != "text/html":
        members = _form(text, answer.content_type)
    if members is None:
        looks_like_a_page = text.startswith("<") or (answer.content_type == "text/html" and text != "")
        return Body(listed=_json_array(text), is_html=looks_like_a_page)
    told = member(members, error_at)
    if told not in (None, 0, "0", "") and isinstance(told, str | int) and not isinstance(told, bool):
        return Body(members, has_error=True, raw_code=str(told)[:100])
    has_error, code = _error(members)
    return Body(members, has_error=has_error, raw_code=code)


def _json_object(text: str) -> Mapping[str, Any] | None:
    value = _json(text) if text.startswith("{") else None
    return value if isinstance(value, dict) else None


def _json_array(text: str) -> list[Any] | None:
    value = _json(text) if text.startswith("[") else None
    return value if isinstance(value, list) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _form(text: str, content_type: str) -> Mapping[str, Any] | None:
    """A form-encoded body (RB-09); one with a name twice is not readable."""
    declared = content_type == "application/x-www-form-urlencoded"
    if not declared and not re.match(r"(access_token|error)=|[\w.%-]+=[^<>{}\s]*&(\S*&)?(access_token|error)=", text):
        return None
    pairs = parse_qsl(text, keep_blank_values=True)
    members = dict(pairs)
    return members if pairs and len(members) == len(pairs) else None


def _error(members: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Whether the body reports an error, and its code: as RFC 6749 says, or as Slack, Fitbit and Google APIs do."""
    error = members.get("error")
    if isinstance(error, Mapping):
        return True, _first_text(error, "type", "code", "status", ".tag")
    if isinstance(error, str) and error.strip():
        return True, error.strip()[:100]
    errors = members.get("errors")
    if isinstance(errors, list) and errors:
        first = errors[0]
        return True, _first_text(first, "errorType", "code", "error") if isinstance(first, Mapping) else None
    # Any other value that is not "no error" is one, and so is Slack's ok: false.
    return bool(error) or members.get("ok") is False, None


def _first_text(members: Mapping[str, Any], *names: str) -> str | None:
    return next((value[:100] for name in names if isinstance(value := members.get(name), str) and value), None)
