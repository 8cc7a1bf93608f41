"""What a rollout was asked and what it answered, by the attributes of its root and its LLM calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from agentlightning import semconv
from agentlightning.llm_api import conversation, scrub
from agentlightning.llm_api.conversation import Message
from agentlightning.otlp import first_of, plain
from agentlightning.records import JSON, LLMCall, Span

_INPUTS: Final = (
    "traceloop.entity.input",
    "langfuse.trace.input",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    semconv.OPERATION_INPUT,
)
_OUTPUTS: Final = (
    "traceloop.entity.output",
    "langfuse.trace.output",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
    "final_result",
    semconv.OPERATION_OUTPUT,
)


def asked_of(root: Span, calls: Sequence[LLMCall]) -> JSON:
    """The task: what the root was given, else the messages its first LLM call was sent."""
    found = None
    if root.kind != "llm":
        found = _told(root.attributes, "input", _INPUTS)
        if found is None:
            found = _messages(root.attributes, semconv.INPUT_MESSAGES)
    if found is not None or not calls:
        return scrub(_unwrapped(found))
    return {"messages": conversation(replace(calls[0], choices=()))}


def answered_by(root: Span, calls: Sequence[LLMCall]) -> JSON:
    """The output: what the root gave back, else what its last LLM call said."""
    found = _told(root.attributes, "output", _OUTPUTS) if root.kind != "llm" else None
    if found is not None or not calls or not calls[-1].choices:
        return scrub(_unwrapped(found))
    said: Message = conversation(calls[-1])[-1]
    return said.get("content") or ({"tool_calls": said["tool_calls"]} if "tool_calls" in said else None)


def _told(attributes: Mapping[str, JSON], which: str, names: Sequence[str]) -> JSON:
    value = attributes.get(f"{which}.value")  # OpenInference's, and ours
    if value is not None:
        is_json = attributes.get(f"{which}.mime_type") == "application/json"
        return _parsed(value) if is_json else value
    return _parsed(first_of(attributes, names))


def _messages(attributes: Mapping[str, JSON], name: str) -> JSON:
    found = plain(attributes.get(name))
    return None if found is None else {"messages": found}


def _unwrapped(value: JSON) -> JSON:
    """A function's only argument, where all were kept; what LangChain's chain was given."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"args", "kwargs"} and isinstance(value["args"], list):
        args, named = value["args"], value["kwargs"]
        if not named and len(args) == 1:
            return args[0]
        return named if not args else value
    return value["inputs"] if isinstance(value.get("inputs"), dict | str) else value


def _parsed(value: JSON) -> JSON:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
