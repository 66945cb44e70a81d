"""One connection through all five functions, as Lambda would call them."""

from tests.functions.stage import Stage


def test_a_connections_whole_life(stage: Stage) -> None:
    """Started, visited, agreed to, confirmed, used, refreshed, stopped, revoked at the provider, and closed."""
    view = stage.connected()
    token = stage.token().json
    stage.advance(3_600)
    fresh = stage.token().json
    stopped = stage.api("DELETE", "/connections/acme", headers={"if-match": '"1"'}).json
    swept = stage.invoke("revoke_sweep", stage.kicks[-1])
    stage.invoke("reconcile", {})
    seen = stage.api("GET", "/connections/acme").json

    assert view["state"] == "ready"
    assert token["access_token"] != fresh["access_token"]
    assert (token["token_version"], fresh["token_version"]) == (1, 2)
    assert stopped["state"] == "revoking"
    assert swept["confirmed"] == 1
    assert stage.server.live() == []
    assert (seen["state"], seen["closed_as"]) == ("revoked", "confirmed")
