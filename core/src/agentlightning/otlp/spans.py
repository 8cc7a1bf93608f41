"""From an exported span to a record of the rollout and attempt it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from agentlightning import semconv
from agentlightning.errors import BadValue
from agentlightning.llm_api.scrub import scrub_text
from agentlightning.otlp.kinds import kind_of
from agentlightning.otlp.names import in_our_words
from agentlightning.otlp.reading import Exported, Refusals, exported
from agentlightning.otlp.values import attributes_of
from agentlightning.records import (
    JSON,
    AttemptKey,
    Span,
    SpanEvent,
    SpanStatus,
    attempt_of_trace,
    root_span_id_of,
)

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1 import trace_pb2

_STATUSES: Final[tuple[SpanStatus, ...]] = ("unset", "ok", "error")
_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
_LATEST_NS: Final = 2**63 - 1
OURS: Final = (semconv.ROLLOUT_ID, semconv.ATTEMPT)
"""What names the attempt of a span, on the span or on its resource."""


def spans_of(request: ExportTraceServiceRequest) -> tuple[list[Span], Refusals]:
    """The spans of an export request that can be kept, and why the others cannot.

    A span belongs to the attempt that its attributes ``agentlightning.rollout_id`` and
    ``agentlightning.attempt`` name, or those of its resource, else to the attempt whose trace it
    continues. What has no field of ours is kept among its attributes, under the names OpenTelemetry
    gives such things (``otel.…``).

    LLM spans are kept as kind ``"other"``: the calls of an attempt that runs are recorded by seam and
    endpoint, with exact tokens, and what a further tracer tells of them is no further call.
    """
    spans, refusals = [], Refusals()
    for item in exported(request):
        try:
            spans.append(_of_attempt(record_of(item)))
        except BadValue as error:
            refusals.add(str(error))
    return spans, refusals


def record_of(item: Exported) -> Span:
    """An exported span as a record of no attempt yet, all that was told of it among its attributes.

    Raises:
        BadValue: its ids or times are none.
    """
    span = item.span
    resource = attributes_of(item.resource.attributes)
    attributes = attributes_of(span.attributes)
    for name in OURS:
        if (named := attributes.get(name, resource.pop(name, None))) is not None:
            attributes[name] = named
    kind = kind_of(attributes)
    start_ns, end_ns = _times(span)
    return Span(
        rollout_id="",
        attempt=0,
        span_id=_hex(span.span_id, 8, "span id"),
        trace_id=_hex(span.trace_id, 16, "trace id"),
        parent_id=_hex(span.parent_span_id, 8, "parent's id") if span.parent_span_id else None,
        kind=kind,
        name=scrub_text(span.name),
        start_ns=start_ns,
        end_ns=end_ns,
        status=_STATUSES[span.status.code] if span.status.code < len(_STATUSES) else "unset",
        attributes={
            **attributes,
            **in_our_words(kind, attributes),
            **_surroundings(item, resource),
        },
        events=tuple(map(_event, span.events)),
    )


def attempt_named(attributes: Mapping[str, JSON]) -> AttemptKey | None:
    """The attempt that a span's attributes name; None if they name no rollout.

    Raises:
        BadValue: they name a rollout and no attempt.
    """
    rollout_id, number = (attributes.get(name) for name in (semconv.ROLLOUT_ID, semconv.ATTEMPT))
    if not (isinstance(rollout_id, str) and rollout_id):
        return None
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number[:20])  # environment variables, which resources are often set by, are text
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _LATEST_NS:
        raise BadValue(
            f"no attempt is named; expected its number, from 1, as {semconv.ATTEMPT} beside "
            f"{semconv.ROLLOUT_ID}"
        )
    return AttemptKey(rollout_id, number)


def _of_attempt(span: Span) -> Span:
    key = attempt_named(span.attributes) or attempt_of_trace(span.trace_id)
    if key is None:
        raise BadValue(
            f"no rollout is named; expected its id as {semconv.ROLLOUT_ID} on the span or the "
            "resource, or a trace that continues the rollout's traceparent"
        )
    root = root_span_id_of(key)
    return replace(
        span,
        rollout_id=key.rollout_id,
        attempt=key.number,
        parent_id=span.parent_id or (None if span.span_id == root else root),
        kind="other" if span.kind == "llm" else span.kind,
        attributes={name: value for name, value in span.attributes.items() if name not in OURS},
    )


def _hex(value: bytes, size: int, what: str) -> str:
    if len(value) != size or not any(value):
        raise BadValue(f"the {what} is {len(value)} bytes; expected {size}, not all of them zero")
    return value.hex()


def _times(span: trace_pb2.Span) -> tuple[int, int]:
    start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
    if max(start_ns, end_ns) > _LATEST_NS:
        raise BadValue("a time lies beyond 64 bits; expected nanoseconds since 1970")
    return start_ns, end_ns or start_ns


def _event(event: trace_pb2.Span.Event) -> SpanEvent:
    return SpanEvent(
        name=scrub_text(event.name),
        time_ns=min(event.time_unix_nano, _LATEST_NS),
        attributes=attributes_of(event.attributes),
    )


def _surroundings(item: Exported, resource: dict[str, JSON]) -> dict[str, JSON]:
    """What stands in other fields of the export; those that say nothing are left out."""
    span = item.span
    kind = _KINDS[span.kind] if span.kind < len(_KINDS) else str(span.kind)
    kept: dict[str, JSON] = {
        "otel.resource": resource,
        "otel.scope.name": item.scope.name,
        "otel.scope.version": item.scope.version,
        "otel.span_kind": "" if kind in ("unspecified", "internal") else kind,
        "otel.status_description": scrub_text(span.status.message),
        "otel.trace_state": span.trace_state,
        "otel.links": [_link(link) for link in span.links],
        "otel.dropped_attributes_count": span.dropped_attributes_count,
        "otel.dropped_events_count": span.dropped_events_count,
        "otel.dropped_links_count": span.dropped_links_count,
    }
    return {name: value for name, value in kept.items() if value}


def _link(link: trace_pb2.Span.Link) -> dict[str, Any]:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "attributes": attributes_of(link.attributes),
    }
