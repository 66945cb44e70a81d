"""What one function asks of another, written down instead of sent."""

from collections.abc import Callable, Sequence

from quitclaim.domain.hooks import HookAnswer, HookCall, HookKind, HookOutcome, HookWord
from quitclaim.domain.ids import ConnectionRef


class RecordingKick:
    """`ports.Kick`: remembers which revocations somebody wanted to be looked at."""

    def __init__(self) -> None:
        self.rids: list[str] = []

    def revoke_now(self, rids: Sequence[str]) -> None:
        self.rids.extend(rids)


class RecordingReplay:
    """`ports.Replay`: remembers the request, and carries it out where a test says how."""

    def __init__(self) -> None:
        self.asked: list[tuple[ConnectionRef, str]] = []
        self.carry_out: Callable[[ConnectionRef, str], None] | None = None

    def refresh(self, ref: ConnectionRef, pair: str) -> None:
        self.asked.append((ref, pair))
        if self.carry_out is not None:
            self.carry_out(ref, pair)


class RecordingHooks:
    """`ports.AppHooks`: the app has those that a test sets, and answers as it says; every question is remembered."""

    def __init__(self) -> None:
        self.answers: dict[HookKind, Callable[[HookCall], HookOutcome | HookWord]] = {}
        self.asked: list[HookCall] = []

    def has(self, kind: HookKind) -> bool:
        return kind in self.answers

    def ask(self, call: HookCall, timeout_ms: int = 0) -> HookAnswer:
        self.asked.append(call)
        said = self.answers[call.kind](call)
        return HookAnswer(HookOutcome.DONE, word=said) if isinstance(said, HookWord) else HookAnswer(said)


class RecordingForward:
    """`ports.Forward`: remembers what was put before those who handle deliveries."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.replayed: list[tuple[str, str]] = []

    def send(self, client: str, digest: str, after_ms: int = 0) -> None:
        self.sent.append((client, digest))

    def replay(self, client: str, account: str) -> None:
        self.replayed.append((client, account))
