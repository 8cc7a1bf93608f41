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
    blocks: list[dict[str, JSON]] = []
    if turn.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": turn.reasoning, "signature": "scripted"})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    for place, (name, arguments) in enumerate(turn.calls):
        called = {"type": "tool_use", "id": f"toolu-{number}-{place}", "name": name}
        blocks.append({**called, "input": json.loads(arguments)})
    return {
        "id": f"msg-{number}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": blocks,
        "stop_reason": "end_turn" if turn.tool is None else "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(prompt_text(messages)),
            "output_tokens": len(turn.rendered()),
        },
    }


def message_events(body: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    """The same message as the events of a stream."""
    usage = body["usage"]
    opening = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(body["content"]):
        yield from _block_events(index, block)
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    name = block["type"]
    kind, grown, text = f"{name}_delta", name, str(block.get(name))
    empty: dict[str, JSON] = {name: ""}
    if name == "tool_use":
        kind, grown, empty = "input_json_delta", "partial_json", {"input": {}}
        text = json.dumps(block["input"])
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    for start in range(0, len(text), _PIECE):
        delta = {"type": kind, grown: text[start : start + _PIECE]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _with_system(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    messages: list[Mapping[str, Any]] = list(request.get("messages") or [])
    system = request.get("system")
    return [{"role": "system", "content": system}, *messages] if system else messages
