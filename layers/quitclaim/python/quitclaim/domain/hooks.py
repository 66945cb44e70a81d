"""Hooks: what the app is asked to do, where it is asked, and what its answer means (docs/hooks.md)."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SECRET_REF: Final = re.compile(r"ssm:/[A-Za-z0-9/_.-]+")
FUNCTION: Final = re.compile(
    r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?"
)
FIELDS: Final = frozenset({"url", "secrets", "function"})
SECRETS: Final = 2
"""Live at once, so that one can be replaced while the app still checks by the other."""


class HookKind(StrEnum):
    """What the app may be asked."""

    PURGE = "purge"
    WEBHOOK_ACCEPTED = "webhook.accepted"
    SOURCE_OBSERVED = "source.observed"
    CONNECTION_ESTABLISHING = "connection.establishing"


@dataclass(frozen=True)
class Hook:
    """Where one kind is asked: at a URL, signed with each of its secrets, or by invoking a function of the app's."""

    kind: HookKind
    url: str | None = None
    secret_refs: tuple[str, ...] = ()
    function: str | None = None


class HookFaultsError(ValueError):
    """A hook's configuration does not hold; *faults* is all that is wrong with it, in sentences, and no value."""

    def __init__(self, kind: str, faults: list[str]) -> None:
        super().__init__(f"hook {kind}: " + "; ".join(faults))
        self.faults = tuple(faults)


def read_hook(kind: str, config: Mapping[str, object]) -> Hook:
    """The hook that *config* (parsed JSON) describes; where its URL may lead is judged by who calls it."""
    faults = [f"{name}: not a setting of a hook" for name in sorted(config.keys() - FIELDS)]
    if kind not in HookKind:
        faults.append(f"no such hook (these are: {', '.join(HookKind)})")
    url, function, secrets = config.get("url"), config.get("function"), config.get("secrets", [])
    if (url is None) == (function is None):
        faults.append("either url or function")
    if url is not None and not isinstance(url, str):
        faults.append("url: a string")
    if function is not None and not (isinstance(function, str) and FUNCTION.fullmatch(function)):
        faults.append("function: the ARN of a Lambda function")
    refs = tuple(each for each in secrets if isinstance(each, str)) if isinstance(secrets, list) else ()
    if not isinstance(secrets, list) or len(refs) != len(secrets) or not all(map(SECRET_REF.fullmatch, refs)):
        faults.append('secrets: where they are kept, ["ssm:/<parameter name>"], never the secrets themselves')
    elif (url is not None and not 1 <= len(secrets) <= SECRETS) or (function is not None and secrets):
        faults.append("secrets: one or two with a url, none with a function")
    if faults:
        raise HookFaultsError(kind, faults)
    assert url is None or isinstance(url, str)  # noqa: S101 - held above
    assert function is None or isinstance(function, str)  # noqa: S101 - held above
    return Hook(HookKind(kind), url, refs, function)


@dataclass(frozen=True)
class HookCall:
    """
    One thing that the app is asked. *id* is the same however often it is asked, so that the app does it once; *at*:
    when the reason for it came about.
    """

    kind: HookKind
    id: str
    at: int
    data: Mapping[str, Any] = field(repr=False)


def hook_id(kind: HookKind, *parts: str) -> str:
    """The stable id of what is asked: of *parts*, which name it within the stack."""
    return f"hook_{hashlib.sha256('#'.join((kind, *parts)).encode()).hexdigest()[:32]}"


class HookOutcome(StrEnum):
    """What became of asking."""

    DONE = "done"
    LATER = "later"
    """The app has taken note, and is asked again."""
    FAILED = "failed"
    """It said no, or something that is no answer; it is asked again."""
    UNREACHED = "unreached"
    """Nobody answered in time, or it could not be asked; it may have been reached all the same."""


class HookWord(StrEnum):
    """What the app may say beside that it is done, where it is asked for more than that."""

    ADMITTED = "admitted"
    """It takes the source: its own record of that is written."""
    DEFERRED = "deferred"
    """It has not decided, and wants the event all the same."""
    REMOVED = "removed"
    """It wants nothing of the source."""


@dataclass(frozen=True)
class HookAnswer:
    """The outcome, in one word why, and what the app says where it is done."""

    outcome: HookOutcome
    reason: str = ""
    word: HookWord | None = None

    @property
    def is_done(self) -> bool:
        """Whether the app says that it has done it."""
        return self.outcome is HookOutcome.DONE
