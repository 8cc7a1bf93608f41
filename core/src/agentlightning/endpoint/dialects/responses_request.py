"""A request of the Responses API as one for chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentlightning.endpoint.dialects.shapes import Responses
from agentlightning.endpoint.dialects.turns import Message, Turns, plain, text_in, unsupported
from agentlightning.endpoint.memory import Item, Memory
from agentlightning.endpoint.replies import Refused
from agentlightning.records import JSON

_ROLES: Final = frozenset({"user", "system", "developer", "assistant"})
_RENAMED: Final = {
    "max_output_tokens": "max_completion_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
}
_OURS: Final = frozenset(
    {
        *("input", "instructions", "previous_response_id", "store", "include", "text", "reasoning"),
        *("tools", "tool_choice", "stream", "stream_options", "top_logprobs", "return_token_ids"),
        *("background", "conversation", "prompt", "max_tool_calls", "truncation", "context_management"),
        *("metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("service_tier", *_RENAMED),
    }
)
"""Fields translated, kept here or of OpenAI's service; all others go to the engine as they are."""

_REFUSED: Final = ("background", "conversation", "prompt")
NO_EFFECT: Final = ("max_tool_calls", "truncation", "context_management")
_NEUTRAL: Final = (None, False, "disabled")


def chat_request(body: Mapping[str, Any], request: Responses, items: Sequence[Item]) -> dict[str, JSON]:
    """The request for chat completions.

    Args:
        body: as the agent sent it.
        request: its fields, checked.
        items: all of the input, earlier responses included.

    Raises:
        Refused: it asks for what a chat model cannot do.
    """
    for name in _REFUSED:
        if body.get(name) not in _NEUTRAL:
            raise unsupported(f"{name}={body[name]!r:.40} of the Responses API")
    chat = {name: value for name, value in body.items() if name not in _OURS}
    chat["messages"] = _messages(request.instructions, items)
    chat |= {new: body[old] for old, new in _RENAMED.items() if body.get(old) is not None}
    if request.tools:
        chat["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            chat["tool_choice"] = _tool_choice(request.tool_choice)
    else:
        chat.pop("parallel_tool_calls", None)
    if (effort := (request.reasoning or {}).get("effort")) is not None:
        chat["reasoning_effort"] = effort
    return chat | _text_options(request.text or {})


def input_items(body: Mapping[str, Any], memory: Memory) -> list[Item]:
    """The items a request itself brings, with references put in their place."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [
        memory.item(item.get("id")) if item.get("type") == "item_reference" else item
        for item in given or ()
    ]


def _messages(instructions: str | None, items: Sequence[Item]) -> list[Message]:
    turns = Turns()
    if instructions:
        turns.add("system", instructions)
    for place, item in enumerate(items):
        _add(turns, item, f"input[{place}]")
    if not turns.messages:
        raise Refused(400, "input: expected text or at least one item", "invalid_value")
    return turns.messages


def _add(turns: Turns, item: Item, place: str) -> None:
    kind = item.get("type") or "message"
    if kind == "message":
        _add_message(turns, item, place)
    elif kind == "function_call":
        turns.call(item.get("call_id"), item.get("name"), text_in(item, "arguments", place))
    elif kind == "function_call_output":
        turns.tool_result(item.get("call_id"), _content(item.get("output"), f"{place}.output"))
    elif kind == "reasoning":
        held = item.get("content") or item.get("summary")
        for part in held if isinstance(held, list) else ():
            if isinstance(part, Mapping) and part.get("text"):
                turns.think(text_in(dict(part), "text", place))
    else:
        raise unsupported(f"{place}: an item of type {kind!r:.40}")


def _add_message(turns: Turns, item: Item, place: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise Refused(
            400, f"{place}.role: expected one of {sorted(_ROLES)}, got {role!r:.40}", "invalid_value"
        )
    content = _content(item.get("content"), f"{place}.content")
    if role != "assistant":
        turns.add(role, content)
    elif isinstance(content, str):
        turns.say(content)
    else:
        raise unsupported(f"{place}: what is not text in an assistant's message")


def _content(content: Any, place: str) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise Refused(400, f"{place}: expected text or a list of parts", "invalid_value")
    return plain([_part(dict(part), f"{place}[{number}]") for number, part in enumerate(content)])


def _part(part: Message, place: str) -> Message:
    kind = part.get("type")
    if kind in {"input_text", "output_text", "text", "summary_text"}:
        return {"type": "text", "text": text_in(part, "text", place)}
    if kind == "refusal":
        return {"type": "text", "text": text_in(part, "refusal", place)}
    if kind == "input_image" and part.get("image_url"):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    if kind == "input_file" and part.get("file_data"):
        file = {name: part[name] for name in ("file_data", "filename") if part.get(name)}
        return {"type": "file", "file": file}
    raise unsupported(f"{place}: content of type {kind!r:.40} that is not in the request itself")


def _tool(tool: Mapping[str, Any]) -> Message:
    if tool.get("type") != "function":
        raise unsupported(f"the tool {tool.get('type')!r:.40}, which OpenAI runs itself,")
    names = ("name", "description", "parameters", "strict")
    return {
        "type": "function",
        "function": {name: tool[name] for name in names if tool.get(name) is not None},
    }


def _tool_choice(choice: str | Mapping[str, Any]) -> Any:
    if isinstance(choice, str):
        return choice
    if choice.get("type") != "function":
        raise unsupported(f"tool_choice of type {choice.get('type')!r:.40}")
    return {"type": "function", "function": {"name": choice.get("name")}}


def _text_options(text: Mapping[str, Any]) -> dict[str, JSON]:
    options: dict[str, JSON] = {}
    if text.get("verbosity") is not None:
        options["verbosity"] = text["verbosity"]
    wanted = text.get("format") or {}
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind == "json_schema":
        names = ("name", "description", "schema", "strict")
        schema = {name: wanted[name] for name in names if wanted.get(name) is not None}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        options["response_format"] = {"type": "json_object"}
    return options
