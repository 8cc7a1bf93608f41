"""Which kind of ours a foreign span is, by each convention's own word for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, cast, get_args

from agentlightning import semconv
from agentlightning.records import JSON, SpanKind

_OURS: Final = frozenset(get_args(SpanKind))
_BY_WORD: Final[Mapping[str, Mapping[str, SpanKind]]] = {
    "openinference.span.kind": {
        "LLM": "llm",
        "TOOL": "tool",
        "AGENT": "agent",
        "CHAIN": "operation",
        "RETRIEVER": "operation",
        "RERANKER": "operation",
        "EMBEDDING": "operation",
        "GUARDRAIL": "operation",
        "EVALUATOR": "operation",
    },
    semconv.OPERATION_NAME: {
        "chat": "llm",
        "text_completion": "llm",
        "generate_content": "llm",
        "execute_tool": "tool",
        "create_agent": "agent",
        "invoke_agent": "agent",
        "invoke_workflow": "operation",
    },
    "traceloop.span.kind": {
        "workflow": "operation",
        "task": "operation",
        "agent": "agent",
        "tool": "tool",
    },
    "llm.request.type": {"chat": "llm", "completion": "llm"},
}
"""Attributes that name a kind: OpenInference, OpenTelemetry, OpenLLMetry new and old."""

_BY_NAME: Final[Mapping[str, SpanKind]] = {
    semconv.MESSAGE_BODY: "message",
    semconv.OBJECT_BODY: "object",
    semconv.OPERATION_INPUT: "operation",
    semconv.OPERATION_OUTPUT: "operation",
    semconv.TOOL_NAME: "tool",
    "request_data": "llm",
}
"""Attributes that only spans of one kind have; the last is Logfire's."""


def kind_of(attributes: Mapping[str, JSON]) -> SpanKind:
    """``"other"`` unless an attribute of ours, or of a convention, says what it is."""
    if _is_number(attributes.get(semconv.REWARD_VALUE)):
        return "reward"
    told = attributes.get(semconv.KIND)
    has_bad_value = told == "reward" and semconv.REWARD_VALUE in attributes
    if isinstance(told, str) and told in _OURS and not has_bad_value:
        return cast("SpanKind", told)
    for name, kinds in _BY_WORD.items():
        word = attributes.get(name)
        if isinstance(word, str) and word in kinds:
            return kinds[word]
    return next((kind for name, kind in _BY_NAME.items() if name in attributes), "other")


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
