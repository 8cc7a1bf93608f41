"""Chat messages and tools as chat templates expect them, whoever wrote them.

What is learnt of a conversation and what is served to an agent must be rendered alike, so whoever
renders one goes through here. ``datasets`` fills whatever another row has with null, frameworks send
null for what is absent, and the protocol has tool arguments as JSON text; templates would print all
three as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentlightning.llm_api.conversation import Message
from agentlightning.records import JSON


class BadConversation(ValueError):
    """Messages or tools that no chat template can render; says what and where."""


def template_messages(messages: JSON) -> list[Message]:
    """Messages with text as content and tool arguments as objects; nothing that is absent is null.

    Raises:
        BadConversation: no list of messages, no role, content that is not text, a tool call without a
            name, or arguments that are not JSON.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise BadConversation(
            f"messages: expected a list with at least one message, got {_shown(messages)}"
        )
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def template_tools(tools: JSON) -> list[Message]:
    """Tool schemas in the shape of chat completions; empty for none.

    Takes that shape, those of the Responses and the Anthropic API, and a list of any as JSON text.

    Raises:
        BadConversation: it is no list of schemas.
    """
    if isinstance(tools, str):
        tools = _parsed(tools, "tools")
    if tools is None:
        return []
    if not isinstance(tools, Sequence):
        raise BadConversation(f"tools: expected a list of tool schemas, got {_shown(tools)}")
    return [_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools)]


def _message(message: JSON, place: str) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise BadConversation(f"{place}: expected an object with a role, got {_shown(message)}")
    ready: Message = _without_nulls(message)
    ready["role"] = "system" if message["role"] == "developer" else message["role"]
    ready["content"] = _text(message.get("content"), place)
    calls = ready.pop("tool_calls", None)
    if calls:
        ready["tool_calls"] = [_call(call, place) for call in message["tool_calls"]]
    return ready


def _text(content: JSON, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise BadConversation(f"{place}: content of type {kind!r}; expected text only")
        texts.append(part["text"])
    return "\n".join(texts)


def _call(call: JSON, place: str) -> Message:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadConversation(
            f"{place}: expected tool calls with a function and its name, got {_shown(call)}"
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str):  # a null in it is meant; one in an object may be a filling
        arguments = _parsed(arguments or "{}", f"{place}: the arguments of {function['name']!r}")
    else:
        arguments = _without_nulls(arguments or {})
    return {**_without_nulls(call), "function": {**_without_nulls(function), "arguments": arguments}}


def _tool(tool: JSON, place: str) -> Message:
    if not isinstance(tool, Mapping):
        raise BadConversation(f"{place}: expected a tool schema, got {_shown(tool)}")
    schema: Message = _without_nulls(tool)
    if "function" in schema or "name" not in schema:
        return schema
    described = {key: schema[key] for key in ("name", "description") if key in schema}
    parameters = schema.get("parameters") or schema.get("input_schema") or {}
    return {"type": "function", "function": {**described, "parameters": parameters}}


def _without_nulls(value: JSON) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _parsed(text: str, what: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadConversation(f"{what} are not JSON ({error}): {text[:80]!r}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - what fits in a message
