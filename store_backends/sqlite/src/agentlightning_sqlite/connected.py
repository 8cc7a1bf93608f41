"""A connection to a store's file, and what this process knows of the file without looking.

What was read or written is remembered for as long as nobody else commits: SQLite tells in a microsecond
whether another connection has. One process that claims and finishes reads neither its run nor its
resources again; with several the worst is to look again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agentlightning.records import Attempt, Rollout, Run, to_builtins
from agentlightning.store.compact import CallPacker, Packing
from agentlightning.store.tables import Tables
from msgspec.structs import replace

from agentlightning_sqlite.rows import Row, text

IDS: Final = "in (select value from json_each(?))"
_CLAIMS: Final = 10_000
_RESOURCES: Final = 256


@dataclass
class Known:
    """What the file holds, as far as it was seen since anybody else wrote.

    Attributes:
        run_rows: rows of runs by id.
        newest: the newest version of a run's resources, by run and whether candidates count.
        resources: the text of a version by run and number.
        expiry: when the first running lease ends, None for never; nothing if not known.
        seen: when each worker was last written down.
        claimed: rollouts in their first attempt, and that attempt: what is claimed is soon finished.
    """

    run_rows: dict[str, Row] = field(default_factory=dict)
    newest: dict[tuple[str, bool], int] = field(default_factory=dict)
    resources: dict[tuple[str, int], str] = field(default_factory=dict)
    expiry: list[float | None] = field(default_factory=list)
    seen: dict[str, float] = field(default_factory=dict)
    claimed: dict[str, tuple[Rollout, Attempt]] = field(default_factory=dict)

    def keep_resources(self, run_id: str, version: int, record: str) -> None:
        """Remember a version of resources; a run that publishes for days must not fill the memory."""
        if len(self.resources) >= _RESOURCES:
            self.resources.clear()
        self.resources[run_id, version] = record

    def claim(self, rollout: Rollout, attempt: Attempt) -> None:
        """Remember a claim."""
        if len(self.claimed) >= _CLAIMS:
            self.claimed.clear()
        self.claimed[rollout.rollout_id] = (_own(rollout), attempt)

    def knows(self, rollout_ids: Collection[str]) -> bool:
        """Whether all of these are claims that are remembered."""
        return all(name in self.claimed for name in rollout_ids)

    def rollout(self, rollout_id: str) -> Rollout:
        """A remembered claim's rollout, which the caller may change inside."""
        return _own(self.claimed[rollout_id][0])

    def attempt(self, rollout_id: str) -> Attempt:
        """A remembered claim's attempt."""
        return self.claimed[rollout_id][1]


class Connected(Tables):
    """The base of the tables: one connection, one transaction after the other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self.version: int | None = None
        self._connection = connection
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._known = Known()
        self._runs: dict[str, Run] = {}
        self._written: dict[str, Rollout] = {}
        self._packer = CallPacker()
        self._packing: Packing | None = None

    def begun(self) -> None:
        """A transaction has begun: forget what another connection may have changed since the last.

        SQLite's ``data_version`` differs from the last one if another connection has committed.
        """
        (version,) = self._execute("pragma data_version").fetchone()
        if version != self.version:
            self.version = version
            self._known = Known()
        self.changes = set()
        self._runs = {}
        self._written = {}
        self._packing = None

    def committed(self) -> None:
        """The transaction is stored."""
        if self._packing is not None:
            self._packing.keep()

    def rolled_back(self) -> None:
        """The transaction did not happen: forget what it has left in memory."""
        self._known = Known()

    def _one(self, sql: str, *values: object) -> Any:
        row = self._execute(sql, values).fetchone()
        return None if row is None else row[0]


def _own(rollout: Rollout) -> Rollout:
    plain = {"input": to_builtins(rollout.input), "metadata": to_builtins(rollout.metadata)}
    return replace(rollout, **plain)


def matching(names: Sequence[str]) -> tuple[str, str]:
    """A condition that a column is one of ``names``, and its value; one name needs no list."""
    return ("= ?", names[0]) if len(names) == 1 else (IDS, text(names))
