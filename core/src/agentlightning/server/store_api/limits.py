"""How much one request may bring, and one reply carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentlightning.errors import BadValue

MAX_CLAIMS: Final = 1000
"""Rollouts that one request may claim."""

_MB: Final = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """The server's limits.

    Attributes:
        body_bytes: the largest request taken, as it comes and once more when unpacked.
        page_bytes: size of a page of spans or rollouts after which the next one begins; a single
            record that is larger is a page of its own.
        page_spans: spans in one page.
        threads: calls to the store that run at once.
    """

    body_bytes: int = 64 * _MB
    page_bytes: int = 8 * _MB
    page_spans: int = 10_000
    threads: int = 8


def check_amount(limit: int, most: int, what: str, instead: str) -> None:
    """Refuse to hand out more than ``most`` in one reply."""
    if not 1 <= limit <= most:
        raise BadValue(f"limit is {limit}; expected 1 to {most} {what}: {instead}")
