"""From an exported span to a record of the rollout and attempt it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agentlightning import semconv
from agentlightning.errors import BadValue
from agentlightning.llm_api.scrub import scrub_text
from agentlightning.otlp.kinds import kind_of
from agentlightning.otlp.reading import Exported, Refusals, exported
from agentlightning.otlp.values import attributes_of
from agentlightning.records import JSON, Span, SpanEvent, SpanStatus

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1 import trace_pb2

_STATUSES: Final[tuple[SpanStatus, ...]] = ("unset", "ok", "error")
_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
_LATEST_NS: Final = 2**63 - 1
_OURS: Final = frozenset({semconv.ROLLOUT_ID, semconv.ATTEMPT})


def spans_of(request: ExportTraceServiceRequest) -> tuple[list[Span], Refusals]:
    """The spans of an export request that can be kept, and why the others cannot.

    A span belongs to the attempt that its attributes ``agentlightning.rollout_id`` and
    ``agentlightning.attempt`` name, or those of its resource. What has no field of ours is kept among
    its attributes, under the names OpenTelemetry gives such things (``otel.…``).
    """
    spans, refusals = [], Refusals()
    for item in exported(request):
        try:
            spans.append(_span(item))
        except BadValue as error:
            refusals.add(str(error))
    return spans, refusals


def _span(item: Exported) -> Span:
    span = item.span
    resource = attributes_of(item.resource.attributes)
    attributes = attributes_of(span.attributes)
    named = {name: attributes.pop(name, resource.pop(name, None)) for name in _OURS}
    rollout_id, attempt = _attempt(named)
    start_ns, end_ns = _times(span)
    return Span(
        rollout_id=rollout_id,
        attempt=attempt,
        span_id=_hex(span.span_id, 8, "span id"),
        trace_id=_hex(span.trace_id, 16, "trace id"),
        parent_id=_hex(span.parent_span_id, 8, "parent's id") if span.parent_span_id else None,
        kind=kind_of(attributes),
        name=scrub_text(span.name),
        start_ns=start_ns,
        end_ns=end_ns,
        status=_STATUSES[span.status.code] if span.status.code < len(_STATUSES) else "unset",
        attributes={**attributes, **_surroundings(item, resource)},
        events=tuple(map(_event, span.events)),
    )


def _attempt(named: dict[str, JSON]) -> tuple[str, int]:
    rollout_id, attempt = named[semconv.ROLLOUT_ID], named[semconv.ATTEMPT]
    if isinstance(attempt, str) and attempt.isascii() and attempt.isdigit():
        attempt = int(attempt[:20])  # environment variables, which resources are often set by, are text
    if not (isinstance(rollout_id, str) and rollout_id):
        raise BadValue(
            f"no rollout is named; expected its id as {semconv.ROLLOUT_ID}, on the span or the resource"
        )
    if not isinstance(attempt, int) or isinstance(attempt, bool) or not 1 <= attempt <= _LATEST_NS:
        raise BadValue(
            f"no attempt is named; expected its number, from 1, as {semconv.ATTEMPT} beside "
            f"{semconv.ROLLOUT_ID}"
        )
    return rollout_id, attempt


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
