"""The store in one SQLite file, shared by all processes of a machine: ``sqlite:///runs.db``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentlightning.errors import StoreUnavailable
from agentlightning.store import Change
from agentlightning.store.backend import TableStore
from agentlightning.store.watching import Changed

from agentlightning_sqlite.anchor import clock_of
from agentlightning_sqlite.connection import begin, connect, explained, path_of
from agentlightning_sqlite.polling import ForeignChanges
from agentlightning_sqlite.tables import SqliteTables


class SqliteStore(TableStore):
    """Keeps everything in one file that any number of processes open.

    Each process has one connection behind one lock. SQLite lets one writer at a time in anyhow, and
    two connections of one process would find that out by sleeping and trying again, where a lock
    wakes the next thread at once. A write is one ``begin immediate`` transaction; between processes
    each waits for its turn at SQLite's lock.

    Args:
        url: ``sqlite:///runs.db`` or, for an absolute path, ``sqlite:////data/runs.db``.
        clock: the time in seconds since the epoch; by default the file's own (:mod:`.anchor`).

    Raises:
        StoreUnavailable: the file cannot be opened, written or is no store.
        SchemaMismatch: a later version of this package wrote the file.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        self.path = path_of(url)
        self._connection = connect(self.path)
        self._tables = SqliteTables(self._connection)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_closed = False
        self._version: int | None = None
        if clock is None:
            with explained(self.path):
                clock = clock_of(self._connection)
        super().__init__(f"sqlite:///{self.path}", self._tables.secret(), clock=clock)
        self._connection.execute("pragma busy_timeout = 0")  # from here on ``begin`` waits its turn
        self._foreign = ForeignChanges(self.watchers, self._foreign_look)

    @classmethod
    def is_there(cls, url: str) -> bool:
        """See :meth:`Store.is_there`; looks for the file."""
        return path_of(url).is_file()

    def close(self) -> None:
        """Close the file; further calls raise ``StoreUnavailable``."""
        self._foreign.stop()
        with self._lock:
            self._is_closed = True
            self._connection.close()
        self.watchers.notify_all()

    def watch(
        self, run_id: str | None, wake: Callable[[], None], *, on: Change | None = None
    ) -> Callable[[], None]:
        """See :meth:`Store.watch`; while anybody watches, a thread looks for others' writes."""
        forget = super().watch(run_id, wake, on=on)
        self._foreign.ensure_looking()
        return forget

    @contextmanager
    def _reading(self) -> Iterator[SqliteTables]:
        with self._transaction("begin"):
            yield self._tables

    @contextmanager
    def _writing(self) -> Iterator[SqliteTables]:
        with self._transaction("begin immediate"):
            yield self._tables
            self._tables.count_changes()
            changes = self._tables.changes
        self.watchers.notify(changes)

    @contextmanager
    def _transaction(self, how: str) -> Iterator[None]:
        with self._lock, explained(self.path):
            self._check_usable()
            try:
                begin(self._connection, how, self._tables.begun)
                yield
                self._connection.execute("commit")
                self._tables.committed()
            except BaseException:
                if self._connection.in_transaction:  # a full disk has rolled back by itself
                    self._connection.execute("rollback")
                self._tables.rolled_back()
                raise

    def _foreign_look(self) -> dict[Changed, int] | None:
        with self._transaction("begin"):
            version = self._tables.version
            if version == self._version:
                return None
            self._version = version
            return self._tables.counted_changes()

    def _check_usable(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"the store {self.url} was closed")
        if os.getpid() != self._process:
            raise StoreUnavailable(
                f"the store {self.url} was opened before this process was forked; open it again here"
            )
