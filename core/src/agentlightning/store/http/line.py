"""Kept connections to one server, by urllib3.

A request costs half the time of one by httpx. urllib3 is used a level below ``PoolManager``, which
brings the rest of what is wanted: no redirect is followed (the token would go along) and proxy
variables of the environment are not looked at.
"""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any, Final, NamedTuple

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from agentlightning.store.http.address import Address

_CONNECT_S: Final = 5.0


class Reply(NamedTuple):
    """An HTTP reply, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Line:
    """Kept connections to one server, which another thread can hang up.

    Args:
        address: of the server.
        keep: how many connections are kept for the next request.
        at_once: how many requests may be under way, further ones wait; None for any number.
    """

    def __init__(self, address: Address, *, keep: int, at_once: int | None = None) -> None:
        kind = _TLSPool if address.scheme == "https" else _Pool
        self._pool = kind(address.host, address.port, maxsize=keep, line=self)
        self._slots = nullcontext() if at_once is None else threading.BoundedSemaphore(at_once)
        self._connections: weakref.WeakSet[HTTPConnection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._hung_up = False

    def post(self, path: str, body: bytes, headers: Mapping[str, str], read_s: float) -> Reply:
        """Send one request, once.

        Raises:
            HTTPError: there was no whole reply.
        """
        with self._slots:
            reply = self._pool.urlopen(
                "POST",
                path,
                body=body,
                headers=headers,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s),
            )
        return Reply(reply.status, reply.headers, reply.data)

    def close(self) -> None:
        """Begin no more requests; those under way go on."""
        self._pool.close()

    def hang_up(self) -> None:
        """Begin no more requests, and end those under way: they raise in their threads."""
        with self._lock:
            self._hung_up = True
            connections = list(self._connections)
        for connection in connections:
            _shut_down(connection)
        self._pool.close()

    def connected(self, connection: HTTPConnection) -> None:
        """Take note of a new connection."""
        with self._lock:
            self._connections.add(connection)
            if not self._hung_up:
                return
        _shut_down(connection)


class _Connection(HTTPConnection):
    """Tells its line when it is connected."""

    def __init__(self, *arguments: Any, line: Line, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._line = line

    def connect(self) -> None:
        super().connect()
        self._line.connected(self)


class _TLSConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


def _shut_down(connection: HTTPConnection) -> None:
    """End a connection under its reader, who gets an error; closing the socket would not wake it."""
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
