"""How often something happens at a client of the app: row 58 of the table of writes (docs/table.md)."""

from collections.abc import Callable

from quitclaim.domain.limits import REPORT_WINDOW_MS, REPORTS, TTL_AFTER_MS
from quitclaim.ports import Clock, Ids, Table, Update
from quitclaim.store.commit import new_commit
from quitclaim.store.keys import pace_key


class ReportBreaker:
    """`ports.Breaker` over the reports of every function instance: they are counted in the table."""

    def __init__(self, table: Table, clock: Clock, ids: Ids, on_burst: Callable[[str], None]) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._on_burst = on_burst

    def admits(self, client: str) -> bool:
        """
        Row 58. One report more in this window; False, told of and not counted, once there were too many.

        Two at once may both be admitted: the count stops a storm, it is no quota. A write that is repeated because its
        answer was lost counts twice, likewise.
        """
        window = self._clock.now() // REPORT_WINDOW_MS * REPORT_WINDOW_MS
        key = pace_key(client, window)
        found = self._table.get(key)
        if found is not None and found["reports"] >= REPORTS:
            self._on_burst(client)
            return False
        commit = new_commit(self._table, self._clock, self._ids)
        ttl = (window + REPORT_WINDOW_MS + TTL_AFTER_MS) // 1000
        commit.upsert("pace", "pace", Update(key, (), put={"ttl": ttl}, increase={"reports": 1}))
        commit.run()
        return True
