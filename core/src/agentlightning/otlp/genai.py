"""OpenTelemetry's own attributes of an LLM call, those of today and of earlier years.

Today messages are JSON in ``gen_ai.input.messages``. Before, they were an attribute for each field
(``gen_ai.prompt.0.content``: OpenLLMetry) or an event for each message; Logfire keeps whole bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentlightning import semconv
from agentlightning.llm_api.conversation import Message
from agentlightning.otlp.flat import nested
from agentlightning.otlp.names import first_of, listed, plain
from agentlightning.otlp.parts import from_parts
from agentlightning.otlp.told import Told, text_or_none, tool_call
from agentlightning.records import JSON, SpanEvent

_PARAMETERS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "stop": "gen_ai.request.stop_sequences",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
_USAGE: Final = {
    "prompt_tokens": (semconv.INPUT_TOKENS, "gen_ai.usage.prompt_tokens"),
    "completion_tokens": (semconv.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens"),
    "total_tokens": ("gen_ai.usage.total_tokens", "llm.usage.total_tokens"),
}
_PARTS: Final = (
    semconv.INPUT_MESSAGES,
    semconv.OUTPUT_MESSAGES,
    semconv.SYSTEM_INSTRUCTIONS,
    semconv.TOOL_DEFINITIONS,
    "gen_ai.prompt.",
    "gen_ai.completion.",
    "llm.request.functions.",
    "request_data",
    "response_data",
    "events",
)
_ROLES: Final = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CHOICE: Final = "gen_ai.choice"


def genai(attributes: Mapping[str, JSON], events: Sequence[SpanEvent] = ()) -> Told:
    """The call that the attributes, and the events of older instrumentors, tell of."""
    told = Told(
        tools=_tools(attributes),
        parameters={
            name: attributes[theirs] for name, theirs in _PARAMETERS.items() if theirs in attributes
        },
        finish_reasons=_list(attributes.get(semconv.FINISH_REASONS)),
        usage={
            name: value
            for name, theirs in _USAGE.items()
            if (value := first_of(attributes, theirs)) is not None
        },
        model=text_or_none(attributes.get(semconv.REQUEST_MODEL)),
        response_model=text_or_none(attributes.get(semconv.RESPONSE_MODEL)),
        response_id=text_or_none(attributes.get(semconv.RESPONSE_ID)),
        base_url=_base_url(attributes),
        parts=_PARTS,
    )
    for read in (_of_today, _flat, _bodies):
        read(told, attributes)
        if told.asked or told.replies:
            return told
    _of_events(told, [*_listed_events(attributes), *map(_event, events)])
    return told


def _of_today(told: Told, attributes: Mapping[str, JSON]) -> None:
    system = [
        {"role": "system", "parts": [part]}
        for part in listed(attributes.get(semconv.SYSTEM_INSTRUCTIONS))
    ]
    asked = [*system, *listed(attributes.get(semconv.INPUT_MESSAGES))]
    replies = listed(attributes.get(semconv.OUTPUT_MESSAGES))
    told.asked = [message for item in asked for message in from_parts(item)]
    told.replies = [{"role": "assistant", **_reply(from_parts(item)[-1])} for item in replies]
    told.finish_reasons = [item.get("finish_reason") for item in replies] or told.finish_reasons


def _reply(message: Message) -> Message:
    return {name: value for name, value in message.items() if name != "finish_reason"}


def _flat(told: Told, attributes: Mapping[str, JSON]) -> None:
    replies = _items(nested(attributes, "gen_ai.completion"))
    told.asked = [_flat_message(item, "user") for item in _items(nested(attributes, "gen_ai.prompt"))]
    told.replies = [_flat_message(item, "assistant") for item in replies]
    reasons = [item.get("finish_reason") for item in replies]
    told.finish_reasons = reasons if any(reasons) else told.finish_reasons


def _flat_message(item: Mapping[str, Any], role: str) -> Message:
    content = item.get("content")
    parts = plain(content)
    if isinstance(parts, list) and all(isinstance(part, dict) and "type" in part for part in parts):
        content = parts or content  # a list of parts, written as text
    message: Message = {"role": text_or_none(item.get("role")) or role, "content": content}
    if calls := _items(item.get("tool_calls")):
        message["tool_calls"] = [
            tool_call(call.get("id"), call.get("name"), call.get("arguments")) for call in calls
        ]
    if item.get("tool_call_id") is not None:
        message["tool_call_id"] = item["tool_call_id"]
    return message


def _bodies(told: Told, attributes: Mapping[str, JSON]) -> None:
    """Logfire's: the request as it was sent, and the reply's message."""
    sent, got = plain(attributes.get("request_data")), plain(attributes.get("response_data"))
    if isinstance(sent, dict):
        told.asked = listed(sent.get("messages"))
        told.tools = listed(sent.get("tools")) or told.tools
        told.model = told.model or text_or_none(sent.get("model"))
        told.parameters = {
            **told.parameters,
            **{name: sent[name] for name in _PARAMETERS if sent.get(name) is not None},
        }
    if isinstance(got, dict):
        message = got.get("message")
        streamed = {"role": "assistant", "content": got.get("combined_chunk_content")}
        found = message if isinstance(message, dict) else streamed
        told.replies = [found] if found.get("content") or found.get("tool_calls") else []


def _of_events(told: Told, events: Sequence[Mapping[str, JSON]]) -> None:
    asked, replies, reasons = [], [], []
    for event in events:
        name = event.get("event.name")
        body = {key: value for key, value in event.items() if not key.startswith("event.")}
        if name == _CHOICE:
            message = plain(body.get("message"))
            reply = message if isinstance(message, dict) else {"content": body.get("content")}
            replies.append(_event_message(reply, "assistant"))
            reasons.append(body.get("finish_reason"))
        elif isinstance(name, str) and name in _ROLES:
            asked.append(_event_message(body, _ROLES[name]))
    told.asked, told.replies = asked, replies
    told.finish_reasons = reasons or told.finish_reasons


def _event_message(body: Mapping[str, JSON], role: str) -> Message:
    message: Message = {"role": text_or_none(body.get("role")) or role, "content": body.get("content")}
    if calls := listed(body.get("tool_calls")):
        message["tool_calls"] = calls
    if role == "tool" and (call_id := first_of(body, ("tool_call_id", "id"))) is not None:
        message["tool_call_id"] = call_id
    return message


def _listed_events(attributes: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    return listed(attributes.get("events"))


def _event(event: SpanEvent) -> dict[str, JSON]:
    return {**event.attributes, "event.name": event.name}


def _tools(attributes: Mapping[str, JSON]) -> list[JSON]:
    defined = listed(attributes.get(semconv.TOOL_DEFINITIONS))
    flat = _items(nested(attributes, "llm.request.functions"))
    return [_tool(item) for item in defined or flat]


def _tool(told: Mapping[str, JSON]) -> JSON:
    if "function" in told or "name" not in told:
        return dict(told)
    schema = {name: told[name] for name in ("name", "description") if told.get(name) is not None}
    parameters = plain(told.get("parameters"))
    return {"type": "function", "function": {**schema, "parameters": parameters or {}}}


def _base_url(attributes: Mapping[str, JSON]) -> str:
    told = text_or_none(first_of(attributes, ("gen_ai.openai.api_base", "llm.base_url")))
    if told is not None:
        return told.rstrip("/")
    address, port = attributes.get("server.address"), attributes.get("server.port")
    if not isinstance(address, str) or not address:
        return ""
    return f"{address}:{port}" if isinstance(port, int) else address


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
