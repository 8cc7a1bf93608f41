"""Runs as files: what ``agl export`` writes and ``agl import`` reads.

``formats`` is the list of what can be written and read. The formats that hold a run row for row
(``jsonl``, ``parquet``) lose nothing and are read back into any store; ``moving`` carries the rows
between a store and a file.
"""

from agentlightning.exchange.formats import (
    EXPORTS,
    IMPORTS,
    ExportFormat,
    ImportFormat,
    export_format,
    import_format,
)
from agentlightning.exchange.moving import Exported, Imported, Progress
from agentlightning.exchange.traces import TraceOptions, import_traces

__all__ = [
    "EXPORTS",
    "IMPORTS",
    "ExportFormat",
    "Exported",
    "ImportFormat",
    "Imported",
    "Progress",
    "TraceOptions",
    "export_format",
    "import_format",
    "import_traces",
]
