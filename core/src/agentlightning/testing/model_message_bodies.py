"""The scripted model's replies in the shape of Anthropic's Messages API."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agentlightning.records import JSON
from agentlightning.testing.model_script import Turn, prompt_text, scripted_turn

_numbers: Final = itertools.count(1)
_PIECE: Final = 4


def message_body(request: Mapping[str, Any], turn: Turn | None = None) -> dict[str, JSON]:
    """A message with one block of text, or one use of a tool."""
    messages = _with_system(request)
    turn = turn or scripted_turn(messages)
    number = next(_numbers)
    block: dict[str, JSON] = {"type": "text", "text": turn.text}
    if turn.tool is not None:
        arguments = json.loads(turn.arguments)
        block = {"type": "tool_use", "id": f"toolu-{number}", "name": turn.tool, "input": arguments}
    return {
        "id": f"msg-{number}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": [block],
        "stop_reason": "end_turn" if turn.tool is None else "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(prompt_text(messages)),
            "output_tokens": len(turn.rendered()),
        },
    }


def message_events(body: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    """The same message as the events of a stream."""
    usage, (block,) = body["usage"], body["content"]
    opening = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": opening}
    started, kind, grown = {**block, "text": ""}, "text_delta", "text"
    text = block.get("text")
    if text is None:
        started, kind, grown = {**block, "input": {}}, "input_json_delta", "partial_json"
        text = json.dumps(block["input"])
    yield {"type": "content_block_start", "index": 0, "content_block": started}
    for start in range(0, len(text), _PIECE):
        delta = {"type": kind, grown: text[start : start + _PIECE]}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _with_system(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    messages: list[Mapping[str, Any]] = list(request.get("messages") or [])
    system = request.get("system")
    return [{"role": "system", "content": system}, *messages] if system else messages
