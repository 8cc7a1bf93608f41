"""A model server whose replies were made beforehand, with token ids and log-probabilities as vLLM's.

``python -m benchmarks.endpoint.model`` prints its URL and serves until its standard input ends: a
process of its own, so that its work is nobody's overhead.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, Final

TOKENS: Final = 128
"""Tokens of a reply, and events of a stream that carry one each."""

_PROMPT: Final = 1024
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEAD: Final[dict[str, Any]] = {"id": "chatcmpl-1", "created": 1, "model": "bench"}
_USAGE: Final = {"prompt_tokens": _PROMPT, "completion_tokens": TOKENS}
_IDS: Final = {"prompt_token_ids": list(range(_PROMPT))}


def _scores(count: int) -> dict[str, Any]:
    score = {"token": "word ", "logprob": -0.25, "bytes": None, "top_logprobs": []}
    return {"content": [score] * count, "refusal": None}


def whole() -> bytes:
    """The reply to a request that asks for no stream."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "word " * TOKENS},
        "finish_reason": "stop",
        "logprobs": _scores(TOKENS),
        "token_ids": list(range(TOKENS)),
    }
    body = {**_HEAD, **_IDS, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
    content = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def streamed() -> list[bytes]:
    """The parts of a streamed reply, each written on its own."""
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    piece = {"index": 0, "delta": {"content": "word "}, "logprobs": _scores(1), "finish_reason": None}
    choices = [opening, *({**piece, "token_ids": [number]} for number in range(TOKENS))]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [{**_HEAD, "choices": [choice]} for choice in choices]
    chunks[0] |= _IDS
    chunks.append({**_HEAD, "choices": [], "usage": _USAGE})
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
