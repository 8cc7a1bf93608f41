"""A server of replies that were made beforehand: it reads a request and sends bytes, and costs nothing.

It runs in a process of its own, so that its work is nobody's overhead, and ends with its standard
input.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    """Answers one request after the other on a connection that is kept."""

    def __init__(self, whole: bytes, streamed: Sequence[bytes]) -> None:
        self._whole = (whole,)
        self._streamed = streamed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(body) < (int(length.group(1)) if length else 0):
            return
        self._received = b""
        for part in self._streamed if b'"stream":true' in body else self._whole:
            self._transport.write(part)


def serve(whole: bytes, streamed: Sequence[bytes]) -> None:
    """Print the URL, and answer until standard input ends.

    Args:
        whole: the reply to a request that asks for no stream.
        streamed: the parts of a streamed reply, each written on its own.
    """
    asyncio.run(_serve(whole, streamed))


async def _serve(whole: bytes, streamed: Sequence[bytes]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(whole, streamed), "127.0.0.1", 0, backlog=1024
    )
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
