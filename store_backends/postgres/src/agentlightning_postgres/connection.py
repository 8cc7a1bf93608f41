"""Connecting to the database that a URL names, and what can be wrong with it."""

from __future__ import annotations

import select
from typing import Any, Final

import psycopg
from agentlightning.errors import ConfigError, StoreUnavailable
from agentlightning.store.opening import without_password
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.string import TextLoader

from agentlightning_postgres.text import TextDumper

BUSY_S: Final = 30
"""How long a call waits for another that holds what it needs."""

_DEFAULTS: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    # A server that vanished without a word is noticed within half a minute, not in two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
    "fallback_application_name": "agentlightning",
}
_SETTINGS: Final = (
    # A client that vanished in the middle of a call must not keep its locks.
    f"set idle_in_transaction_session_timeout = '{BUSY_S}s'; set lock_timeout = '{BUSY_S}s'"
)

_adapters: Final = AdaptersMap(psycopg.adapters)
_adapters.register_dumper(str, TextDumper)
_adapters.register_loader("json", TextLoader)  # msgspec reads it, straight into a record


def arguments_of(url: str) -> dict[str, Any]:
    """What ``psycopg.connect`` takes, from a URL; what it leaves open, libpq's variables may say.

    Raises:
        ConfigError: it is no URL that PostgreSQL's library reads.
    """
    shown = without_password(url)
    given: dict[str, Any] | None
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:  # whose message may quote the password
        given = None
    # A password with a "/" that is not quoted is read as a port and the name of a database.
    if given is None or (shown != url and not {"password", "sslpassword"} & given.keys()):
        raise ConfigError(
            f"the store {shown!r} cannot be read as a URL; write "
            "postgresql://user:password@host:5432/database, with %40 for @, %2F for / and %3A for : "
            "in a password"
        )
    return {**_DEFAULTS, **given, "autocommit": True, "context": _adapters}


class StoreConnection(psycopg.Connection[TupleRow]):
    """A connection of ours, so that what is logged of it is known from others'."""


def connect(arguments: dict[str, Any]) -> psycopg.Connection:
    """A connection on which transactions begin and end where the store says."""
    connection = StoreConnection.connect(**arguments)
    try:
        configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def configure(connection: psycopg.Connection) -> None:
    """Set what a new connection needs set."""
    connection.execute(_SETTINGS)


def check_alive(connection: psycopg.Connection) -> None:
    """Raise if the server has closed an idle connection; asks nothing, so it costs no round trip."""
    socket = connection.fileno()
    while _has_input(socket):  # a farewell, an end of file, or news of a setting
        connection.pgconn.consume_input()


def check_encoding(connection: psycopg.Connection, shown: str) -> None:
    """Refuse a database that cannot hold every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{shown} has the encoding {encoding}, which cannot hold every text; make the database "
            "with: create database … encoding 'UTF8' template template0"
        )


def _has_input(socket: int) -> bool:
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
