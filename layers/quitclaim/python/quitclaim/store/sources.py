"""
The writes of sources behind a broker's account: rows 80-82 of the table of writes (docs/table.md). What asks for one
(62), spends its link (63) and forgets it (64) stands with who does that.
"""

from typing import Final

from quitclaim.domain.ids import ConnectionRef
from quitclaim.domain.limits import MINUTE
from quitclaim.domain.sources import Source, SourceMove
from quitclaim.domain.webhooks import Claim
from quitclaim.ports import AnyOf, Clock, Condition, Ids, Table, Update, absent, any_of, at_most, equals
from quitclaim.store.commit import Commit, new_commit
from quitclaim.store.connect import add_move
from quitclaim.store.keys import delivery_key, member_key, source_key
from quitclaim.store.webhooks import held_by

STAMP_MS: Final = MINUTE
"""A stamp is written no more often than this."""


class SourceStore:
    """Rows 80 to 82."""

    def __init__(self, table: Table, clock: Clock, ids: Ids) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    def _commit(self) -> Commit:
        return new_commit(self._table, self._clock, self._ids)

    def move(self, move: SourceMove, claim: Claim) -> None:
        """
        Row 80. What an event makes of a source, and what the app is told of that, in one commit with the claim of who
        handles the event and with the life of the connection, which stays as it is. Raises `MovedError`: look again.
        """
        commit = self._commit()
        commit.check("delivery", delivery_key(claim.client, claim.digest), held_by(claim))
        add_move(commit, move)
        commit.run()

    def stamp_event(self, client: str, account: str, ref: ConnectionRef, generation: int, at: int) -> None:
        """Row 81. When an event of the connection last came. Raises `MovedError`: known, or the member is gone."""
        commit = self._commit()
        when: Condition = (equals("generation", generation), _is_stale("webhook_at", at))
        commit.update("member", Update(member_key(client, account, ref), when, put={"webhook_at": at}))
        commit.run()

    def stamp_data(self, source: Source, at: int) -> None:
        """Row 82. When data of the source last came. Raises `MovedError`: it is known, or the source is another."""
        commit = self._commit()
        when: Condition = (equals("fence", source.fence), _is_stale("data_at", at))
        commit.update("source", Update(source_key(source.ref, source.slug), when, put={"data_at": at}))
        commit.run()


def _is_stale(attribute: str, at: int) -> AnyOf:
    return any_of(absent(attribute), at_most(attribute, at - STAMP_MS))
