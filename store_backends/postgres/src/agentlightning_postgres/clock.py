"""The database's clock, which is the same for all machines."""

from __future__ import annotations

from typing import Final

import psycopg
from agentlightning.store.clock import SteadyClock, machine_time

INTERVAL_S: Final = 10.0
"""How often the database is asked; the seconds between are counted here, by a clock nobody sets."""


class DatabaseClock:
    """Tells the time of the database's machine.

    The clocks of two runners may be far apart and may be set at any moment; leases must not care. Each
    process therefore counts on from what the database's clock showed. That is asked of it at the
    beginning of a transaction, once in a while: one more round trip every ten seconds.

    Args:
        connection: where it is asked the first time.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._ask(connection)

    def __call__(self) -> float:
        """The time in seconds since the epoch."""
        return self._clock()

    def keep_right(self, connection: psycopg.Connection) -> None:
        """Ask the database if it was not asked for a while."""
        if machine_time()[1] >= self._due_at:
            self._ask(connection)

    def _ask(self, connection: psycopg.Connection) -> None:
        _, before = machine_time()
        sql = "select extract(epoch from clock_timestamp())::float8"
        row = connection.execute(sql).fetchone()
        _, after = machine_time()
        shown: float = row[0] if row else 0.0
        self._clock = SteadyClock(shown - (before + after) / 2)  # it was asked halfway
        self._due_at = after + INTERVAL_S
