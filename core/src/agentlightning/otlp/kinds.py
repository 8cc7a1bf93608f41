"""Which kind of ours a foreign span is, where its attributes say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from agentlightning import semconv
from agentlightning.records import JSON, SpanKind

_BY_OPERATION: Final[Mapping[str, SpanKind]] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "execute_tool": "tool",
    "create_agent": "agent",
    "invoke_agent": "agent",
}
_BY_NAME: Final[Mapping[str, SpanKind]] = {
    semconv.MESSAGE_BODY: "message",
    semconv.OBJECT_BODY: "object",
    semconv.OPERATION_INPUT: "operation",
    semconv.OPERATION_OUTPUT: "operation",
    semconv.TOOL_NAME: "tool",
}


def kind_of(attributes: Mapping[str, JSON]) -> SpanKind:
    """``"other"`` unless an attribute of ours, or a GenAI operation, says what it is."""
    if _is_number(attributes.get(semconv.REWARD_VALUE)):
        return "reward"
    operation = attributes.get(semconv.OPERATION_NAME)
    if isinstance(operation, str) and operation in _BY_OPERATION:
        return _BY_OPERATION[operation]
    return next((kind for name, kind in _BY_NAME.items() if name in attributes), "other")


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
