"""The store in a PostgreSQL database: ``postgresql://user@host/database``."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from agentlightning.errors import StoreClosed
from agentlightning.store import Change
from agentlightning.store.backend import TableStore
from agentlightning.store.opening import without_password
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from agentlightning_postgres.clock import DatabaseClock
from agentlightning_postgres.connection import (
    StoreConnection,
    arguments_of,
    check_alive,
    check_encoding,
    configure,
    connect,
)
from agentlightning_postgres.explaining import explained
from agentlightning_postgres.listening import Listener
from agentlightning_postgres.migrations import bring_up_to_date, has_steps, secret_of
from agentlightning_postgres.pool_log import POOL_PREFIX, keep_quiet
from agentlightning_postgres.session import Remembered
from agentlightning_postgres.tables import PostgresTables

MAX_CONNECTIONS: Final = 8
"""How many calls of one process run at once; further ones wait for one of these to end."""

_PATIENCE_S: Final = 10.0
_IDLE_S: Final = 60.0
_UNFINISHED: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_READ: Final = "begin isolation level repeatable read read only"  # all questions see one moment
_WRITE: Final = "begin isolation level read committed"  # what is locked is read as it is by then


class PostgresStore(TableStore):
    """Keeps everything in a database that any number of processes and machines open.

    A call is one transaction on a connection of a small pool. Writers wait for each other only where
    they touch the same rollouts or add new ones; :mod:`agentlightning_postgres.locks` says how.

    Args:
        url: ``postgresql://user:password@host:5432/database``, with libpq's options after ``?``.
        clock: the time in seconds since the epoch; by default the database's.

    Raises:
        ConfigError: it is no such URL.
        StoreUnavailable: the database cannot be reached or written, or is none of ours.
        SchemaMismatch: a later version of this package made its tables.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        arguments = arguments_of(url)
        shown = without_password(url)
        with explained(shown), contextlib.closing(connect(arguments)) as connection:
            check_encoding(connection, shown)
            bring_up_to_date(connection, shown)
            secret = secret_of(connection)
            self._time = DatabaseClock(connection) if clock is None else None
        super().__init__(shown, secret, clock=clock or self._time)
        self._arguments = arguments
        self._opening = secrets.token_hex(4)
        self._process = os.getpid()
        self._remembered = Remembered()
        self._listener = Listener(lambda: connect(arguments), self.watchers, self._opening)
        keep_quiet()
        self._pool = ConnectionPool(
            connection_class=StoreConnection,
            kwargs=arguments,
            min_size=1,
            max_size=MAX_CONNECTIONS,
            configure=configure,
            timeout=_PATIENCE_S,
            reconnect_timeout=_PATIENCE_S,
            max_idle=_IDLE_S,
            num_workers=1,
            name=f"{POOL_PREFIX}{self._opening}",
            open=True,
        )

    @classmethod
    def is_there(cls, url: str) -> bool:
        """See :meth:`Store.is_there`; looks for our tables, and makes none."""
        arguments = arguments_of(url)
        with explained(without_password(url)), contextlib.closing(connect(arguments)) as connection:
            return has_steps(connection)

    def close(self) -> None:
        """Close all connections; further calls raise ``StoreClosed``."""
        if os.getpid() == self._process:  # else they are the parent's
            self._listener.stop()
            self._pool.close()
        self.watchers.notify_all()

    def watch(
        self, run_id: str | None, wake: Callable[[], None], *, on: Change | None = None
    ) -> Callable[[], None]:
        """See :meth:`Store.watch`; while anybody watches, a thread listens for others' commits."""
        self._check_usable()
        forget = super().watch(run_id, wake, on=on)
        self._listener.ensure_listening()
        return forget

    @contextmanager
    def _reading(self) -> Iterator[PostgresTables]:
        with self._connected() as connection:
            tables = PostgresTables(connection, self._remembered, writes=False)
            with _transaction(connection, _READ):
                yield tables
            tables.committed()

    @contextmanager
    def _writing(self) -> Iterator[PostgresTables]:
        with self._connected() as connection:
            tables = PostgresTables(connection, self._remembered, writes=True)
            with _transaction(connection, _WRITE):
                yield tables
                tables.write_last(self._opening)
            tables.committed()
        self.watchers.notify(tables.changes)
        if tables.skipped:
            self._listener.look_again(tables.skipped)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        self._check_usable()
        with explained(self.url):
            try:
                connection = self._living()
            except PoolTimeout:
                connect(self._arguments).close()  # says why, where the pool only says that it waited
                raise
            try:
                if self._time is not None:
                    self._time.keep_right(connection)
                yield connection
            finally:
                if connection.broken:
                    self._remembered.forget()
                self._pool.putconn(connection)

    def _living(self) -> StoreConnection:
        """A connection of the pool that the server has not closed: after its restart all are.

        The pool could check that itself, but waits longer and longer from one dead one to the next.
        """
        deadline = time.monotonic() + self._pool.timeout
        while True:
            connection = self._pool.getconn(deadline - time.monotonic())
            try:
                check_alive(connection)
            except psycopg.OperationalError:
                self._remembered.forget()
                self._pool.putconn(connection)  # which throws it away and makes another
            else:
                return connection

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise StoreClosed(
                f"the store {self.url} was opened before this process was forked; open it again here"
            )
        if self._pool.closed:
            raise StoreClosed(f"the store {self.url} was closed")


@contextmanager
def _transaction(connection: psycopg.Connection, begin: str) -> Iterator[None]:
    """A transaction in pipeline mode; leaving the pipeline waits for the commit."""
    try:
        with connection.pipeline():
            connection.execute(begin)
            yield
            connection.execute("commit")
    except BaseException:
        if connection.info.transaction_status in _UNFINISHED:
            with contextlib.suppress(psycopg.Error):  # then it is lost, which rolls back as well
                connection.execute("rollback")
        raise
