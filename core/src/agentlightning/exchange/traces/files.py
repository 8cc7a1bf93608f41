"""Files of OTLP: lines or a document of JSON, protobuf whole or in pieces, packed or not."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from agentlightning.errors import BadValue, ExchangeError
from agentlightning.exchange.files import opened
from agentlightning.otlp import read_json, read_traces

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Read: TypeAlias = "ExportTraceServiceRequest | BadValue"
"""An export request, or why a part of a file is none."""

_START_OF_JSON: Final = b"{[ \t\r\xef"
_LENGTH: Final = 4


def requests_of(path: Path) -> Iterator[tuple[Read, int]]:
    """Each export request of a file, and how many bytes of it have been read by then.

    Protobuf is one request, or the collector's ``format: proto``: each after its length in four bytes.

    Raises:
        ExchangeError: the file cannot be read.
    """
    with opened(path) as (file, raw):
        try:
            first = file.read(1)
            is_json = bool(first) and first in _START_OF_JSON
            reader = _json_requests if is_json else _protobuf_requests
            for request in reader(file, first):
                yield request, raw.tell()
        except (OSError, EOFError, zlib.error) as error:
            raise ExchangeError(f"{path} cannot be read to its end: {error}") from error


def _json_requests(file: IO[bytes], first: bytes) -> Iterator[Read]:
    line = first + file.readline()
    try:
        document = json.loads(line)
    except ValueError:  # not a document a line, so perhaps one over many lines
        yield from _documents(line + file.read())
        return
    yield from _of_document(document)
    for line in file:
        if line.strip():
            yield from _documents(line)


def _documents(text: bytes) -> Iterator[Read]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield BadValue(f"text that is no JSON ({error.__class__.__name__})")
        return
    yield from _of_document(document)


def _of_document(document: Any) -> Iterator[Read]:
    for item in document if isinstance(document, list) else [document]:
        try:
            yield read_json(item)
        except BadValue as error:
            yield error


def _protobuf_requests(file: IO[bytes], first: bytes) -> Iterator[Read]:
    if not first:
        return
    if first == b"\n":  # the tag of the first field; as a length it would be 160 MB
        yield _protobuf(first + file.read())
        return
    start = first + file.read(_LENGTH - 1)
    while len(start) == _LENGTH:
        size = int.from_bytes(start, "big")
        body = file.read(size)
        if len(body) < size:
            yield BadValue("a message that is cut short, or a file that is no OTLP")
            return
        yield _protobuf(body)
        start = file.read(_LENGTH)


def _protobuf(body: bytes) -> Read:
    try:
        return read_traces(body)
    except BadValue:
        return BadValue("bytes that are no OTLP trace export")
