"""What all tables stand on: one transaction of one connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import psycopg
from agentlightning.store.compact import CallPacker
from agentlightning.store.tables import Tables
from agentlightning.store.watching import Changed

from agentlightning_postgres.locks import ALONE, Lock, number_of
from agentlightning_postgres.rows import Row

Cursor: TypeAlias = psycopg.Cursor[Row]

_RESOURCES_KEPT = 256


class Remembered:
    """What an opening of the store need not ask the database again for."""

    def __init__(self) -> None:
        self.packer = CallPacker()
        self._resources: dict[tuple[str, int], str] = {}

    def resources(self, run_id: str, version: int) -> str | None:
        """A version of resources as JSON: every claim asks for one, and none ever changes."""
        return self._resources.get((run_id, version))

    def keep(self, resources: dict[tuple[str, int], str]) -> None:
        """Keep versions that a committed transaction has read or written."""
        if len(self._resources) + len(resources) > _RESOURCES_KEPT:
            self._resources.clear()
        self._resources.update(resources)

    def forget(self) -> None:
        """Ask for everything anew: another server may answer, one that lacks the last transactions."""
        self.packer.forget()
        self._resources.clear()


class Session(Tables):
    """A transaction, whose statements are sent without waiting for the answer of the one before.

    The connection is in pipeline mode: only what is fetched is waited for, so all writes cost one round
    trip together, and so do questions that are asked before the first answer is fetched.

    Args:
        connection: a connection in a transaction.
        remembered: what this opening keeps in memory.
        writes: lock what is read.
    """

    def __init__(self, connection: psycopg.Connection, remembered: Remembered, *, writes: bool) -> None:
        super().__init__()
        self.skipped: set[Changed] = set()
        self._connection = connection
        self._remembered = remembered
        self._writes = writes
        self._newest_asked: dict[str, Cursor] = {}

    def _execute(self, sql: str, *values: object) -> Cursor:
        return self._connection.execute(sql, values)

    def _execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._connection.cursor().executemany(sql, rows)

    def _one(self, sql: str, *values: object) -> Any:
        row = self._execute(sql, *values).fetchone()
        return None if row is None else row[0]

    def _lock(self, lock: Lock, *names: str) -> None:
        """Wait until nobody else has this lock, and have it until the transaction ends."""
        self._execute(ALONE, number_of(lock, *names))

    def _ask_for_newest(self, run_id: str, *, candidates: bool) -> Cursor:
        sql = (
            "select version from resources where run_id = %s and candidate <= %s "
            "order by version desc limit 1"
        )
        return self._execute(sql, run_id, candidates)

    def _ask_for_newest_ahead(self, run_id: str) -> None:
        """Ask along what comes next in every claim: which resources are the newest."""
        self._newest_asked[run_id] = self._ask_for_newest(run_id, candidates=False)
