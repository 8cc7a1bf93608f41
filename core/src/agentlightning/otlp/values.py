"""OTLP's attribute values as JSON, without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from agentlightning.llm_api import scrub, scrub_body
from agentlightning.llm_api.scrub import REMOVED, scrub_text
from agentlightning.records import JSON
from agentlightning.semconv import EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

_HEADERS: Final = ("http.request.header.", "http.response.header.", "gen_ai.headers", "llm.headers")
_MAY_HOLD_SECRETS: Final = re.compile("key|auth|token|secret|cookie|header", re.IGNORECASE)
_ERROR_TEXTS: Final = (EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE)


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, JSON]:
    """Attributes by name: plain JSON, secrets and large media replaced as in what we record ourselves.

    The values of captured HTTP headers are all removed, as those of ``extra_headers`` are.
    """
    plain = {pair.key: _plain(pair.value) for pair in pairs}
    for name, value in plain.items():
        if name.startswith(_HEADERS):
            plain[name] = REMOVED
        elif isinstance(value, str):
            plain[name] = scrub_text(value) if name in _ERROR_TEXTS else _without_secrets(value)
    return scrub_body(plain)


def _without_secrets(text: str) -> str:
    """JSON text with the secrets in it removed; any other text as it is."""
    if text[:1] not in ("{", "[") or not _MAY_HOLD_SECRETS.search(text):
        return text
    try:
        held = json.loads(text)
        cleaned = scrub(held)
    except (ValueError, RecursionError):
        return text
    return text if cleaned == held else json.dumps(cleaned, ensure_ascii=False)


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _plain(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, kind)
