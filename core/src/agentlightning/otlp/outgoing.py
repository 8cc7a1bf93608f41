"""From our spans to OTLP: OpenTelemetry's names for LLM calls, ours for what it has none for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from agentlightning import semconv
from agentlightning.llm_api import conversation
from agentlightning.otlp.kinds import kind_of
from agentlightning.otlp.parts import output_message, to_parts
from agentlightning.records import JSON, LLMCall, Rollout, Run, Span, SpanKind

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1 import trace_pb2

SCOPE: Final = "agentlightning"
_STATUSES: Final = {"unset": 0, "ok": 1, "error": 2}
_INTERNAL, _CLIENT = 1, 3
_OPERATIONS: Final[Mapping[SpanKind, str]] = {"agent": "invoke_agent", "tool": "execute_tool"}
_FIELDS: Final = {
    bool: "bool_value",
    int: "int_value",
    float: "double_value",
    str: "string_value",
}
_PARAMETERS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "stop": "gen_ai.request.stop_sequences",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}


def request_of(run: Run, rollout: Rollout, spans: Iterable[Span]) -> ExportTraceServiceRequest:
    """An export request with these spans of a rollout.

    Content goes along: messages, tools, the task and the output. Token ids and log-probabilities do
    not; ``agl export`` as JSONL or Parquet has them.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_run = {"service.name": SCOPE, semconv.RUN_ID: run.run_id, semconv.RUN_NAME: run.name}
    of_resource.resource.attributes.extend(_pairs(of_run))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = SCOPE
    of_scope.spans.extend(_span(rollout, span) for span in spans)
    return request


def _span(rollout: Rollout, span: Span) -> trace_pb2.Span:
    from opentelemetry.proto.trace.v1 import trace_pb2

    attributes = _attributes(rollout, span)
    failure = span.call.error if span.call is not None and span.call.error else ""
    return trace_pb2.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.ValueType(_CLIENT if span.call is not None else _INTERNAL),
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_pairs(attributes),
        events=[
            trace_pb2.Span.Event(
                name=event.name, time_unix_nano=event.time_ns, attributes=_pairs(event.attributes)
            )
            for event in span.events
        ],
        status=trace_pb2.Status(
            code=trace_pb2.Status.StatusCode.ValueType(_STATUSES[span.status]), message=failure
        ),
    )


def _attributes(rollout: Rollout, span: Span) -> dict[str, JSON]:
    attributes: dict[str, JSON] = {
        semconv.ROLLOUT_ID: span.rollout_id,
        semconv.ATTEMPT: span.attempt,
        **span.attributes,
    }
    if span.kind in _OPERATIONS:
        attributes.setdefault(semconv.OPERATION_NAME, _OPERATIONS[span.kind])
    if span.call is not None:
        attributes.update(_of_call(span.call))
    if span.parent_id is None and span.attempt == rollout.attempt:
        attributes.update(_of_rollout(rollout))
    if kind_of(attributes) != span.kind and span.kind != "other":  # a foreign LLM span stays one
        attributes[semconv.KIND] = span.kind
    return attributes


def _of_rollout(rollout: Rollout) -> dict[str, JSON]:
    """What is known of the rollout, on the root of its last attempt."""
    told: dict[str, JSON] = {semconv.MODE: rollout.mode, semconv.STATUS: rollout.status}
    for which, value in (("input", rollout.input), ("output", rollout.output)):
        if value is not None:  # OpenInference's names, which most viewers know
            told[f"{which}.value"] = json.dumps(value, ensure_ascii=False)
            told[f"{which}.mime_type"] = "application/json"
    return told


def _of_call(call: LLMCall) -> dict[str, JSON]:
    asked = conversation(replace(call, choices=()))
    said = [_said(call, place) for place in range(len(call.choices))]
    reasons = [choice.finish_reason for choice in call.choices if choice.finish_reason]
    tools = call.request.get("tools")
    told: dict[str, JSON] = {
        semconv.SEQ: call.seq,
        semconv.MODEL_VERSION: call.model_version,
        semconv.RETRIES: call.retries or None,
        "gen_ai.request.stream": call.streamed or None,
        "gen_ai.openai.api_base": call.base_url or None,
        semconv.INPUT_MESSAGES: _text([to_parts(message) for message in asked]),
        semconv.OUTPUT_MESSAGES: _text(said) if said else None,
        semconv.TOOL_DEFINITIONS: _text(tools) if tools else None,
        semconv.FINISH_REASONS: reasons or None,
        **{theirs: call.request[name] for name, theirs in _PARAMETERS.items() if name in call.request},
    }
    return {name: value for name, value in told.items() if value is not None}


def _said(call: LLMCall, place: int) -> JSON:
    """A choice as a message of chat completions, whatever the protocol."""
    choice = call.choices[place]
    said = conversation(replace(call, request={}, choices=(choice,)))
    return output_message(said, choice.finish_reason)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    return [KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: JSON) -> AnyValue:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList

    if value is None:
        return AnyValue()
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(_value, value)))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=_pairs(value)))
    return AnyValue(**{_FIELDS[type(value)]: value})
