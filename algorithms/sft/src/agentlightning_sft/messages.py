"""Chat messages as templates expect them, from whatever datasets and frameworks make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentlightning.records import JSON

Message = dict[str, JSON]


class BadChat(ValueError):
    """A conversation that cannot be trained on; the message says what and where within it."""


def for_template(messages: JSON) -> list[Message]:
    """Messages with text as content and tool arguments as objects; nothing that is absent is null.

    ``datasets`` fills whatever another row has with null, LangChain sends ``content: null`` beside tool
    calls, and the protocol has arguments as JSON text. Templates would print all three as they are.

    Raises:
        BadChat: no list of messages, no role, content that is not text, arguments that are not JSON.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise BadChat(f"expected a list with at least one message, got {_shown(messages)}")
    return [_message(message, f"message {place}") for place, message in enumerate(messages)]


def for_template_tools(tools: JSON) -> list[JSON] | None:
    """Tool schemas in the shape of chat completions; None for none.

    Takes that shape, those of the Responses and the Anthropic API, and any of them as JSON text.
    """
    if isinstance(tools, str):
        tools = _parsed(tools, "tools")
    if tools is None:
        return None
    if not isinstance(tools, Sequence):
        raise BadChat(f"tools: expected a list of tool schemas, got {_shown(tools)}")
    return [_tool(_without_nulls(tool)) for tool in tools] or None


def same_turn(one: Mapping[str, JSON], other: Mapping[str, JSON]) -> bool:
    """Whether two messages say the same, whatever else their frameworks note on them."""
    return bool(_said(one) == _said(other))


def _message(message: JSON, place: str) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise BadChat(f"{place}: expected an object with a role, got {_shown(message)}")
    kept = {key: value for key, value in message.items() if value is not None}
    kept["role"] = "system" if message["role"] == "developer" else message["role"]
    kept["content"] = _text(message.get("content"), place)
    calls = kept.pop("tool_calls", None)
    if calls:
        kept["tool_calls"] = [_call(call, place) for call in calls]
    return kept


def _text(content: JSON, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise BadChat(f"{place}: only text can be trained on so far, got {_shown(content)}")
    return "\n".join(str(text) for text in texts)


def _call(call: JSON, place: str) -> JSON:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadChat(f"{place}: expected tool calls with a function and its name, got {_shown(call)}")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parsed(arguments or "{}", f"{place}: the arguments of {function['name']!r}")
    else:  # an object may have been through `datasets`; in JSON text a null is meant
        arguments = _without_nulls(arguments or {})
    return {**_without_nulls(call), "function": {**_without_nulls(function), "arguments": arguments}}


def _tool(tool: JSON) -> JSON:
    if not isinstance(tool, Mapping):
        raise BadChat(f"tools: expected tool schemas, got {_shown(tool)}")
    if "function" in tool or "name" not in tool:
        return tool
    described = {key: tool[key] for key in ("name", "description") if key in tool}
    parameters = tool.get("parameters") or tool.get("input_schema") or {}
    return {"type": "function", "function": {**described, "parameters": parameters}}


def _said(message: Mapping[str, JSON]) -> JSON:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    named = [(function["name"], function["arguments"]) for function in calls]
    return (message["role"], message["content"], named, message.get("tool_call_id"))


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
        raise BadChat(f"{what} are not JSON ({error}): {text[:80]!r}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - what fits in a message
