"""Names, arguments and results of agents and tools under OpenTelemetry's names, whatever theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from agentlightning import semconv
from agentlightning.records import JSON, SpanKind

_ELSEWHERE: Final[Mapping[SpanKind, Mapping[str, Sequence[str]]]] = {
    "agent": {semconv.AGENT_NAME: ("agent.name", "agent_name", "traceloop.entity.name")},
    "tool": {
        semconv.TOOL_NAME: ("tool.name", "traceloop.entity.name"),
        semconv.TOOL_CALL_ID: ("tool_call.id", "tool.id"),
        semconv.TOOL_ARGUMENTS: (
            "tool.parameters",
            "tool_arguments",
            "input.value",
            "traceloop.entity.input",
        ),
        semconv.TOOL_RESULT: ("tool_response", "output.value", "traceloop.entity.output"),
    },
}


def in_our_words(kind: SpanKind, attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """The attributes to add, so that a span of that kind reads like one of ours."""
    added: dict[str, JSON] = {}
    for ours, theirs in _ELSEWHERE.get(kind, {}).items():
        if ours not in attributes and (found := first_of(attributes, theirs)) is not None:
            added[ours] = found
    return added


def first_of(attributes: Mapping[str, JSON], names: Sequence[str]) -> JSON:
    """The value of the first of these attributes that there is."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def plain(value: JSON) -> JSON:
    """What JSON text says; any other value and text as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def listed(value: JSON) -> list[dict[str, JSON]]:
    """The objects of a list, given as such or as JSON text."""
    value = plain(value)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
