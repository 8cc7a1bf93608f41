"""A model server that costs next to nothing: it reads a request and sends bytes made beforehand.

``python -m benchmarks.capture.server`` prints its URL and serves until its standard input ends. It is
a process of its own, so that its work is nobody's overhead.
"""

from __future__ import annotations

import json
from typing import Any, Final

from benchmarks.canned_server import serve

PIECES: Final = 24
"""Events of a streamed reply that carry a word."""

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


if __name__ == "__main__":
    serve(whole(), streamed())
