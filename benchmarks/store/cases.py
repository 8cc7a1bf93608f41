"""The kinds of store that are measured, and how an empty one of each is had."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

from agentlightning.store.opening import open_store

from benchmarks.store.stage import Stage


@contextmanager
def memory(_folder: Path) -> Iterator[Stage]:
    """The store in this process."""
    with open_store("memory://") as store:
        yield Stage(store, lambda: nullcontext(store))


@contextmanager
def sqlite(folder: Path) -> Iterator[Stage]:
    """One file, opened by this process alone."""
    with open_store(f"sqlite:///{folder}/store.db") as store:
        yield Stage(store, lambda: nullcontext(store), kept_bytes=_sqlite_bytes(folder / "store.db"))


def _sqlite_bytes(path: Path) -> Callable[[str], int]:
    def weigh(rollout_id: str) -> int:
        sql = "select sum(length(call)) from spans where rollout_id = ?"
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute(sql, (rollout_id,)).fetchone()[0])

    return weigh


CASES: dict[str, Callable[[Path], AbstractContextManager[Stage]]] = {
    "memory": memory,
    "sqlite": sqlite,
}
