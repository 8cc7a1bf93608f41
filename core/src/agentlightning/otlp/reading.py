"""An OTLP export request: its spans one by one, with what the messages around them say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from agentlightning.errors import BadValue

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Refusals:
    """How many spans were not taken, and why."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def add(self, reason: str, count: int = 1) -> None:
        """Count spans that are refused for one reason."""
        self._reasons[reason] += count

    @property
    def count(self) -> int:
        """How many in all."""
        return self._reasons.total()

    def __str__(self) -> str:
        return "; ".join(f"{count}: {reason}" for reason, count in self._reasons.most_common())


class Exported(NamedTuple):
    """A span as it was exported, with its surroundings."""

    resource: Resource
    scope: InstrumentationScope
    span: Span


def read_traces(data: bytes) -> ExportTraceServiceRequest:
    """Read an export request.

    Raises:
        BadValue: it is none.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        return ExportTraceServiceRequest.FromString(data)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadValue(
            f"this is no OTLP trace export: {error}; expected an ExportTraceServiceRequest in protobuf"
        ) from error


def exported(request: ExportTraceServiceRequest) -> Iterator[Exported]:
    """All spans of a request."""
    for of_resource in request.resource_spans:
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Exported(of_resource.resource, of_scope.scope, span)
