"""A run as a folder of Parquet files, a table a kind: to query with pandas or DuckDB, and to read back.

``rollouts.parquet``, ``spans.parquet`` and so on have a column a field (:mod:`.tables`). Nested values
are JSON text; token ids are lists of uint32 and log-probabilities lists of float32. All files are
always there. A reader relies on the order of their rows, which is that of the store.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from agentlightning.errors import ExchangeError
from agentlightning.exchange.columns import size_of
from agentlightning.exchange.files import STREAM, whole
from agentlightning.exchange.moving import Item, Progress
from agentlightning.exchange.tables import TABLES, Fields, Table
from agentlightning.store.transfer import StoredRow

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

VERSION: Final = 1
"""Raised when a reader of the old format would misread the new."""

_MARK: Final = {b"agl.format": b"agentlightning rows", b"agl.version": str(VERSION).encode()}

_GROUP_ROWS: Final = 10_000
_GROUP_BYTES: Final = 16_000_000
"""A row group is written once it has so many rows, or about so many bytes."""

_READ_ROWS: Final = 1000


def write(target: Path, run_id: str, rows: Iterator[StoredRow]) -> int:
    """Write the rows of a run into a new folder; returns the size of its files."""
    _need_pyarrow("writing")
    if target == STREAM:
        raise ExchangeError("a folder cannot go to standard output; name it, or take --format jsonl")
    with whole(target) as folder:
        folder.mkdir()
        with ExitStack() as files:
            writers = {
                table.row: files.enter_context(_Writer(folder / table.file, table, run_id))
                for table in TABLES
            }
            for row in rows:
                writers[type(row)].add(row)
    return sum(file.stat().st_size for file in target.iterdir())


def read(path: Path, told: Progress) -> Iterator[Item]:
    """The rows of a folder, in an order in which each comes after those it needs.

    Raises:
        ExchangeError: it is no export, of another version, or not whole.
    """
    _need_pyarrow("reading")
    with ExitStack() as files:
        opened = {table.name: files.enter_context(_opened(path / table.file)) for table in TABLES}
        total = sum(file.metadata.num_rows for file in opened.values())
        for done, item in enumerate(_in_order(path, opened), 1):
            yield item
            told(min(done, total), total)


class _Writer:
    """Writes one table, a row group at a time."""

    def __init__(self, path: Path, table: Table, run_id: str) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._table = table
        empty = {name: column.array([]) for name, column in table.columns.items()}
        told = {**_MARK, b"agl.run_id": run_id.encode()}
        schema = pa.schema([(name, array.type) for name, array in empty.items()], metadata=told)
        self._schema = schema
        self._file = parquet.ParquetWriter(path, schema, compression="zstd")
        self._cells: list[list[Any]] = [[] for _ in table.columns]
        self._size = 0

    def add(self, row: StoredRow) -> None:
        """Take a row; it is written with others."""
        for fields in self._table.rows_of(row.record):
            columns = self._table.columns.items()
            for cells, (name, column) in zip(self._cells, columns, strict=True):
                cell = column.encode(fields[name])
                cells.append(cell)
                self._size += size_of(cell)
        if len(self._cells[0]) >= _GROUP_ROWS or self._size >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        columns = self._table.columns.values()
        try:
            arrays = [column.array(cells) for column, cells in zip(columns, self._cells, strict=True)]
            self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        except (pa.ArrowException, OverflowError) as error:
            raise ExchangeError(
                f"{self._table.file}: a value cannot be written as Parquet ({error}); take "
                "--format jsonl, which takes every value"
            ) from error
        self._cells = [[] for _ in columns]
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._flush()
        self._file.close()


def _opened(path: Path) -> ParquetFile:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise ExchangeError(
            f"there is no {path}; expected a folder with all the files that agl export wrote into it"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise ExchangeError(f"{path} is damaged, cut short or no Parquet: {error}") from error
    told = file.schema_arrow.metadata or {}
    found = {key: told.get(key) for key in _MARK}
    if found != _MARK:
        file.close()
        said = {key.decode(): (value or b"nothing").decode() for key, value in found.items()}
        raise ExchangeError(
            f"{path} is no export that this version of agentlightning reads: its metadata says {said}, "
            f"expected version {VERSION}; use the version it was written with, or a later one"
        )
    return file


def _in_order(path: Path, opened: dict[str, ParquetFile]) -> Iterator[Item]:
    """All tables one after the other, but each rollout with its attempts."""
    items = {table.name: _items(path / table.file, table, opened[table.name]) for table in TABLES}
    attempts = items.pop("attempts")
    attempt = next(attempts, None)
    for name, of_table in items.items():
        for item in of_table:
            yield item
            while name == "rollouts" and attempt and _rollout_of(attempt) == _rollout_of(item):
                yield attempt
                attempt = next(attempts, None)
    if attempt is not None:
        raise ExchangeError(
            f"{path}, {attempt.place} is of a rollout that rollouts.parquet has elsewhere or not at "
            "all; expected the rows of both in the order they were written in"
        )


def _rollout_of(item: Item) -> str:
    return str(item.row.record.rollout_id)  # type: ignore[union-attr]  # of rollouts and attempts


def _items(path: Path, table: Table, file: ParquetFile) -> Iterator[Item]:
    import pyarrow as pa

    sizes: list[int] = [0]
    numbers = count(1)
    try:
        for record in table.records(_fields(table, file, sizes)):
            yield Item(f"{path.name} row {next(numbers)}", table.row(record=record), sizes[0])
    except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as error:
        raise ExchangeError(f"{path} row {next(numbers)} cannot be read: {error}") from error


def _fields(table: Table, file: ParquetFile, sizes: list[int]) -> Iterator[Fields]:
    """The rows of a table as fields; ``sizes[0]`` is that of the row given last."""
    columns = list(table.columns.items())
    for batch in file.iter_batches(_READ_ROWS, columns=list(table.columns)):
        cells = [column.cells(batch.column(name)) for name, column in columns]
        for row in zip(*cells, strict=True):
            sizes[0] = sum(map(size_of, row))
            yield {name: column.decode(cell) for (name, column), cell in zip(columns, row, strict=True)}


def _need_pyarrow(doing: str) -> None:
    try:
        importlib.import_module("pyarrow")
    except ImportError as error:
        raise ExchangeError(f"{doing} Parquet needs pyarrow: pip install pyarrow") from error
