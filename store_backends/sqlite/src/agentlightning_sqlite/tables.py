"""The tables of a store in one SQLite file."""

from __future__ import annotations

from agentlightning_sqlite.housekeeping import Housekeeping


class SqliteTables(Housekeeping):
    """All tables, over one connection, for one transaction after the other."""

    def secret(self) -> bytes:
        """What this file's tokens are signed with."""
        return bytes(self._one("select value from settings where name = 'secret'"))
