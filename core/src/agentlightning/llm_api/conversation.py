"""An LLM call of any protocol as chat messages: what people read and what SFT trains on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentlightning.records import JSON, LLMCall

Message = dict[str, JSON]


def conversation(call: LLMCall) -> list[Message]:
    """The request's messages and the first choice's, in the shape of chat completions."""
    reply = call.choices[0].message if call.choices else None
    if call.api == "chat":
        messages = [dict(message) for message in _mappings(call.request.get("messages"))]
        return messages + ([{"role": "assistant", **reply}] if reply else [])
    if call.api == "completions":
        messages = [{"role": "user", "content": call.request.get("prompt")}]
        return messages + ([{"role": "assistant", "content": reply.get("text")}] if reply else [])
    if call.api == "responses":
        return responses_messages(call.request, reply)
    return _anthropic(call.request, reply)


def request_messages(api: str, body: Mapping[str, Any]) -> tuple[JSON, ...]:
    """The messages of a request in its protocol's own shape, for whoever decides its route."""
    held = body.get(
        {"chat": "messages", "messages": "messages", "responses": "input"}.get(api, "prompt")
    )
    if isinstance(held, Sequence) and not isinstance(held, str):
        return tuple(held)
    return () if held is None else ({"role": "user", "content": held},)


def responses_messages(
    request: Mapping[str, JSON], reply: Mapping[str, JSON] | None = None
) -> list[Message]:
    """A request of the Responses API, and the output of its reply, as chat messages."""
    messages: list[Message] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    items = request.get("input")
    if isinstance(items, str):
        messages.append({"role": "user", "content": items})
    for item in [*_mappings(items), *_mappings((reply or {}).get("output"))]:
        _add_item(messages, item)
    return messages


def _add_item(messages: list[Message], item: Mapping[str, JSON]) -> None:
    kind = item.get("type", "message")
    if kind == "function_call":
        call = _tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        _assistant(messages).setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        messages.append(
            {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        )
    elif kind == "message" and item.get("role") == "assistant":
        message = _assistant(messages)
        message["content"] = (message.get("content") or "") + _text(item.get("content"))
    elif kind == "message":
        messages.append({"role": item.get("role"), "content": _text(item.get("content"))})
    else:  # reasoning, and item types newer than this code: kept as they are
        messages.append({"role": "assistant", "content": None, "item": dict(item)})


def _assistant(messages: list[Message]) -> Message:
    """The assistant message that is being added to; text and tool calls of one turn share it."""
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and "item" not in last:
        return last
    messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _anthropic(request: Mapping[str, JSON], reply: Mapping[str, JSON] | None) -> list[Message]:
    messages: list[Message] = []
    if request.get("system"):
        messages.append({"role": "system", "content": _text(request["system"])})
    for message in [*_mappings(request.get("messages")), *([reply] if reply else [])]:
        messages.extend(_blocks(message))
    return messages


def _blocks(message: Mapping[str, JSON]) -> Iterator[Message]:
    content = message.get("content")
    blocks = _mappings(content)
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": _text(block.get("content")),
            }
    calls = [
        _tool_call(block.get("id"), block.get("name"), json.dumps(block.get("input")))
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    text = _text(content)
    if text or calls:
        yield {
            "role": message.get("role"),
            "content": text or None,
            **({"tool_calls": calls} if calls else {}),
        }


def _tool_call(call_id: JSON, name: JSON, arguments: JSON) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(content: JSON) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in _mappings(content) if part.get("text"))


def _mappings(value: object) -> list[Mapping[str, JSON]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
