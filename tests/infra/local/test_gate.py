"""The gate before AWS: what passes it is not changed, and what it holds back has happened, or has not."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from infra.local.asgi import Receive, Scope, Send, answer, header, read_body
from infra.local.gate import Gate, Shut
from infra.local.listeners import Listeners

WAIT_S = 5.0


class Stand:
    """A gate, an AWS behind it that counts, and a worker that calls."""

    def __init__(self, gate: Gate, worker: httpx.AsyncClient, url: str) -> None:
        self.gate, self.url = gate, url
        self.acted: list[bytes] = []
        self._worker = worker

    async def aws(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Act, and answer with what the call said."""
        body = await read_body(receive, 1000)
        self.acted.append(body)
        await answer(send, 418, body[::-1], [("x-amzn-requestid", "r"), ("x-saw", header(scope, "authorization"))])

    async def call(self, body: bytes, name: str = "DynamoDB_20120810.UpdateItem") -> httpx.Response:
        """One AWS call."""
        headers = {"x-amz-target": name, "authorization": "signed"}
        return await self._worker.post(f"{self.url}/?a=b", content=body, headers=headers)

    async def until_waiting(self, count: int = 1) -> None:
        """Return once that many calls wait at the gate."""
        async with asyncio.timeout(WAIT_S):
            while self.gate.said("f")["waiting"] != count:
                await asyncio.sleep(0.01)


def at_a_gate(test: Callable[[Stand], Awaitable[None]]) -> None:
    """Run *test* on a stand."""

    async def run() -> None:
        listeners = Listeners()
        aws, way = listeners.reserve(), listeners.reserve()
        gate = Gate(f"http://127.0.0.1:{aws}", f"http://127.0.0.1:{aws}")
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as worker:
            stand = Stand(gate, worker, f"http://127.0.0.1:{way}")
            listeners.mount(aws, stand.aws)
            listeners.mount(way, gate.app_of("f"))
            await listeners.start()
            try:
                await test(stand)
            finally:
                await gate.close()
                await listeners.stop()

    asyncio.run(run())


def test_an_open_gate_changes_nothing_and_keeps_the_names() -> None:
    """Status, headers and body come back as AWS gave them."""

    async def test(stand: Stand) -> None:
        got = await stand.call(b"abc")
        await stand.call(b"", "TrentService.Decrypt")

        assert (got.status_code, got.content) == (418, b"cba")
        assert (got.headers["x-amzn-requestid"], got.headers["x-saw"]) == ("r", "signed")
        assert stand.gate.said("f") == {"waiting": 0, "calls": ["UpdateItem", "Decrypt"]}

    at_a_gate(test)


@pytest.mark.parametrize("after", [False, True])
def test_a_shut_gate_holds_the_nth_call_and_its_repetition(after: bool) -> None:
    """Before AWS acts, or after; other calls pass, and an open gate lets all go on."""

    async def test(stand: Stand) -> None:
        stand.gate.shut("f", Shut("UpdateItem", nth=2, after=after))
        await stand.call(b"1")
        await stand.call(b"other", "DynamoDB_20120810.GetItem")
        held = [asyncio.create_task(stand.call(body)) for body in (b"2", b"2 again")]
        await stand.until_waiting(2)
        assert len(stand.acted) == (4 if after else 2)

        assert stand.gate.open("f") == 2

        assert {(await each).content for each in held} == {b"2", b"niaga 2"}
        assert len(stand.acted) == 4

    at_a_gate(test)


@pytest.mark.parametrize("after", [False, True])
def test_a_call_whose_worker_has_gone_is_as_it_was_when_it_went(after: bool) -> None:
    """Held before AWS acts, it never reaches it."""

    async def test(stand: Stand) -> None:
        stand.gate.shut("f", Shut("UpdateItem", nth=1, after=after))
        held = asyncio.create_task(stand.call(b"1"))
        await stand.until_waiting()
        held.cancel()
        await stand.until_waiting(0)

        stand.gate.open("f")
        await stand.call(b"2")

        assert stand.acted == ([b"1", b"2"] if after else [b"2"])

    at_a_gate(test)
