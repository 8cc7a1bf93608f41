"""A model server whose replies were made beforehand, with token ids and log-probabilities as vLLM's.

``python -m benchmarks.endpoint.model`` prints its URL and serves until its standard input ends: a
process of its own, so that its work is nobody's overhead.
"""

from __future__ import annotations

import json
from typing import Any, Final

from benchmarks.canned_server import serve

TOKENS: Final = 128
"""Tokens of a reply, and events of a stream that carry one each."""

_PROMPT: Final = 1024
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


if __name__ == "__main__":
    serve(whole(), streamed())
