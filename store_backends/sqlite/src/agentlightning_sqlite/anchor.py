"""The clock of a file: one anchor a start of the machine, shared by all processes on it.

The first process that opens the file after the machine started looks at the wall clock and writes down
when the machine started by it. All others count the seconds from there, so a wall clock that was set in
between ends no lease and stretches none. Where the system does not tell its starts apart (anything but
Linux) each process has its own anchor, and a clock set between two openings shifts them apart.
"""

from __future__ import annotations

import logging
import sqlite3
import time

from agentlightning.store.clock import SteadyClock, machine_time

logger = logging.getLogger("agentlightning.store.sqlite")

_CANNOT_WRITE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)


def clock_of(connection: sqlite3.Connection) -> SteadyClock:
    """The clock that all users of this file on this machine share."""
    boot_id, _ = machine_time()
    if boot_id is None:
        return _started(connection)
    setting = f"clock:{boot_id}"
    return _noted(connection, setting) or _started_and_noted(connection, setting)


def _noted(connection: sqlite3.Connection, setting: str) -> SteadyClock | None:
    sql = "select value from settings where name = ?"
    found = connection.execute(sql, (setting,)).fetchone()
    return None if found is None else SteadyClock(float(found[0]))


def _started_and_noted(connection: sqlite3.Connection, setting: str) -> SteadyClock:
    try:
        connection.execute("begin immediate")  # of several processes that open it, one anchors it
        clock = _noted(connection, setting)
        if clock is None:
            clock = _started(connection)
            value = repr(clock.booted_at).encode()
            connection.execute("insert into settings (name, value) values (?, ?)", (setting, value))
        connection.execute("commit")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("rollback")
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF in _CANNOT_WRITE:
            logger.warning(
                "cannot share a clock with other processes through this file (%s); it can be read, "
                "and leases are judged by the clock of this process",
                error,
            )
            return _started(connection)
        raise
    return clock


def _started(connection: sqlite3.Connection) -> SteadyClock:
    """A clock that begins at the wall's time, but not before what the file has seen already.

    A machine that starts with its clock in the past would stretch the leases of the start before.
    """
    (seen,) = connection.execute("select max(last_seen) from workers").fetchone()
    return SteadyClock.starting_at(max(time.time(), seen or 0.0))
