"""A run as lines of JSON: a header, a row a line, and an end that tells how many there are.

::

    {"kind":"header","format":"agentlightning rows","version":1,"run_id":"run-…"}
    {"kind":"run","record":{…}}
    {"kind":"rollout","record":{…}}
    {"kind":"end","rows":2}

Token ids and log-probabilities are Base64 of little-endian uint32 and float32, as in all our JSON.
Files written one after the other into one can be read as one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from agentlightning.errors import ExchangeError
from agentlightning.exchange.files import STREAM, opened, written
from agentlightning.exchange.moving import Item, Progress
from agentlightning.records import json_decoder, to_json
from agentlightning.store.transfer import StoredRow

FORMAT: Final = "agentlightning rows"
VERSION: Final = 1
"""Raised when a reader of the old format would misread the new."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """The first line."""

    format: str
    version: int
    run_id: str


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """The last line; without it a file was cut short."""

    rows: int


_decode_header: Final = json_decoder(Header)
_Line: TypeAlias = StoredRow | End

_decode_line: Final[Callable[[bytes], _Line]] = json_decoder(cast("Any", _Line))


def write(target: Path, run_id: str, rows: Iterator[StoredRow]) -> int | None:
    """Write the rows of a run; returns the size of the file, None for standard output."""
    with written(target) as file:
        file.write(to_json(Header(format=FORMAT, version=VERSION, run_id=run_id)) + b"\n")
        count = 0
        for row in rows:
            file.write(to_json(row) + b"\n")
            count += 1
        file.write(to_json(End(rows=count)) + b"\n")
    return None if target == STREAM else target.stat().st_size


def read(path: Path, told: Progress) -> Iterator[Item]:
    """The rows of a file, one after the other.

    Raises:
        ExchangeError: it is no export, of another version, or cut short; the message names the line.
    """
    total = None if path == STREAM else path.stat().st_size
    with opened(path) as (file, raw):
        lines = _Lines(path)
        try:
            for line in file:
                if (item := lines.take(line)) is not None:
                    yield item
                told(lines.number if total is None else raw.tell(), total)
        except (OSError, EOFError, zlib.error) as error:
            raise ExchangeError(
                f"{path} cannot be read after line {lines.number}: {error}; {_AGAIN}"
            ) from error
        lines.check_end()


_AGAIN: Final = (
    "rows before it are imported, and importing a whole copy of the file adds what is missing"
)


class _Lines:
    """What has been read so far, and what has to come next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.number = 0
        self._rows: int | None = None
        """Rows since the header; None where a header is due."""

    def take(self, line: bytes) -> Item | None:
        """The row in the next line; None if it is a header or an end."""
        self.number += 1
        if self._rows is None:
            self._begin(line)
            return None
        row = self._decoded(line)
        if isinstance(row, End):
            if row.rows != self._rows:
                raise ExchangeError(
                    f"{self._path} line {self.number}: {row.rows} rows were written and {self._rows} "
                    f"are here; {_AGAIN}"
                )
            self._rows = None
            return None
        self._rows += 1
        return Item(f"line {self.number}", row, len(line))

    def check_end(self) -> None:
        """Refuse a file that ends where more was due."""
        if self.number == 0:
            raise ExchangeError(f"{self._path} is empty; expected what agl export wrote")
        if self._rows is not None:
            raise ExchangeError(
                f"{self._path} is cut short: it ends after line {self.number} without an end line; "
                f"{_AGAIN}"
            )

    def _begin(self, line: bytes) -> None:
        try:
            header = _decode_header(line)
        except msgspec.DecodeError as error:
            raise ExchangeError(
                f"{self._path} line {self.number} is no header of an export ({error}); expected a "
                "file that agl export wrote as jsonl"
            ) from error
        if (header.format, header.version) != (FORMAT, VERSION):
            raise ExchangeError(
                f"{self._path} holds {header.format!r} of version {header.version}, and this version "
                f"of agentlightning reads {FORMAT!r} of version {VERSION}; use the one it was written "
                "with, or a later one"
            )
        self._rows = 0

    def _decoded(self, line: bytes) -> _Line:
        try:
            return _decode_line(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            cut = "" if line.endswith(b"\n") else " and the file ends in it, cut short"
            raise ExchangeError(
                f"{self._path} line {self.number} is no row ({error}){cut}; {_AGAIN}"
            ) from error
