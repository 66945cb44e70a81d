"""Request bodies: closed, strict, and refused without a word of what was sent."""

import json

import pytest

from quitclaim.domain.errors import InvalidBodyError
from quitclaim.runtime.bodies import Confirm, Connect, Reconnect, parsed

CANARY = "canary-31c9"
CONNECT = {"connection_id": "google", "provider": "google"}
CONFIRM = {"generation": 3, "code": "AB12C-DE34F"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Connect, CONNECT),
        (Connect, {**CONNECT, "client": "web", "return_to": "https://app.example/done"}),
        (Connect, {**CONNECT, "client": None, "return_to": None}),
        (Reconnect, {}),
        (Reconnect, {"return_to": "https://app.example/done"}),
        (Confirm, CONFIRM),
        (Confirm, {**CONFIRM, "generation": 2**53}),
    ],
)
def test_a_body_as_it_should_be(kind, body):
    """What is left out is None, or nothing."""
    found = parsed(kind, body).model_dump()

    assert {name: value for name, value in found.items() if value not in (None, {})} == {
        name: value for name, value in body.items() if value is not None
    }


REFUSED = [
    # (kind, body, the field that is named)
    (Connect, {}, "connection_id"),
    (Connect, {"provider": "google"}, "connection_id"),
    (Connect, {"connection_id": "google"}, "provider"),
    (Connect, {**CONNECT, "connection_id": ""}, "connection_id"),
    (Connect, {**CONNECT, "connection_id": None}, "connection_id"),
    (Connect, {**CONNECT, "connection_id": 7}, "connection_id"),
    (Connect, {**CONNECT, "connection_id": True}, "connection_id"),
    (Connect, {**CONNECT, "connection_id": [CANARY]}, "connection_id"),
    (Connect, {**CONNECT, "connection_id": {CANARY: CANARY}}, "connection_id"),
    (Connect, {**CONNECT, "provider": 1.5}, "provider"),
    (Connect, {**CONNECT, "provider": {"a": CANARY}}, "provider"),
    (Connect, {**CONNECT, "client": 1}, "client"),
    (Connect, {**CONNECT, "client": ""}, "client"),
    (Connect, {**CONNECT, "return_to": 1}, "return_to"),
    (Connect, {**CONNECT, "return_to": [CANARY]}, "return_to"),
    (Connect, {**CONNECT, "return_to": CANARY * 2_000}, "return_to"),
    (Connect, {**CONNECT, "more": CANARY}, "more"),
    (Connect, {**CONNECT, "access_token": CANARY}, "access_token"),
    (Connect, {**CONNECT, "m" * 1_000: CANARY}, "m" * 100),
    (Reconnect, {"connection_id": CANARY}, "connection_id"),
    (Reconnect, {"return_to": 1}, "return_to"),
    (Confirm, {}, "generation"),
    (Confirm, {**CONFIRM, "generation": "3"}, "generation"),
    (Confirm, {**CONFIRM, "generation": 3.0}, "generation"),
    (Confirm, {**CONFIRM, "generation": True}, "generation"),
    (Confirm, {**CONFIRM, "generation": 0}, "generation"),
    (Confirm, {**CONFIRM, "generation": -1}, "generation"),
    (Confirm, {**CONFIRM, "generation": None}, "generation"),
    (Confirm, {**CONFIRM, "generation": CANARY}, "generation"),
    (Confirm, {**CONFIRM, "code": ""}, "code"),
    (Confirm, {**CONFIRM, "code": 1}, "code"),
    (Confirm, {**CONFIRM, "code": CANARY * 10}, "code"),
    (Confirm, {**CONFIRM, "code": [CANARY]}, "code"),
    (Confirm, {**CONFIRM, "owner": CANARY}, "owner"),
]


@pytest.mark.parametrize(("kind", "body", "field"), REFUSED, ids=lambda value: json.dumps(value, default=str)[:60])
def test_a_body_that_is_refused(kind, body, field):
    """The first field at fault is named, and what was in it is not: a code or a token may have been."""
    with pytest.raises(InvalidBodyError) as refused:
        parsed(kind, body)

    assert refused.value.details == {"field": field}
    assert str(refused.value).startswith(f"{field}: ")
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_parsed_body_does_not_change():
    """And prints nothing of a code beyond what pydantic shows of any model."""
    body = parsed(Confirm, CONFIRM)

    with pytest.raises(ValueError, match="frozen"):
        body.code = "x"
