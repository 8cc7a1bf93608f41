"""OTLP in JSON, as the collector's file exporter writes it: ids in hexadecimal, not in Base64."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from agentlightning.errors import BadValue

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS: Final = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


def read_json(document: Any) -> ExportTraceServiceRequest:
    """Read an export request, already parsed.

    Raises:
        BadValue: it is none.
    """
    from google.protobuf.json_format import ParseDict, ParseError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    if not isinstance(document, dict) or not ({"resourceSpans", "resource_spans"} & document.keys()):
        raise BadValue("JSON without resourceSpans; expected an OTLP trace export")
    try:
        _each_id(document, lambda text: base64.b64encode(bytes.fromhex(text)).decode())
        return ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ParseError, RecursionError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"no OTLP trace export: {str(error)[:200]}") from error


def write_json(request: ExportTraceServiceRequest) -> bytes:
    """An export request as one line, without its end."""
    from google.protobuf.json_format import MessageToDict

    document = MessageToDict(request, use_integers_for_enums=True)
    _each_id(document, lambda text: base64.b64decode(text).hex())
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _each_id(document: dict[str, Any], changed: Callable[[str], str]) -> None:
    for holder in _holders(document):
        for name in _IDS:
            if isinstance(text := holder.get(name), str):
                try:
                    holder[name] = changed(text)
                except binascii.Error as error:
                    raise ValueError(f"{name} is {text!r}") from error


def _holders(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything that has ids: the spans and their links."""
    for of_resource in _list(document, "resourceSpans", "resource_spans"):
        for of_scope in _list(of_resource, "scopeSpans", "scope_spans"):
            for span in _list(of_scope, "spans"):
                yield span
                yield from _list(span, "links")


def _list(holder: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    found = next((holder[name] for name in names if name in holder), None)
    return found if isinstance(found, list) else []
