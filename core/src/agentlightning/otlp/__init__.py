"""OpenTelemetry's spans, as any language exports them, turned into ours (OTLP), and ours into those."""

from agentlightning.otlp.as_json import read_json, write_json
from agentlightning.otlp.calls import with_call
from agentlightning.otlp.names import first_of, plain
from agentlightning.otlp.outgoing import request_of
from agentlightning.otlp.reading import Exported, Refusals, exported, read_traces
from agentlightning.otlp.spans import OURS, attempt_named, record_of, spans_of

__all__ = [
    "OURS",
    "Exported",
    "Refusals",
    "attempt_named",
    "exported",
    "first_of",
    "plain",
    "read_json",
    "read_traces",
    "record_of",
    "request_of",
    "spans_of",
    "with_call",
    "write_json",
]
