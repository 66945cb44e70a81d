"""`Secret`: prints as stars, is opened on purpose."""

import copy
import json
import logging
import pickle
from dataclasses import dataclass

import pytest

from quitclaim.domain.secret import Secret

CANARY = "canary-5f1c"


@dataclass(frozen=True)
class Holder:
    token: Secret


@pytest.mark.rule("S-13")
@pytest.mark.parametrize(
    "shown",
    [
        lambda secret: str(secret),
        lambda secret: repr(secret),
        lambda secret: f"{secret}",
        lambda secret: f"{secret!r}",
        lambda secret: f"{secret:>40}",
        lambda secret: "{}".format(secret),  # noqa: UP032 - this way of showing is tested too
        lambda secret: "%s" % secret,  # noqa: UP031 - this way of showing is tested too
        lambda secret: repr(Holder(secret)),
        lambda secret: repr({"a": [secret]}),
        lambda secret: json.dumps({"a": secret}, default=str),
    ],
)
def test_a_secret_prints_as_stars(shown):
    """No way of turning a secret into text shows any of it."""
    text = shown(Secret(CANARY))

    assert CANARY not in text
    assert "*****" in text


def test_a_secret_is_opened_on_purpose():
    """`reveal` is the way in."""
    assert Secret(CANARY).reveal() == CANARY


@pytest.mark.rule("S-13")
def test_a_log_line_shows_stars(caplog):
    """A logger that is handed a secret does not show it."""
    with caplog.at_level(logging.INFO):
        logging.getLogger("any").info("token %s of %r", Secret(CANARY), Holder(Secret(CANARY)))

    assert CANARY not in caplog.text


@pytest.mark.parametrize("refused", [json.dumps, pickle.dumps, hash, lambda secret: {secret}, iter, len, vars, float])
def test_a_secret_takes_no_other_form(refused):
    """JSON, pickle, hash, iteration, length and conversion are refused."""
    with pytest.raises(TypeError) as error:
        refused(Secret(CANARY))

    assert CANARY not in str(error.value)


def test_a_secret_is_no_text():
    """What wants a str does not take it."""
    assert not isinstance(Secret(CANARY), str)
    with pytest.raises(TypeError):
        "".join([Secret(CANARY)])  # type: ignore[list-item]


def test_equal_secrets_are_equal():
    """Two secrets compare by what they hold, and with nothing else."""
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret(CANARY + "x")
    assert Secret(CANARY) != CANARY
    assert Secret("\ud800") == Secret("\ud800")


def test_a_secret_does_not_change():
    """It cannot be set, deleted or extended."""
    secret = Secret(CANARY)

    for name in ("_text", "other"):
        with pytest.raises(AttributeError):
            setattr(secret, name, "x")
        with pytest.raises(AttributeError):
            delattr(secret, name)
    assert secret.reveal() == CANARY


def test_a_copy_of_a_secret_is_the_secret():
    """Copying a value that holds one needs no pickling."""
    holder = Holder(Secret(CANARY))

    assert copy.deepcopy(holder).token is holder.token
    assert copy.copy(holder.token) is holder.token


@pytest.mark.parametrize("nothing", ["", None, 5, b"bytes"])
def test_nothing_is_no_secret(nothing):
    """Empty and non-text are refused, so that a missing secret is noticed where it is made."""
    with pytest.raises((TypeError, ValueError)):
        Secret(nothing)


def test_nobody_makes_a_kind_of_secret():
    """A subclass could print."""
    with pytest.raises(TypeError):
        type("Printing", (Secret,), {})
