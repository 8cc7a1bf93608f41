"""What all tables stand on: one transaction of one connection."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
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
        """Keep versions that a committed transaction has read."""
        if len(self._resources) + len(resources) > _RESOURCES_KEPT:
            self._resources.clear()
        self._resources.update(resources)


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
        self._asked: dict[Hashable, Cursor] = {}

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

    def _ask_ahead(self, question: Hashable, sql: str, *values: object) -> None:
        """Send a question that comes next anyway; :meth:`_answer_to` gives the answer to it."""
        self._asked[question] = self._execute(sql, *values)

    def _answer_to(self, question: Hashable, sql: str, *values: object) -> Any:
        """The first column of the first row: as asked ahead, else asked now."""
        cursor = self._asked.pop(question, None) or self._execute(sql, *values)
        row = cursor.fetchone()
        return None if row is None else row[0]
