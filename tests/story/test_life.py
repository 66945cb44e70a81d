"""A connection's whole life on the local stack, against a real authorization server."""

from collections.abc import Callable

import pytest

from infra.local.life import Life, envelope, expect
from infra.local.provider.person import consent


def test_a_grant_lives_and_dies_as_its_owner_wants(life: Life) -> None:
    """Start, consent, confirm, use, refresh with rotation, disconnect; then the provider itself refuses."""
    page = life.visit(life.start())
    assert life.state == "authorizing"

    page = life.allow(page)
    held = life.living()
    assert len(held) == 1
    assert life.state == "authorizing"
    assert life.view()["awaiting_confirmation"]

    assert expect(life.confirm(life.code_on(page)), 200)["state"] == "ready"
    first = expect(life.token(), 200)
    assert life.provider.who_am_i(first["access_token"]).json()["sub"] == life.provider.accounts["alice"]["sub"]

    life.stack.advance(3660)
    second = expect(life.token(), 200)
    assert second["token_version"] == first["token_version"] + 1
    assert second["access_token"] != first["access_token"]
    assert life.provider.who_am_i(second["access_token"]).status_code == 200
    assert [line.live for line in life.issued()] == [False, True]

    assert expect(life.disconnect(), 200)["state"] == "revoking"
    assert life.token().status_code == 409
    life.revoked_by_the_kick()
    life.settle("revoked")
    assert life.view()["closed_as"] == "confirmed"
    assert life.notice() in (None, "not_needed", "confirmed")

    assert not life.provider.introspect(second["access_token"])
    verdict = life.provider.try_refresh(life.client.client_id, life.client.secret, digest=life.issued()[-1].digest)
    assert (verdict.accepted, verdict.error) == (False, "invalid_grant")


def test_a_fresh_token_is_handed_out_again_without_asking_the_provider(life: Life) -> None:
    """Two calls, one token, one refresh token ever issued."""
    life.connect()

    first, second = expect(life.token(), 200), expect(life.token(), 200)

    assert second == first
    assert len(life.issued()) == 1


@pytest.mark.rule("RB-49")
def test_a_repeated_callback_of_the_bound_browser_answers_the_same_code(life: Life) -> None:
    """A reload inside the window shows the code again; the provider is not asked twice."""
    back = consent(life.browser, life.visit(life.start()), follow=False)
    assert back.left_for is not None
    first = life.code_on(life.browser.open(back.left_for))

    second = life.code_on(life.browser.open(back.left_for))

    assert second == first
    assert len(life.issued()) == 1
    assert expect(life.confirm(second), 200)["state"] == "ready"


def test_the_code_goes_back_to_the_app_where_it_named_a_page(life: Life) -> None:
    """With return_to the browser ends at the app, which gets status and code; without leaving a code on our page."""
    page = life.allow(life.visit(life.start(return_to="https://app.example/done?from=quitclaim")))

    assert page.left_for is not None
    assert page.left_for.startswith("https://app.example/done?from=quitclaim&")
    assert page.query["status"] == "awaiting_confirmation"
    assert page.query["connection_id"] == life.connection_id
    assert expect(life.confirm(page.query["confirm_code"]), 200)["state"] == "ready"


def test_a_no_at_the_provider_ends_the_attempt(life: Life) -> None:
    """The connection has failed, no token was issued, and the owner may start again at once."""
    page = life.visit(life.start())

    consent(life.browser, page, allow=False)

    assert life.state == "failed"
    assert life.issued() == []
    assert life.connect()["state"] == "ready"


def test_the_fifth_wrong_code_gives_the_grant_back(life: Life) -> None:
    """Five guesses end the exchange, and what was held is revoked at the provider."""
    page = life.allow(life.visit(life.start()))
    right = life.code_on(page)
    wrong = "".join("A" if letter != "A" else "B" for letter in right)

    answers = [envelope(life.confirm(wrong)).get("code") for _ in range(5)]

    assert answers[:4] == ["CONFIRM_CODE_WRONG"] * 4
    assert life.confirm(right).status_code == 409
    assert life.state == "failed"
    life.revoked_by_the_kick()
    assert life.living() == []


@pytest.mark.rule("F-65")
def test_a_disconnect_before_the_confirmation_revokes_what_is_held(life: Life) -> None:
    """Nobody keeps a grant for ten minutes after the owner has said stop."""
    life.allow(life.visit(life.start()))

    assert expect(life.disconnect(), 200)["state"] == "revoking"

    life.revoked_by_the_kick()
    life.settle("revoked")
    assert life.living() == []


@pytest.mark.rule("F-64")
def test_a_hold_that_nobody_confirms_is_revoked_when_its_time_is_over(life: Life) -> None:
    """Ten minutes, then the sweep takes it, and the connection has failed."""
    page = life.allow(life.visit(life.start()))
    code = life.code_on(page)

    life.stack.advance(620)
    life.stack.fire("revoke_sweep")

    life.settle("failed")
    assert life.living() == []
    assert life.confirm(code).status_code == 409


def test_a_revoked_connection_can_be_connected_again(life: Life) -> None:
    """`reconnect` begins the next generation; the old one's tokens stay dead."""
    first = life.connect()
    expect(life.disconnect(), 200)
    life.revoked_by_the_kick()
    life.settle("revoked")

    answer = expect(life.api.post(f"{life.path}/reconnect", json={}), 201)
    page = life.allow(life.visit(answer["connect_url"]))
    again = expect(life.confirm(life.code_on(page)), 200)

    assert again["state"] == "ready"
    assert again["generation"] > first["generation"]
    assert [line.live for line in life.issued()] == [False, True]


@pytest.mark.rule("F-26")
def test_a_grant_that_its_owner_withdrew_at_the_provider_needs_a_reconnect(life: Life) -> None:
    """The provider's refusal of the refresh ends the grant; the app learns it by its own code."""
    life.connect()
    _withdraw_at_the_provider(life)
    life.stack.advance(3660)

    answer = life.token()

    assert (answer.status_code, envelope(answer)["code"]) == (409, "NEEDS_RECONNECT")
    assert life.state == "needs_reconnect"


@pytest.mark.rule("U-15", "RB-21")
def test_two_owners_of_one_account_do_not_touch_each_other(a_life: Callable[..., Life]) -> None:
    """The same person at the provider behind two owners: stopping one leaves the other's grant alive."""
    one, other = a_life(), a_life()
    one.connect()
    other.connect()

    expect(one.disconnect(), 200)
    one.stack.fire("revoke_sweep")
    one.settle("revoked")

    token = expect(other.token(), 200)
    assert other.provider.who_am_i(token["access_token"]).status_code == 200
    other.stack.advance(3660)
    assert expect(other.token(), 200)["token_version"] == token["token_version"] + 1


@pytest.mark.rule("U-21")
def test_a_second_start_replaces_the_first_link(life: Life) -> None:
    """The older link answers that it was superseded; the newer one works."""
    old = life.start()
    assert life.start() == old
    new = expect(life.api.post(f"{life.path}/reconnect", json={}), 201)["connect_url"]

    page = life.browser.open(old)

    assert page.status == 409
    assert "OAUTH_STATE_SUPERSEDED" in page.text
    assert expect(life.confirm(life.code_on(life.allow(life.visit(new)))), 200)["state"] == "ready"


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_scanner_that_opens_the_link_first_spends_nothing(life: Life, method: str) -> None:
    """A mail scanner's visit binds nobody else."""
    link = life.start()
    response = life.api.request(method, link)

    page = life.allow(life.visit(link))

    assert response.status_code in (200, 204, 303)
    assert expect(life.confirm(life.code_on(page)), 200)["state"] == "ready"


def _withdraw_at_the_provider(life: Life) -> None:
    """On the toolkit's own page of authorized applications."""
    for _ in life.living():
        page = life.browser.open(f"{life.provider.url}/o/authorized_tokens/")
        links = [word for word in page.text.split('"') if word.startswith("/o/authorized_tokens/") and "delete" in word]
        confirm = life.browser.click(page, links[-1])
        life.browser.submit(confirm, confirm.form_with("csrfmiddlewaretoken"))
