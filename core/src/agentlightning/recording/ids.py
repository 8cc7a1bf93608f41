"""Ids of spans and traces. An attempt's own are derived, so that seam and endpoint agree on them."""

from __future__ import annotations

import hashlib
import secrets

from agentlightning.records import AttemptKey


def new_span_id() -> str:
    """A fresh span id, 16 hexadecimal digits."""
    return secrets.token_hex(8)


def trace_id_of(key: AttemptKey) -> str:
    """The trace of an attempt, 32 hexadecimal digits."""
    return _digest(key)[:32]


def root_span_id_of(key: AttemptKey) -> str:
    """The attempt's own span, 16 hexadecimal digits: parent of whatever has no other."""
    return _digest(key)[32:48]


def span_id_of_try(span_id: str, number: int) -> str:
    """The span of one failed try of a call, 16 hexadecimal digits: the same whoever records it."""
    return hashlib.blake2b(f"{span_id}/{number}".encode(), digest_size=8).hexdigest()


def _digest(key: AttemptKey) -> str:
    return hashlib.sha256(f"{key.rollout_id}/{key.number}".encode()).hexdigest()
