"""OpenTelemetry's spans, as any language exports them, turned into ours (OTLP), and ours into those."""

from agentlightning.otlp.as_json import read_json, write_json
from agentlightning.otlp.calls import with_call
from agentlightning.otlp.exporter import Exporter
from agentlightning.otlp.names import first_of, plain
from agentlightning.otlp.outgoing import request_of
from agentlightning.otlp.reading import Exported, Refusals, exported, read_traces
from agentlightning.otlp.shared import shared_exporter
from agentlightning.otlp.spans import OURS, attempt_named, record_of, spans_of
from agentlightning.otlp.target import Target, target_of, told_by_environment

__all__ = [
    "OURS",
    "Exported",
    "Exporter",
    "Refusals",
    "Target",
    "attempt_named",
    "exported",
    "first_of",
    "plain",
    "read_json",
    "read_traces",
    "record_of",
    "request_of",
    "shared_exporter",
    "spans_of",
    "target_of",
    "told_by_environment",
    "with_call",
    "write_json",
]
