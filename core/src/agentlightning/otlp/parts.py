"""Messages in OpenTelemetry's shape, a role and parts, and in that of chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentlightning.llm_api.conversation import Message
from agentlightning.otlp.names import listed, plain
from agentlightning.otlp.told import tool_call
from agentlightning.records import JSON


def to_parts(message: Mapping[str, JSON]) -> dict[str, JSON]:
    """A message of chat completions as ``gen_ai.input.messages`` has them."""
    role, content = message.get("role"), message.get("content")
    parts: list[JSON] = []
    if role == "tool":
        response = {"id": message.get("tool_call_id"), "response": content}
        return {"role": role, "parts": [{"type": "tool_call_response", **response}]}
    if reasoning := message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": reasoning})
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [_to_part(item) for item in content]
    for call in listed(message.get("tool_calls")):
        held = call.get("function")
        function = held if isinstance(held, dict) else {}
        named = {"id": call.get("id"), "name": function.get("name")}
        parts.append({"type": "tool_call", **named, "arguments": plain(function.get("arguments"))})
    return {"role": role, "parts": parts}


def from_parts(told: Mapping[str, JSON]) -> list[Message]:
    """The messages that one with parts stands for: the results of several tools are several."""
    if not isinstance(told.get("parts"), list):
        return [dict(told)]  # written in the shape of chat completions
    role, content, rest = told.get("role"), [], Message()
    results: list[Message] = []
    for part in listed(told["parts"]):
        kind = part.get("type")
        if kind == "tool_call":
            call = tool_call(part.get("id"), part.get("name"), part.get("arguments"))
            rest.setdefault("tool_calls", []).append(call)
        elif kind == "tool_call_response":
            response = part.get("response", part.get("result"))
            text = response if isinstance(response, str) else json.dumps(response)
            results.append({"role": "tool", "tool_call_id": part.get("id"), "content": text})
        elif kind in ("reasoning", "thinking"):
            rest["reasoning_content"] = str(rest.get("reasoning_content", "")) + _text(part)
        else:
            content.append(_from_part(part))
    if results and not content and not rest:
        return results
    return [*results, {"role": role, "content": _joined(content), **rest}]


def output_message(said: Iterable[Message], finish_reason: str | None) -> dict[str, JSON]:
    """A reply, one message or several, as ``gen_ai.output.messages`` has it."""
    parts = [
        part
        for message in said
        if message.get("role") == "assistant"
        for part in to_parts(message)["parts"]
    ]
    reason = "tool_call" if finish_reason == "tool_calls" else finish_reason
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


def _to_part(item: JSON) -> JSON:
    if not isinstance(item, dict):
        return {"type": "text", "content": str(item)}
    if isinstance(item.get("text"), str):
        return {"type": "text", "content": item["text"]}
    image = item.get("image_url")
    if isinstance(image, dict) and image.get("url"):
        return {"type": "uri", "modality": "image", "uri": image["url"]}
    return item


def _from_part(part: Mapping[str, Any]) -> dict[str, JSON]:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": _text(part)}
    if kind == "uri" and part.get("modality", "image") == "image":
        return {"type": "image_url", "image_url": {"url": part.get("uri")}}
    if kind == "blob" and part.get("modality", "image") == "image":
        url = f"data:{part.get('mime_type') or 'image'};base64,{part.get('content')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return dict(part)


def _joined(content: Iterable[dict[str, JSON]]) -> JSON:
    content = list(content)
    if all(item.get("type") == "text" for item in content):
        return "".join(str(item["text"]) for item in content) if content else None
    return content


def _text(part: Mapping[str, Any]) -> str:
    return str(part.get("content") or part.get("text") or "")
