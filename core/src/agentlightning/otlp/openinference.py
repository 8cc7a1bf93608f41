"""OpenInference's attributes of an LLM span (Arize Phoenix and its instrumentors)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentlightning.llm_api.conversation import Message
from agentlightning.otlp.flat import nested
from agentlightning.otlp.names import plain
from agentlightning.otlp.told import Told, text_or_none, tool_call
from agentlightning.records import JSON

_USAGE: Final = {
    "prompt_tokens": "llm.token_count.prompt",
    "completion_tokens": "llm.token_count.completion",
    "total_tokens": "llm.token_count.total",
}
_PARTS: Final = (
    "llm.input_messages.",
    "llm.output_messages.",
    "llm.prompts.",
    "llm.choices.",
    "llm.tools.",
    "llm.invocation_parameters",
    "input.value",
    "input.mime_type",
    "output.value",
    "output.mime_type",
)


def openinference(attributes: Mapping[str, JSON]) -> Told | None:
    """The call that the attributes tell of; None if they are not of this convention."""
    prompts, completions = nested(attributes, "llm.prompts"), nested(attributes, "llm.choices")
    asked, replied = nested(attributes, "llm.input_messages"), nested(attributes, "llm.output_messages")
    if attributes.get("openinference.span.kind") != "LLM" and not (asked or replied):
        return None
    reply = plain(attributes.get("output.value"))
    of_reply = reply if isinstance(reply, dict) else {}
    model = text_or_none(attributes.get("llm.model_name"))
    parameters = plain(attributes.get("llm.invocation_parameters"))
    texts = [_under(item, "prompt").get("text") for item in _items(prompts)]
    said = [_under(item, "completion").get("text") for item in _items(completions)]
    is_completion = bool(texts) and not asked
    return Told(
        asked=[_message(_under(item, "message")) for item in _items(asked)],
        replies=[{"content": text} for text in said]
        if is_completion
        else [_message(_under(item, "message"), role="assistant") for item in _items(replied)],
        prompts=[str(text) for text in texts] if is_completion else (),
        tools=[
            schema
            for item in _items(nested(attributes, "llm.tools"))
            if isinstance(schema := plain(_under(item, "tool").get("json_schema")), dict)
        ],
        parameters=_without_bodies(parameters) if isinstance(parameters, dict) else {},
        finish_reasons=[attributes.get("llm.finish_reason")],
        usage={name: attributes[theirs] for name, theirs in _USAGE.items() if theirs in attributes},
        model=model,
        response_model=text_or_none(of_reply.get("model")) or model,
        response_id=text_or_none(of_reply.get("id")),
        parts=_PARTS,
    )


def _without_bodies(parameters: Mapping[str, JSON]) -> dict[str, JSON]:
    return {
        name: value
        for name, value in parameters.items()
        if name not in ("messages", "input", "prompt", "tools", "instructions")
    }


def _message(told: Mapping[str, Any], role: str = "user") -> Message:
    content = told.get("content")
    if content is None and (parts := _items(told.get("contents"))):
        content = _contents([_under(part, "message_content") for part in parts])
    message: Message = {"role": text_or_none(told.get("role")) or role, "content": content}
    calls = [_under(item, "tool_call") for item in _items(told.get("tool_calls"))]
    if calls:
        message["tool_calls"] = [
            tool_call(call.get("id"), function.get("name"), function.get("arguments"))
            for call in calls
            if isinstance(function := call.get("function"), dict)
        ]
    for name in ("tool_call_id", "name"):
        if told.get(name) is not None:
            message[name] = told[name]
    return message


def _contents(parts: Iterable[Mapping[str, Any]]) -> JSON:
    """Text alone as text; with anything else, the parts as chat completions has them."""
    made: list[JSON] = []
    for part in parts:
        image = part.get("image")
        url = _under(image, "image").get("url") if isinstance(image, dict) else None
        if url is not None:
            made.append({"type": "image_url", "image_url": {"url": url}})
        elif part.get("text") is not None:
            made.append({"type": "text", "text": part["text"]})
        else:
            made.append(dict(part))
    if all(isinstance(item, dict) and item.get("type") == "text" for item in made):
        return "".join(str(item["text"]) for item in made)
    return made


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _under(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    below = item.get(name)
    return below if isinstance(below, dict) else {}
