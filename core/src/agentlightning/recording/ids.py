"""Ids of spans and traces. An attempt's own are derived, so that seam and endpoint agree on them."""

from __future__ import annotations

import hashlib
import os
import random
from typing import Final

from agentlightning.records import root_span_id_of, trace_id_of

__all__ = ["new_span_id", "root_span_id_of", "span_id_of_try", "trace_id_of"]


# Seeded by the system once, since asking it for every span takes longer than all else about an id;
# a generator of our own, since agents seed the one that all share.
_random: Final = random.Random()  # noqa: S311 - ids are unique, not secret
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)  # else parent and child would give the same ids


def new_span_id() -> str:
    """A fresh span id, 16 hexadecimal digits; unique, not secret."""
    return f"{_random.getrandbits(64):016x}"


def span_id_of_try(span_id: str, number: int) -> str:
    """The span of one failed try of a call, 16 hexadecimal digits: the same whoever records it."""
    return hashlib.blake2b(f"{span_id}/{number}".encode(), digest_size=8).hexdigest()
