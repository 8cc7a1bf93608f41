"""OpenTelemetry's spans, as any language exports them, turned into ours (OTLP, protobuf)."""

from agentlightning.otlp.reading import Refusals, read_traces
from agentlightning.otlp.spans import spans_of

__all__ = ["Refusals", "read_traces", "spans_of"]
