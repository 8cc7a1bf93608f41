"""Secrets that were sent along, so that they can be taken out of what servers and exceptions tell.

A server that refuses a request may repeat its headers, and an SDK puts that into its exception, which
ends in the agent's log, the attempt's record and the rollout's outcome. What was in the request is
known only where it was sent; so it is noted there, when a call fails.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_REMEMBERED: Final = 256
"""Values known at a time. A failure is told soon after it happened."""
_SHORTEST: Final = 8
"""A shorter value is no key, and would be found in innocent text."""
_HARMLESS: Final = frozenset(
    {
        "accept", "accept-encoding", "accept-language", "anthropic-version", "connection",
        "content-length", "content-type", "host", "transfer-encoding", "user-agent",
    }
)  # fmt: skip
_HARMLESS_BEGINNINGS: Final = ("x-stainless-", "agentlightning-", "x-agentlightning-")


class _Known:
    def __init__(self) -> None:
        self._values: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.RLock()  # a fault may be told while garbage is collected in here

    def add(self, value: str) -> None:
        with self._lock:
            self._values[value] = None
            self._values.move_to_end(value)
            while len(self._values) > _REMEMBERED:
                self._values.popitem(last=False)

    def all(self) -> list[str]:
        with self._lock:
            return sorted(self._values, key=len, reverse=True)  # one may begin another


_known: Final = _Known()


def remember_secrets(url: str, headers: Mapping[str, str]) -> None:
    """Have everything in a request that may be a secret removed from text from now on.

    That is the values of all headers but those that every request has, those of the query, and a
    password in the URL.
    """
    parts = urlsplit(url)
    values = [value for _, value in parse_qsl(parts.query)]
    values += [parts.password or ""]
    for name, value in headers.items():
        lower = name.lower()
        if lower not in _HARMLESS and not lower.startswith(_HARMLESS_BEGINNINGS):
            values += [value, value.partition(" ")[2]]  # with and without "Bearer"
    for value in values:
        if len(value) >= _SHORTEST:
            _known.add(value)


def known_secrets() -> list[str]:
    """What is known to be secret, longest first."""
    return _known.all()
