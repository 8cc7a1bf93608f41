"""Datasets a user may hand in, as a list of JSON tasks."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentlightning.errors import BadValue, DatasetError
from agentlightning.records import JSON, as_json


def load_dataset(source: Any, name: str) -> list[JSON]:
    """Read a list, an iterator, a ``datasets.Dataset``, or a JSONL, CSV or Parquet file.

    Args:
        source: the dataset; None gives an empty list.
        name: the configuration key, for messages.

    Raises:
        DatasetError: the file is missing, of another kind or unreadable, the dataset has no rows, or a
            row is not JSON.
    """
    if source is None:
        return []
    rows = _read(source, name)
    if not rows:
        raise DatasetError(f"{name}: the dataset has no rows; expected at least one task")
    try:
        return [as_json(row, f"{name} row {index}") for index, row in enumerate(rows)]
    except BadValue as error:
        raise DatasetError(str(error)) from error


def _read(source: Any, name: str) -> list[Any]:
    if isinstance(source, str | Path):
        return _read_file(Path(source), name)
    if isinstance(source, Mapping):
        raise DatasetError(
            f"{name}: got a mapping; expected a list of tasks (a DatasetDict? name one split)"
        )
    if isinstance(source, Iterable):
        return list(source)
    raise DatasetError(
        f"{name}: got a {type(source).__name__}; expected a list, an iterator, a datasets.Dataset, "
        "or the path of a .jsonl, .csv or .parquet file"
    )


def _read_file(path: Path, name: str) -> list[Any]:
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(
            f"{name}: {str(path)!r} is none of {', '.join(readers)}; convert it or pass a list"
        )
    try:
        return reader(path)
    except FileNotFoundError as error:
        raise DatasetError(f"{name}: there is no file {str(path)!r}") from error
    except (OSError, ValueError) as error:
        raise DatasetError(f"{name}: {str(path)!r} cannot be read: {error}") from error


def _read_jsonl(path: Path) -> list[Any]:
    rows = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise ValueError(f"line {number} is not JSON ({error})") from error
    return rows


def _read_csv(path: Path) -> list[Any]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _read_parquet(path: Path) -> list[Any]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError("reading Parquet needs pyarrow: pip install pyarrow") from error
    rows: list[Any] = parquet.read_table(path).to_pylist()
    return rows
