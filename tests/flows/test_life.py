"""A connection's whole life in one sitting."""

from tests.flows.world import World


def test_a_grant_is_connected_refreshed_stopped_and_revoked(asking_world: World) -> None:
    """From start to revoked: the provider itself no longer accepts the token, and everybody is told once."""
    world = asking_world

    world.connect()
    world.clock.move(minutes=70)
    world.token()
    world.disconnect()
    world.minutes_pass(3)

    assert world.connection().state == "revoked"
    assert world.connection().closed_as == "confirmed"
    assert world.server.live("refresh_token") == []
