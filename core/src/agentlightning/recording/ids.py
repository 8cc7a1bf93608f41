"""Ids of spans and traces. An attempt's own are derived, so that seam and endpoint agree on them."""

from __future__ import annotations

import hashlib
import secrets

from agentlightning.records import root_span_id_of, trace_id_of

__all__ = ["new_span_id", "root_span_id_of", "span_id_of_try", "trace_id_of"]


def new_span_id() -> str:
    """A fresh span id, 16 hexadecimal digits."""
    return secrets.token_hex(8)


def span_id_of_try(span_id: str, number: int) -> str:
    """The span of one failed try of a call, 16 hexadecimal digits: the same whoever records it."""
    return hashlib.blake2b(f"{span_id}/{number}".encode(), digest_size=8).hexdigest()
