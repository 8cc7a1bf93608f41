"""Traces that other tracers wrote to files, as a run; and a run as such a file."""

from agentlightning.exchange.traces.importing import TraceOptions, import_traces
from agentlightning.exchange.traces.writing import export_traces

__all__ = ["TraceOptions", "export_traces", "import_traces"]
