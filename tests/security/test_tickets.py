"""What is sealed under a ticket is read with that ticket and with nothing else."""

import base64

import pytest

from quitclaim.domain.errors import SealBrokenError
from quitclaim.domain.secret import Secret
from quitclaim.security.tickets import open_under, seal_under

TICKET = Secret("T" * 43)
HINT = Secret("ann@example.com")


def test_a_text_opens_under_its_ticket():
    """The same text; and two seals of one text are different."""
    one, other = seal_under(TICKET, HINT), seal_under(TICKET, HINT)

    assert open_under(TICKET, one) == open_under(TICKET, other) == HINT
    assert one != other
    assert HINT.reveal() not in base64.urlsafe_b64decode(one).decode("latin-1")


@pytest.mark.rule("S-14")
def test_another_ticket_opens_nothing():
    """Nor does any altered byte."""
    sealed = seal_under(TICKET, HINT)
    raw = base64.urlsafe_b64decode(sealed)

    with pytest.raises(SealBrokenError):
        open_under(Secret("U" * 43), sealed)
    for place in range(len(raw)):
        altered = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        with pytest.raises(SealBrokenError):
            open_under(TICKET, base64.urlsafe_b64encode(altered).decode())


@pytest.mark.parametrize("text", ["", "x", "====", "A" * 44, "not base64!", "ä"])
def test_what_is_no_seal_is_broken(text):
    """Whatever stands there."""
    with pytest.raises(SealBrokenError):
        open_under(TICKET, text)
