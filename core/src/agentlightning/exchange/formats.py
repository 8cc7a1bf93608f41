"""What a run can be exported to and imported from: the one list, where a new format is added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentlightning.errors import ExchangeError
from agentlightning.exchange import jsonl, parquet
from agentlightning.exchange.files import STREAM
from agentlightning.exchange.moving import Exported, Imported, Progress, export_run, import_rows
from agentlightning.exchange.traces import TraceOptions, export_traces, import_traces
from agentlightning.store import Store


@dataclass(frozen=True)
class ExportFormat:
    """Something a run can be written as.

    Attributes:
        summary: one line for ``agl export --help``.
        suffix: of a target that is not named: the run's id and this.
        write: writes a run of a store to a path (:data:`~agentlightning.exchange.files.STREAM` for
            standard output) and says what it wrote.
    """

    summary: str
    suffix: str
    write: Callable[[Store, str, Path, Progress], Exported]


@dataclass(frozen=True)
class ImportFormat:
    """Something that can be read into a store.

    Attributes:
        summary: one line for ``agl import --help``.
        is_one: whether a path looks like it; None where it has to be named: ``agl import NAME PATH``.
        read: reads a path into a store and says what that gave.
    """

    summary: str
    is_one: Callable[[Path], bool] | None
    read: Callable[[Store, Path, Progress], Imported]


EXPORTS: Final[dict[str, ExportFormat]] = {
    "jsonl": ExportFormat(
        summary="every row as a line of JSON, lossless; FILE.jsonl.gz is packed, - is standard output",
        suffix=".jsonl",
        write=lambda store, run_id, target, told: export_run(store, run_id, target, jsonl.write, told),
    ),
    "parquet": ExportFormat(
        summary="a folder with a table a kind, for pandas or DuckDB, lossless",
        suffix=".parquet",
        write=lambda store, run_id, target, told: export_run(
            store, run_id, target, parquet.write, told
        ),
    ),
    "otlp": ExportFormat(
        summary="its spans as OTLP in JSON, for OpenTelemetry's tools; without token ids",
        suffix=".otlp",
        write=export_traces,
    ),
}

IMPORTS: Final[dict[str, ImportFormat]] = {
    "otlp": ImportFormat(
        summary="files of OTLP, JSON or protobuf, of any tracer: each trace becomes a rollout",
        is_one=lambda path: path.is_file() and ".otlp" in path.suffixes,
        read=lambda store, path, told: import_traces(store, [path], TraceOptions(), told),
    ),
    "parquet": ImportFormat(
        summary="a folder that was exported as parquet",
        is_one=Path.is_dir,
        read=lambda store, path, told: import_rows(store, path, parquet.read(path, told)),
    ),
    "jsonl": ImportFormat(
        summary="a file that was exported as jsonl, packed or not; - is standard input",
        is_one=lambda path: path == STREAM or path.is_file(),
        read=lambda store, path, told: import_rows(store, path, jsonl.read(path, told)),
    ),
}


def export_format(name: str | None, target: Path | None) -> str:
    """The name of the format to write: the one asked for, else what the target's name says.

    Raises:
        ExchangeError: the target is named like one format, and another was asked for.
    """
    by_name = {item.suffix: key for key, item in EXPORTS.items()}
    named = None if target is None else by_name.get(Path(target.name.removesuffix(".gz")).suffix)
    if name is not None and named not in (None, name):
        raise ExchangeError(
            f"--to {target} is named like {named} and --format says {name}; leave --format out, or "
            f"name it like {EXPORTS[name].suffix}"
        )
    return name or named or "jsonl"


def import_format(path: Path) -> str:
    """The name of the format that a path looks like.

    Raises:
        ExchangeError: there is nothing at the path.
    """
    for name, item in IMPORTS.items():
        if item.is_one is not None and item.is_one(path):
            return name
    raise ExchangeError(f"there is no file or folder {path}; expected what agl export wrote")
