"""Opening a store's file: where it is, how SQLite is to treat it, and what can be wrong with it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agentlightning.errors import BadValue, ConfigError, StoreUnavailable

from agentlightning_sqlite.schema_version import is_up_to_date

BUSY_S = 30.0
"""How long a call waits for another process that is writing."""

TURN_S: Final = (0.0005, 0.003)
"""How long a process that found another one writing sleeps before it tries again: at least, at most.

SQLite's own waiting sleeps for longer and longer, up to a tenth of a second, so that whoever has waited
for longest is passed by all others. Here all try equally often.
"""

_SCHEME = "sqlite:///"
_STATEMENTS = 256
_CHECKPOINT_PAGES = 4000  # 16 MB of log: a quarter of SQLite's own rate of waiting for the disk


def path_of(url: str) -> Path:
    """The absolute path of the file a URL names.

    ``sqlite:///runs.db`` is in the working directory, ``sqlite:////data/runs.db`` is ``/data/runs.db``.
    """
    name = url.removeprefix(_SCHEME)
    if name == url or not name or name == ":memory:" or "?" in name:
        raise ConfigError(
            f"the store {url!r} names no file; write sqlite:///runs.db for one in the working "
            "directory, sqlite:////data/runs.db for an absolute path (no options), or memory://"
        )
    return Path(name).absolute()


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the store at ``path``, made or brought up to date if need be.

    Raises:
        StoreUnavailable: it cannot be opened or written, or is no database of ours.
        SchemaMismatch: a later version wrote it.
    """
    if not path.parent.is_dir():
        raise StoreUnavailable(f"cannot open {path}: there is no folder {path.parent}; make it first")
    with explained(path):
        connection = sqlite3.connect(
            path,
            timeout=BUSY_S,
            isolation_level=None,  # transactions begin and end where the store says
            check_same_thread=False,  # the store's lock lets one thread at a time
            cached_statements=_STATEMENTS,
        )
    try:
        with explained(path):
            _use_wal(connection, path)
            connection.execute("pragma synchronous = normal")  # a power cut never damages a WAL file
            connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            if not is_up_to_date(connection):
                from agentlightning_sqlite.migrations import bring_up_to_date

                bring_up_to_date(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def begin(connection: sqlite3.Connection, how: str, begun: Callable[[], None]) -> None:
    """Begin a transaction, once no other process is in the way.

    Args:
        connection: on which.
        how: ``begin`` or ``begin immediate``.
        begun: reads something, which is when SQLite takes a reader's lock. It may be called again.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute(how)
            begun()
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("rollback")
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(*TURN_S))  # noqa: S311  (no secret)
        else:
            return


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into an error that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path}: {error}{_hint(str(error))}") from error
    except OverflowError as error:
        raise BadValue(f"a number has more than 64 bits, which {path.name} cannot hold") from error


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Write ahead to a log, so that readers and the one writer do not wait for each other.

    Two processes that turn it on at once are told "locked" without waiting, so this waits for them.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StoreUnavailable(
                f"{path} is where SQLite cannot share a file between processes (journal mode {mode}); "
                "put it on a local disk"
            )
        return


def _hint(message: str) -> str:
    hints = {
        "not a database": "; it is another kind of file: choose a new name for the store",
        "unable to open": "; is it a folder, or may you not write there?",
        "readonly": "; you may read it but not write: check its owner and mode",
        "locked": f"; another process kept it locked for {BUSY_S:g} s",
        "full": "; make room on the disk: what was stored is safe, this call stored nothing",
        "disk I/O": "; is there room on the disk? if so, the disk or its file system is failing",
        "malformed": "; restore it from a copy, or save what can be read: sqlite3 FILE .recover",
    }
    return next((hint for word, hint in hints.items() if word in message), "")
