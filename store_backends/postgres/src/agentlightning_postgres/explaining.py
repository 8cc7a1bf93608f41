"""What PostgreSQL raises, as an error that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from agentlightning.errors import BadValue, StoreAway, StoreClosed, StoreUnavailable
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from agentlightning_postgres.connection import BUSY_S

_REPEAT: Final = "nothing of this call was stored: repeat it"
_MAYBE_STORED: Final = (
    "if it was to store something, whether it did is not known: repeat it, with its key if it has one, "
    "and it is stored once"
)

_TOO_BIG: Final = (
    errors.NumericValueOutOfRange,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
)
_HINTS: Final[tuple[tuple[type[psycopg.Error], str], ...]] = (
    (PoolTimeout, f"all connections of this process were in use; {_REPEAT}"),
    (errors.DeadlockDetected, f"it and another call waited for each other; {_REPEAT}"),
    (errors.SerializationFailure, f"another call came in between; {_REPEAT}"),
    (errors.UniqueViolation, f"another call stored the same at the same moment; {_REPEAT}"),
    (errors.LockNotAvailable, f"others kept it locked for {BUSY_S} s; {_REPEAT}"),
    (errors.IdleInTransactionSessionTimeout, f"this process stood still for {BUSY_S} s; {_REPEAT}"),
    (errors.ReadOnlySqlTransaction, "is it a standby? Name the primary server"),
    (errors.InsufficientPrivilege, "the user has to own the database, or be granted what is missing"),
    (errors.DiskFull, "make room on the server's disk: what was stored is safe, this call was not"),
    (errors.UndefinedTable, "was the store's database emptied or replaced while it was open?"),
    (errors.OperationalError, _MAYBE_STORED),
)
_PASSING: Final = (
    PoolTimeout,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.UniqueViolation,
    errors.LockNotAvailable,
    errors.IdleInTransactionSessionTimeout,
    errors.TooManyConnections,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
)
"""What the same call need not meet again."""

# While connecting, libpq has only words for what is wrong, in the server's language.
_WORDS: Final = {
    "does not exist": "make it first, for example with: createdb -O USER DATABASE",
    "too many": "raise max_connections there, or put `agl store serve` between it and the runners",
    "remaining connection slots": (
        "raise max_connections there, or put `agl store serve` between it and the runners"
    ),
    "no password supplied": "put one into the URL, into PGPASSWORD or into ~/.pgpass",
    "authentication failed": "check the user and the password",
    "refused": "does the server run, and listen there?",
    "starting up": "the server is starting: try again in a moment",
    "shutting down": "the server is being stopped: try again when it is back",
    "resolve host": "check the host's name",
    "timeout": "check the host, the port and the firewall between",
}
_LASTING: Final = ("does not exist", "authentication failed", "no password supplied", "pg_hba.conf")
"""What a server says, in English, to whom it will say the same in a minute."""


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Turn what PostgreSQL raises into an error that says what to do.

    Args:
        shown: the store's URL, without the password.
    """
    try:
        yield
    except PoolClosed as error:
        raise StoreClosed(f"the store {shown} was closed") from error
    except _TOO_BIG as error:
        raise BadValue(f"{shown} cannot hold this value: {_told(error)}") from error
    except psycopg.Error as error:
        kind = StoreAway if _may_pass(error) else StoreUnavailable
        raise kind(f"{shown}: {_told(error)}; {_hint(error)}") from error


def _told(error: psycopg.Error) -> str:
    told = error.diag.message_primary or str(error)
    return " ".join(told.split()) or type(error).__name__


def _may_pass(error: psycopg.Error) -> bool:
    """Whether the same call may succeed a little later."""
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return not any(words in str(error) for words in _LASTING)
    return isinstance(error, _PASSING)


def _hint(error: psycopg.Error) -> str:
    if error.sqlstate is None:
        told = str(error)
        for words, hint in _WORDS.items():
            if words in told:
                return hint
    for kind, hint in _HINTS:
        if isinstance(error, kind):
            return hint
    return f"it is not what this version expects (SQLSTATE {error.sqlstate})"
