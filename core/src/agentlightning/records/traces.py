"""The trace of an attempt: its id says which attempt it is, so that no table of them is needed.

Spans that other tracers made carry a trace id and nothing else of ours. A store's ids of rollouts are
a time and random bits, 88 in all: with the attempt's number before them they fill the 128 bits of a
trace id, the random bits last, where samplers look for them. An id of another form is hashed, and its
trace cannot be read back.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from agentlightning.records.runs import AttemptKey

_OF_A_STORE: Final = re.compile(r"ro-([0-9a-f]{22})")
_LARGEST_NUMBER: Final = 0xFFFF
_TRACE: Final = re.compile(r"0{6}([0-9a-f]{4})([0-9a-f]{22})")


def trace_id_of(key: AttemptKey) -> str:
    """The trace of an attempt, 32 hexadecimal digits."""
    found = _OF_A_STORE.fullmatch(key.rollout_id)
    if found is None or not 1 <= key.number <= _LARGEST_NUMBER:
        return _digest(key)[:32]
    return f"{key.number:010x}{found[1]}"


def attempt_of_trace(trace_id: str) -> AttemptKey | None:
    """The attempt whose trace that would be; None for a trace that is none of ours."""
    found = _TRACE.fullmatch(trace_id)
    if found is None or (number := int(found[1], 16)) == 0:
        return None
    return AttemptKey(f"ro-{found[2]}", number)


def root_span_id_of(key: AttemptKey) -> str:
    """The attempt's own span, 16 hexadecimal digits: parent of whatever has no other."""
    return _digest(key)[32:48]


def _digest(key: AttemptKey) -> str:
    return hashlib.sha256(f"{key.rollout_id}/{key.number}".encode()).hexdigest()
