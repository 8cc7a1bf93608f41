"""A model server that costs next to nothing: it reads a request and sends bytes made beforehand.

``python -m benchmarks.capture.server`` prints its URL and serves until its standard input ends. It is
a process of its own, so that its work is nobody's overhead.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, Final

PIECES: Final = 24
"""Events of a streamed reply that carry a word."""

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_USAGE: Final = {"prompt_tokens": 140, "completion_tokens": PIECES, "total_tokens": 140 + PIECES}
_HEAD: Final[dict[str, Any]] = {"id": "chatcmpl-1", "created": 1, "model": "bench"}


def whole() -> bytes:
    """The reply to a request that asks for no stream."""
    message = {"role": "assistant", "content": "word " * PIECES}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    body = {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
    content = json.dumps(body).encode()
    head = ["HTTP/1.1 200 OK", "content-type: application/json", f"content-length: {len(content)}"]
    return "\r\n".join([*head, "", ""]).encode() + content


def streamed() -> list[bytes]:
    """The parts of a streamed reply, each written on its own."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": "word "} for _ in range(PIECES)), {}]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices[-1][0]["finish_reason"] = "stop"
    chunks = [{**_HEAD, "object": "chat.completion.chunk", "choices": held} for held in choices]
    events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    pieces = [f"data: {event}\n\n".encode() for event in events]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


WHOLE: Final = whole()
STREAMED: Final = streamed()


class Connection(asyncio.Protocol):
    """Answers one request after the other on a connection that is kept."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport: Any = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        """Answer as soon as a request is there whole."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(body) < (int(length.group(1)) if length else 0):
            return
        self._received = b""
        for part in STREAMED if b'"stream":true' in body else (WHOLE,):
            self._transport.write(part)


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
