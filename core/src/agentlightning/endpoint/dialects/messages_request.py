"""A request of Anthropic's Messages API as one for chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentlightning.endpoint.dialects.shapes import AnthropicMessage, Messages
from agentlightning.endpoint.dialects.turns import Message, Turns, plain, text_in, unsupported
from agentlightning.endpoint.memory import Memory
from agentlightning.endpoint.replies import Refused
from agentlightning.records import JSON

_RENAMED: Final = {"max_tokens": "max_completion_tokens", "stop_sequences": "stop"}
NO_EFFECT: Final = ("thinking", "context_management", "output_config")
_OURS: Final = frozenset(
    {
        *("messages", "system", "tools", "tool_choice", "stream", "return_token_ids", "logprobs"),
        *("metadata", "service_tier", "container", "mcp_servers", "cache_control", "betas"),
        *("inference_geo", *NO_EFFECT, *_RENAMED),
    }
)
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: Mapping[str, Any], request: Messages, memory: Memory) -> dict[str, JSON]:
    """The request for chat completions.

    Raises:
        Refused: it asks for what a chat model cannot do.
    """
    if body.get("mcp_servers"):
        raise unsupported("mcp_servers of the Messages API")
    chat = {name: value for name, value in body.items() if name not in _OURS}
    chat["messages"] = _messages(request, memory)
    chat |= {new: body[old] for old, new in _RENAMED.items() if body.get(old) is not None}
    if request.tools:
        chat["tools"] = [_tool(tool) for tool in request.tools]
        chat |= _tool_choice(request.tool_choice)
    return chat


def _messages(request: Messages, memory: Memory) -> list[Message]:
    turns = Turns()
    if request.system:
        turns.add("system", _content(request.system, "system"))
    for number, message in enumerate(request.messages):
        place = f"messages[{number}]"
        if message.role == "assistant":
            _add_assistant(turns, message, memory, place)
        elif message.role in {"user", "system"}:
            _add_user(turns, message, place)
        else:
            raise Refused(
                400,
                f"{place}.role: expected user or assistant, got {message.role!r:.40}",
                "invalid_value",
            )
    return turns.messages


def _add_assistant(turns: Turns, message: AnthropicMessage, memory: Memory, place: str) -> None:
    for number, block in enumerate(_blocks(message.content)):
        kind, at = block.get("type"), f"{place}.content[{number}]"
        if kind == "text":
            turns.say(text_in(block, "text", at))
        elif kind == "tool_use":
            call_id, value = block.get("id"), block.get("input")
            turns.call(call_id, block.get("name"), memory.arguments(call_id, value))
        elif kind == "thinking":
            turns.think(text_in(block, "thinking", at))
        elif kind != "redacted_thinking":  # which nobody but its writer can read
            raise unsupported(f"{at}: a block of type {kind!r:.40}")


def _add_user(turns: Turns, message: AnthropicMessage, place: str) -> None:
    """Results of tools first, each a message of its own, then what else the user says."""
    said = []
    for number, block in enumerate(_blocks(message.content)):
        if block.get("type") != "tool_result":
            said.append(_part(block, f"{place}.content[{number}]"))
            continue
        content = _content(block.get("content"), f"{place}.content[{number}].content")
        if isinstance(content, list):  # a tool's message is text; its pictures come after it
            said += [part for part in content if part["type"] != "text"]
            content = plain([part for part in content if part["type"] == "text"])
        turns.tool_result(block.get("tool_use_id"), content)
    if said or not message.content:
        turns.add(message.role, plain(said))


def _blocks(content: str | Sequence[Message]) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _content(content: Any, place: str) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise Refused(400, f"{place}: expected text or a list of blocks", "invalid_value")
    return plain([_part(block, f"{place}[{number}]") for number, block in enumerate(content)])


def _part(block: Message, place: str) -> Message:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "text", "text": text_in(block, "text", place)}
    if isinstance(source, dict):
        if kind == "image":
            return {"type": "image_url", "image_url": {"url": _url(source, place)}}
        if kind == "document" and source.get("type") == "text":
            return {"type": "text", "text": text_in(source, "data", place)}
        if kind == "document" and source.get("type") == "base64":
            title = block.get("title")
            named = {"filename": title} if title else {}
            return {"type": "file", "file": {"file_data": _url(source, place), **named}}
    raise unsupported(f"{place}: a block of type {kind!r:.40} that is not in the request itself")


def _url(source: Message, place: str) -> str:
    if source.get("type") == "url":
        return text_in(source, "url", f"{place}.source")
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{text_in(source, 'data', f'{place}.source')}"
    raise unsupported(f"{place}: a source of type {source.get('type')!r:.40}")


def _tool(tool: Mapping[str, Any]) -> Message:
    if tool.get("type") not in {None, "custom"}:
        raise unsupported(f"the tool {tool.get('type')!r:.40}, which Anthropic defines,")
    described = {"description": tool["description"]} if tool.get("description") else {}
    parameters = tool.get("input_schema") or {}
    function = {"name": tool.get("name"), **described, "parameters": parameters}
    return {"type": "function", "function": function}


def _tool_choice(choice: Mapping[str, Any] | None) -> dict[str, JSON]:
    if choice is None:
        return {}
    options: dict[str, JSON] = {}
    if choice.get("disable_parallel_tool_use") is True:
        options["parallel_tool_calls"] = False
    kind = choice.get("type")
    if kind == "tool":
        function = {"type": "function", "function": {"name": choice.get("name")}}
        return {"tool_choice": function, **options}
    if kind not in _CHOICES:
        raise Refused(
            400, f"tool_choice.type: {kind!r:.40} is none of {[*_CHOICES, 'tool']}", "invalid_value"
        )
    return {"tool_choice": _CHOICES[kind], **options}
